"""Stored names of runs, networks and scores, as tables and figures show them."""

import re
from collections.abc import Mapping
from typing import Any

MEMBERS = {"resnet110": 5}  # other networks have ten
USUAL_PRIORS = ("lenet", "lite resnet20")
# words of stored names, as tables and figures show them
DISPLAYED = {
    "unfitted": "uncalibrated",
    "calibrated": "two temperatures",
    "trunk": "backbone",
    "lenet": "LeNet",
    "svhn": "SVHN",
    "kmnist": "KMNIST",
    "cifar100": "CIFAR-100",
    **{f"resnet{depth}": f"ResNet-{depth}" for depth in (8, 20, 56, 110)},
    "nll": "NLL",
    "ece": "ECE",
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "mi": "MI",
}


def label(facts: Mapping[str, Any]) -> str:
    """The method, and for DE-GP its weights, with all that is unusual: prior, temperature, context, images, members."""
    unusual = "".join(f", {facts[key]}" for key in ("context", "augmentation") if facts.get(key))
    if facts["members"] != MEMBERS.get(facts["network"], 10):
        unusual += f", M = {facts['members']}"
    if facts["alpha"] is None:
        return f"{facts['method']}{unusual}"
    prior = "" if facts["prior"] in USUAL_PRIORS else f", prior {facts['prior']}"
    temperature = facts.get("temperature_start", 1)
    start = "" if temperature == 1 else f", τ from {temperature:g}"
    return f"{facts['method']} α = {facts['alpha']:g}, β = {facts['beta']:g}{prior}{start}{unusual}"


def display(name: str) -> str:
    """A stored name of a score or a network, as tables and figures show it."""
    name = re.sub(r" S=(\d+)", r", \1 networks per step", name)
    name = re.sub(r"heads at (\S+)", r"heads' rate \1", name)
    return re.sub(r"[^\W_]+", lambda word: DISPLAYED.get(word[0], word[0]), name).replace("_", " ")
