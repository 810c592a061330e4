"""What the records say: `summary.md` with a table per label count and the claims that were made before the runs."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from degp.methods import Kind
from degp.runtime.files import new_file
from experiments.protocols.pretrained.claims import claims
from experiments.protocols.pretrained.figures import draw
from experiments.protocols.pretrained.runs import SMOKE, Settings

__all__ = ["chosen", "grouped", "write_summary"]

Records = Sequence[Mapping[str, Any]]
Key = tuple[int, str, int | None, float | str | None]
FOCUS = Kind.DEGP.label
CHOSEN = "chosen"
SHOWN = {
    "nll": "NLL",
    "nll_calibrated": "NLL, two temperatures",
    "accuracy": "accuracy",
    "ece": "ECE",
    "auroc_svhn_mi": "SVHN AUROC, MI",
    "auroc_svhn_entropy": "entropy",
    "auroc_svhn_score": "distance",
    "fpr95_svhn_mi": "FPR95, MI",
    "auroc_cifar100_mi": "CIFAR-100 AUROC, MI",
    "auroc_cifar100_entropy": "entropy",
    "auroc_cifar100_score": "distance",
    "auroc_fashion_mi": "Fashion-MNIST AUROC, MI",
    "auroc_fashion_entropy": "entropy",
    "auroc_hard_ham_mi": "hard ham AUROC, MI",
    "auroc_hard_ham_entropy": "entropy",
    "auroc_hard_ham_score": "distance",
    "nll_corrupted": "NLL, corrupted",
    "nll_hard_ham": "NLL, hard ham",
    "accuracy_hard_ham": "accuracy, hard ham",
    "seconds": "seconds",
}


def write_summary(records: Records, settings: Settings, folder: Path) -> str:
    """Writes `summary.md` and, with matplotlib, the figures; returns the text."""
    rows = grouped([*records, *chosen(records)])
    parts = [_rules(settings)]
    parts += [part for labels in sorted({key[0] for key in rows}) for part in _table(rows, labels)]
    if settings.data != SMOKE:
        parts += ["## Claims", "", *_claims(records)]
    text = "\n".join(parts).rstrip() + "\n"
    with new_file(folder / "summary.md") as draft:
        draft.write_text(text, encoding="utf-8")
    if find_spec("matplotlib") is not None:
        draw(records, folder, settings.data)
    return text


def chosen(records: Records) -> list[dict[str, Any]]:
    """DE-GP at the α with the lowest validation NLL, per label subset and number of members, where several were run."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        if record["method"] == FOCUS:
            groups.setdefault((record["labels"], record["members"], record["seed"]), []).append(record)
    best = [min(own, key=lambda record: record["nll_validation"]) for own in groups.values() if len(own) > 1]
    return [{**record, "alpha": CHOSEN, "alpha_chosen": record["alpha"]} for record in best]


def grouped(records: Records) -> dict[Key, list[Mapping[str, Any]]]:
    """Records by all that identifies them but the seed."""
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for record in records:
        key = (record["labels"], record["method"], record["members"], record["alpha"])
        groups.setdefault(key, []).append(record)
    return groups


def _rules(settings: Settings) -> str:
    budget = settings.budget
    return (
        f"# Heads on a pre-trained network: {settings.data}\n\n"
        f"Heads have one hidden layer of {budget.width} units on {budget.components} principal components of the "
        f"features, and train for {budget.steps} steps of Adam at {budget.learning_rate:g} with batches of "
        f"{budget.batch_size}; the prior's scales maximise the evidence. The penalty of rDE and RMS has weight "
        f"{budget.penalty:g}. α is in units of Bayes' weight; “{CHOSEN}” is the α of the lowest validation NLL. One "
        f"temperature is fitted on validation points for every method. Mean ± standard error over label subsets. "
        f"Seconds are of training alone, beside other runs on the same device.\n"
    )


def _table(rows: Mapping[Key, Records], labels: int) -> list[str]:
    own = {key: records for key, records in rows.items() if key[0] == labels}
    scores = [name for name in SHOWN if any(r.get(name) is not None for records in own.values() for r in records)]
    heads = ["method", "members", "α", *(SHOWN[name] for name in scores), "subsets"]
    lines = [f"## {labels:,} labels", "", _line(heads), _line(["---"] * len(heads))]
    for (_, method, members, alpha), records in own.items():
        cells = (cell([r[name] for r in records if r.get(name) is not None]) for name in scores)
        facts = [method, *("–" if value is None else str(value) for value in (members, alpha))]
        lines.append(_line([*facts, *cells, str(len(records))]))
    return [*lines, ""]


def _claims(records: Records) -> list[str]:
    found = claims(records)
    heads = ["claim", "found", "holds"]
    return [_line(heads), _line(["---"] * 3), *(_line([c.text, c.found, "yes" if c.holds else "no"]) for c in found)]


def cell(values: Sequence[float]) -> str:
    """Mean ± standard error; a dash where there is nothing."""
    if not values:
        return "–"
    error = f" ± {stdev(values) / math.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{error}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
