"""Image classifiers: an ensemble from a recipe to calibrated probabilities and out-of-distribution scores."""

from degp.vision.context import ChannelMix, PatchShuffle, SmoothNoise, context_images
from degp.vision.fitting import Trained, train, weight_norm
from degp.vision.initialisation import initialise
from degp.vision.ood import error_curve, ood_scores
from degp.vision.recipe import WEIGHT_PRIOR, Backbone, Cosine, Milestones, PriorNetworks, Recipe
from degp.vision.saving import has_members, load_members, save_members
from degp.vision.temperature import (
    Calibrated,
    PooledTemperature,
    TemperatureScaled,
    TwoTemperatures,
    class_scores,
    fit_temperatures,
)

__all__ = [
    "WEIGHT_PRIOR",
    "Backbone",
    "Calibrated",
    "ChannelMix",
    "Cosine",
    "Milestones",
    "PatchShuffle",
    "PooledTemperature",
    "PriorNetworks",
    "Recipe",
    "SmoothNoise",
    "TemperatureScaled",
    "Trained",
    "TwoTemperatures",
    "class_scores",
    "context_images",
    "error_curve",
    "fit_temperatures",
    "has_members",
    "initialise",
    "load_members",
    "ood_scores",
    "save_members",
    "train",
    "weight_norm",
]
