"""Runs by name: `degp-a0.003-p8-context-alone-augmix` is DE-GP with α = 0.003, a prior of 8 layers, and so on.

The first word is the method with its members, the others change it, in any order; of two numbers for the same the last
counts:

| word | what it changes |
|---|---|
| `de`, `rde`, `rms`, `degp` | ten whole networks; `degp` as the authors ran it, but for τ (`t0.1` is theirs) |
| `chosen` | `degp-a0.003-p8-s5-context`: DE-GP as validation images preferred it |
| `heads` | DE-GP heads on one network; `heads_rde` for rDE |
| `rankone` | DE-GP members that differ by rank-one factors of one network (BatchEnsemble); `rankone_rde` for rDE |
| `dropout` | MC dropout: passes of one network trained as rDE |
| `sngp` | SNGP: one network with a Gaussian process as output layer |
| `laplace` | one network trained as rDE, with a Laplace approximation of its last layer |
| `a0.01` | α of DE-GP, as in the paper: the weight of the divergence; Bayes' is 0.0028 |
| `b0.1` | β, the weight of the penalty |
| `t0.1` | initial temperature of DE-GP |
| `p8` | layers of the prior's networks |
| `s5` | prior networks per step |
| `r16` | pixels per row of the images that they see |
| `d64` | points of the batch in the divergence |
| `m64` | members |
| `context`, `patches`, `noise`, `mixes` | 32 context images per step; of three kinds, or of one |
| `k64` | as many of them |
| `alone` | the divergence on these alone |
| `exposed`, `seen` | DE, rDE, RMS: uniform labels on the context images, or none |
| `logitnorm` | LogitNorm |
| `augmix` | AugMix in place of crops and flips |
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import typer
from torch import nn

from degp.ensemble import Ensemble, rank_one
from degp.measurement import BatchPart, MeasurementAlone, MeasurementSampler
from degp.methods import Kind
from degp.nets import lite_resnet_features
from degp.vision import ChannelMix, PatchShuffle, PriorNetworks, Recipe, SmoothNoise, context_images
from experiments import cifar10, cifar10_sharing
from experiments.protocols.image_runs import AS_TRAINED, PostHoc, Run
from experiments.protocols.shift.augmix import AugMix
from experiments.protocols.shift.controls import Exposed, LogitNorm
from experiments.protocols.shift.dropout import dropout_resnet, passes
from experiments.protocols.shift.laplace import last_layers
from experiments.protocols.shift.sngp import DistanceAware, mean_field

CONTEXTS: dict[str, Callable[[int], MeasurementSampler]] = {
    "context": context_images,
    "patches": PatchShuffle,
    "noise": SmoothNoise,
    "mixes": ChannelMix,
}
COUNT = 32  # context images per step of 128
NUMBERS = {**dict.fromkeys("abt", float), **dict.fromkeys("psrdmk", int)}
NUMBER = re.compile(rf"[{''.join(NUMBERS)}]\d+(\.\d+)?")
CHOSEN = "degp-a0.003-p8-s5-context"
POST_HOC = {
    "dropout": PostHoc(passes),
    "sngp": PostHoc(mean_field),
    "laplace": PostHoc(last_layers, "last-layer Laplace"),
}
FLAGS = ("alone", "exposed", "seen", "logitnorm", "augmix")


@dataclass(frozen=True)
class RankOneMembers:
    """Members that differ from one network by rank-one factors; see `rank_one`."""

    spread: float = 0.5

    def __call__(self, network: nn.Module, members: int, generator: torch.Generator) -> Ensemble:
        return rank_one(network, members, spread=self.spread, generator=generator)


@dataclass(frozen=True)
class Words:
    """A run's name, taken apart."""

    method: str
    numbers: Mapping[str, Any]
    context: str | None
    flags: frozenset[str]

    @classmethod
    def of(cls, name: str) -> "Words":
        """The words of a name; typer.BadParameter where one has no meaning, or two contradict each other."""
        method, *rest = re.sub(r"^chosen(?=-|$)", CHOSEN, name).split("-")
        _require(method in METHODS, name, f"a method must be one of chosen, {', '.join(METHODS)}")
        unknown = [word for word in rest if not (NUMBER.fullmatch(word) or word in CONTEXTS or word in FLAGS)]
        _require(not unknown, name, f"words are a0.01, p8, …, {_known()}")
        numbers = {word[0]: NUMBERS[word[0]](word[1:]) for word in rest if NUMBER.fullmatch(word)}
        contexts = [word for word in rest if word in CONTEXTS]
        flags = frozenset(word for word in rest if word in FLAGS)
        words = cls(method, numbers, contexts[-1] if contexts else None, flags)
        words.check(name)
        return words

    def check(self, name: str) -> None:
        """Raises typer.BadParameter where words contradict each other."""
        needs = self.flags & {"alone", "exposed", "seen"}
        functional = METHODS[self.method]["method"] is Kind.DEGP
        _require(bool(self.context) or not needs, name, f"{', '.join(needs)} needs context images")
        _require(
            not functional or not self.flags & {"exposed", "seen", "logitnorm"}, name, "controls are not for DE-GP"
        )
        used = functional or bool(self.flags & {"exposed", "seen"})
        _require(not self.context or used, name, "without DE-GP, context images need exposed or seen")
        _require(functional or "alone" not in self.flags, name, "alone is for DE-GP")
        only = [key for key in "atpsrd" if key in self.numbers]
        _require(functional or not only, name, f"{', '.join(only)} is for DE-GP")
        _require(not {"d"} & self.numbers.keys() or "alone" not in self.flags, name, "alone leaves the batch out")


