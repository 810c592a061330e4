"""Image classifiers with the paper's settings: methods beside the paper's values, temperatures and corruptions."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from experiments import cifar10
from experiments.pages.published import ACCURACY, LOGGED
from experiments.pages.stored import Records, cell, lowest, records, table, values, where, without_empty_columns
from experiments.protocols.image_names import display

__all__ = ["best_by_temperatures", "corruptions", "methods", "published", "score", "temperatures"]

USUAL_PRIORS = (None, "lenet", "lite resnet20")
USUAL_ALPHA = {"cifar10": 0.01, "cifar10_sharing": 0.05, "fmnist": 0.1}
CORRUPTED = {
    "nll_unfitted": "NLL, uncalibrated",
    "ece_unfitted": "ECE, uncalibrated",
    "nll": "NLL",
    "ece": "ECE",
}
FITTED = {"_unfitted": "none", "": "one", "_calibrated": "two"}  # temperatures


def methods(experiment: str, network: str, epochs: str) -> str:
    """Each method beside the paper: accuracy and uncalibrated NLL, then scores at a fitted temperature."""
    own = of_paper(experiment, network, int(epochs))
    paper, logged = ACCURACY.get((experiment, network), {}), LOGGED.get((experiment, network), {})
    rows = []
    for name in method_names(own):
        mine = of_method(own, name)
        beside = [paper.get(name, "–"), _percent(mine, "accuracy"), logged.get(name, "–")]
        scores = (cell(values(mine, key)) for key in ("nll_unfitted", "nll", "ece", "auroc_mi", "auroc_entropy"))
        rows.append([name, *beside, *scores])
    heads = ["accuracy, %", "NLL, uncalibrated"]
    heads = [words for head in heads for words in (f"{head}: paper", f"{head}: ours")]
    return without_empty_columns(["method", *heads, "NLL", "ECE", "AUROC, MI", "AUROC, entropy"], rows)


def published(experiment: str) -> str:
    """The paper's accuracies by network and method."""
    by_network = {network: own for (name, network), own in ACCURACY.items() if name == experiment}
    heads = list(next(iter(by_network.values())))
    return table(["network", *heads], [[display(network), *own.values()] for network, own in by_network.items()])


def score(experiment: str, network: str, epochs: str, name: str, key: str) -> str:
    """A score of a method, over seeds; shares as such, accuracies in %."""
    mine = of_method(of_paper(experiment, network, int(epochs)), name)
    return _percent(mine, key) if key.startswith("accuracy") else cell(values(mine, key))


def temperatures() -> str:
    """NLL and ECE on CIFAR-10 with no, one and two fitted temperatures."""
    own = of_paper("cifar10", "resnet20", 200)
    keys = [f"{base}{suffix}" for base in ("nll", "ece") for suffix in FITTED]
    rows = [[name, *(cell(values(of_method(own, name), key)) for key in keys)] for name in method_names(own)]
    return table(["temperatures", *(f"{base}, {words}" for base in ("NLL", "ECE") for words in FITTED.values())], rows)


def best_by_temperatures(score: str) -> str:
    """The method with the lowest NLL or ECE on CIFAR-10, by the number of fitted temperatures."""
    own = of_paper("cifar10", "resnet20", 200)
    found = []
    for suffix, words in FITTED.items():
        means = {name: mean(values(of_method(own, name), f"{score}{suffix}")) for name in method_names(own)}
        found.append(f"{lowest(means)} with {words}")
    return ", ".join(found)


def corruptions(network: str) -> str:
    """Mean scores over all corruptions and severities."""
    own = [row for row in where(records("cifar10_corruptions"), network=network) if row["severity"] and is_usual(row)]
    rows = []
    for name in method_names(own):
        mine = of_method(own, name)
        scores = (f"{mean(values(mine, key)):.3f}" for key in CORRUPTED)
        rows.append([name, f"{100 * mean(values(mine, 'accuracy')):.1f}", *scores])
    return table(["method", "accuracy, %", *CORRUPTED.values()], rows)


def of_paper(experiment: str, network: str, epochs: int) -> Records:
    """The runs with the paper's settings."""
    rows = where(records(experiment), network=network, epochs=epochs)
    return [row for row in rows if is_usual(row) and row["alpha"] in (None, USUAL_ALPHA[experiment])]


def is_usual(row: Mapping[str, Any]) -> bool:
    """Whether a run has the paper's prior and a temperature that starts at 1."""
    return row["prior"] in USUAL_PRIORS and not cifar10.is_superseded(row)


def method_names(rows: Records) -> list[str]:
    """In order of appearance; DE-GP on CIFAR-10 without a penalty is a method of its own."""
    return list(dict.fromkeys(_method(row) for row in rows))


def of_method(rows: Records, name: str) -> Records:
    """The records of one of them."""
    return [row for row in rows if _method(row) == name]


def _method(row: Mapping[str, Any]) -> str:
    bare = row["alpha"] is not None and row["beta"] == 0 and row["network"] != "lenet"
    return f"{row['method']}, β = 0" if bare else str(row["method"])


def _percent(rows: Records, key: str) -> str:
    return cell(values(rows, key), 2, 100)
