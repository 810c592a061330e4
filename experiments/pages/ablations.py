"""DE-GP on CIFAR-10 by α, by the networks of its prior, and with a shared backbone."""

from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from experiments.pages.published import ALPHAS, PRIORS
from experiments.pages.stored import Records, cell, records, table, values, where

__all__ = ["alpha", "prior", "published_prior", "sharing", "temperature_start"]

SCORES = {"nll": "NLL", "nll_validation": "validation NLL", "auroc_mi": "AUROC, MI", "auroc_entropy": "entropy"}


def alpha() -> str:
    """By α, beside the paper's accuracy."""
    rows = [
        [f"{key[0]:g}", str(key[1]), str(len(own)), ALPHAS.get(key[0], "–"), *_scores(own)]
        for key, own in _grouped(records("cifar10_alpha"), lambda row: (row["alpha"], row["epochs"])).items()
    ]
    return table(["α", "epochs", "seeds", "accuracy, %: paper", "ours", *SCORES.values()], rows)


def prior() -> str:
    """By depth and number of the prior's networks."""
    groups = _grouped(records("cifar10_prior"), lambda row: (row["prior"], row["alpha"], row["epochs"]))
    rows = [
        [_networks(key[0]), f"{key[1]:g}", str(key[2]), str(len(own)), *_scores(own)] for key, own in groups.items()
    ]
    return table(["prior", "α", "epochs", "seeds", "accuracy, %", *SCORES.values()], rows)


def published_prior(name: str) -> str:
    """The paper's accuracy with ResNet-56 as members, in %."""
    return PRIORS[name]


def temperature_start() -> str:
    """DE-GP with and without a penalty, by the value at which its temperature starts; one seed."""
    runs = where(records("cifar10"), network="resnet20", epochs=200, method="DE-GP", seed=0)
    corrupted = [row for row in records("cifar10_corruptions") if row["severity"]]
    rows = []
    for row in sorted(runs, key=lambda row: (-row["beta"], row["temperature_start"])):
        scores = (cell(values([row], key)) for key in ("nll", "auroc_mi"))
        facts = {key: row[key] for key in ("network", "method", "beta", "temperature_start")}
        shifted = values(where(corrupted, **facts), "nll")
        under_shift = f"{mean(shifted):.3f}" if shifted else "–"
        start = f"β = {row['beta']:g}, from {row['temperature_start']:g}"
        rows.append([start, cell([row["accuracy"]], 2, 100), *scores, under_shift])
    return table(["temperature", "accuracy, %", "NLL", "AUROC SVHN, MI", "NLL, corrupted"], rows)


def sharing() -> str:
    """Heads on one backbone, by method, α, prior and learning rate."""
    rows = []
    for row in records("cifar10_sharing"):
        settings = [row["method"], "–" if row["alpha"] is None else f"{row['alpha']:g}"]
        settings += [
            "centred" if "centred" in (row["prior"] or "") else "–",
            "0.1" if "0.1" in row["network"] else "0.01",
        ]
        scores = ("nll_unfitted", "nll", "auroc_mi", "auroc_entropy", "error_coverage_10")
        rows.append([*settings, cell(values([row], "accuracy"), 2, 100), *(cell(values([row], key)) for key in scores)])
    heads = ["method", "α", "prior", "heads' rate", "accuracy, %", "NLL, uncalibrated", "NLL", "AUROC, MI", "entropy"]
    return table([*heads, "error of the surest 10 %"], rows)


def _grouped(rows: Records, key: Callable[[Mapping[str, Any]], tuple[Any, ...]]) -> dict[tuple[Any, ...], Records]:
    return {own: [row for row in rows if key(row) == own] for own in dict.fromkeys(map(key, rows))}


def _scores(rows: Records) -> list[str]:
    return [cell(values(rows, "accuracy"), 2, 100), *(cell(values(rows, key)) for key in SCORES)]


def _networks(name: str) -> str:
    depth, *rest = name.removeprefix("lite resnet").split()
    return ", ".join([f"{depth} layers", *(word.replace("S=", "networks per step: ") for word in rest)])