METHODS: dict[str, dict[str, Any]] = {
    **{name: dict(cifar10.METHODS[name]) for name in ("de", "rde", "rms", "degp")},
    "heads": {"method": Kind.DEGP, "alpha": 0.003, "beta": 0.1},
    "heads_rde": {"method": Kind.RDE, "beta": 0.1},
    "rankone": {"method": Kind.DEGP, "alpha": 0.003, "beta": 0.1},
    "rankone_rde": {"method": Kind.RDE, "beta": 0.1},
    **{name: {"method": Kind.RDE, "beta": 0.1, "members": 1} for name in ("dropout", "laplace")},
    "sngp": {"method": Kind.RDE, "beta": 0.1, "members": 1, "learning_rate": 0.05},  # the authors' rate
}


def run_by_name(name: str, network: str, epochs: int, seed: int) -> Run:
    """The run that a name stands for."""
    words = Words.of(name)
    count = words.numbers.get("k", COUNT)
    context = None if words.context is None else CONTEXTS[words.context](count)
    prior_name, prior = _prior(words.numbers)
    recipe = replace(_members(words.method, network, epochs), prior=prior)
    given = {"a": "alpha", "b": "beta", "t": "temperature", "m": "members"}
    recipe = replace(recipe, **{given[key]: value for key, value in words.numbers.items() if key in given})
    if "d" in words.numbers:
        recipe = replace(recipe, domain=BatchPart(words.numbers["d"]))
    if "augmix" in words.flags:
        recipe = replace(recipe, augmentation=AugMix())
    if "logitnorm" in words.flags:
        recipe = replace(recipe, variant=LogitNorm())
    if context is not None:
        recipe = _with_context(recipe, context, words.flags)
    return Run(
        _network(words.method, network),
        prior_name,
        recipe,
        seed,
        context=None if words.context is None else _context(words, count),
        augmentation="AugMix" if "augmix" in words.flags else None,
        control=_control(words),
        post_hoc=POST_HOC.get(words.method, AS_TRAINED),
    )


def _with_context(recipe: Recipe, context: MeasurementSampler, flags: frozenset[str]) -> Recipe:
    if recipe.method is not Kind.DEGP:
        return replace(recipe, variant=Exposed(context, 0.5 if "exposed" in flags else 0.0))
    recipe = replace(recipe, context=context)
    return replace(recipe, domain=MeasurementAlone()) if "alone" in flags else recipe


def _members(method: str, network: str, epochs: int) -> Recipe:
    settings = METHODS[method]
    if method.startswith("heads"):
        return replace(cifar10_sharing.recipe("degp", epochs), **settings)
    recipe = replace(cifar10.recipe(network, "degp", epochs), **settings)
    if method == "dropout":
        return replace(recipe, make_network=partial(dropout_resnet, cifar10.NETWORKS[network][0], 10))
    if method == "sngp":
        return replace(recipe, make_network=DistanceAware(recipe.make_network))
    return replace(recipe, light=RankOneMembers()) if method.startswith("rankone") else recipe


def _network(method: str, network: str) -> str:
    if method.startswith("heads"):
        return cifar10_sharing.NETWORK
    return f"{network} rank-one" if method.startswith("rankone") else network


def _prior(numbers: Mapping[str, int]) -> tuple[str, PriorNetworks]:
    """The name of a prior, which says all that is unusual, and the prior."""
    depth, draws, resolution = numbers.get("p", 20), numbers.get("s", 10), numbers.get("r")
    name = f"lite resnet{depth}"
    name += f" S={draws}" if "s" in numbers else ""
    name += f", {resolution} × {resolution} pixels" if resolution else ""
    name += f", on {numbers['d']} of the batch" if "d" in numbers else ""
    return name, PriorNetworks(partial(lite_resnet_features, depth), draws, resolution=resolution)


def _context(words: Words, count: int) -> str:
    kind = "context images" if words.context == "context" else f"context {words.context}"
    return f"{count} {kind}{' alone' if 'alone' in words.flags else ''}"


def _control(words: Words) -> str | None:
    names = {"exposed": "outlier exposure", "seen": "images seen", "logitnorm": "LogitNorm"}
    trained = {"dropout": "MC dropout", "sngp": "SNGP"}
    found = [trained[words.method]] if words.method in trained else []
    found += [names[flag] for flag in names if flag in words.flags]
    return " + ".join(found) or None


def _known() -> str:
    return ", ".join((*CONTEXTS, *FLAGS))


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise typer.BadParameter(f"--methods: {rule}, but one is {name!r}")
