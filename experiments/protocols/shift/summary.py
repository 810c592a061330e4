"""Methods under shift compared: differences from rDE, paired by seed and by image, with intervals; and two figures."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev

import torch
from safetensors.torch import load_file

from degp.report.figures import save_figure
from degp.runtime.files import new_file
from experiments.protocols.image_names import display, label
from experiments.protocols.image_records import Facts, Records, name_of
from experiments.protocols.image_runs import BY_IMAGE, Place, records_in
from experiments.protocols.shift.figures import interval_figure, pareto_figure

BASELINE = "rDE"
BY_SEED = ("nll", "accuracy", "nll_corrupted", "accuracy_corrupted", "auroc_svhn_mi", "auroc_svhn_entropy")
EACH_IMAGE = ("nll", "accuracy", "nll_corrupted", "accuracy_corrupted")
QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # of Student's t, 97.5 %, from 1 degree on
NORMAL = 1.96  # the same quantile for thousands of images
Interval = tuple[float, float]  # centre and half-width


def write_comparison(place: Place) -> None:
    """`differences.md`; `shift.png` of each network and number of epochs; and `pareto.png` of each number of epochs."""
    if not place.mesh.is_first:
        return
    records = [record for record in records_in(place) if record.get("nll_corrupted") is not None]
    if not records:
        return
    groups = grouped(records, lambda record: (record["network"], record["epochs"]))
    with new_file(place.out / "differences.md") as draft:
        draft.write_text(differences_page(list(groups.values()), place.out / BY_IMAGE), encoding="utf-8")
    for (network, epochs), own in groups.items():
        suffix = "" if len(groups) == 1 else f"_{network}_{epochs}".replace(" ", "_")
        save_figure(interval_figure(means(own)), place.out / f"shift{suffix}.png")
    for (epochs,), own in grouped(records, lambda record: (record["epochs"],)).items():
        timed = [record for record in own if record.get("seconds_per_epoch") is not None]
        if timed:
            suffix = "" if len({record["epochs"] for record in records}) == 1 else f"_{epochs}"
            save_figure(pareto_figure(timed), place.out / f"pareto{suffix}.png")


def grouped(records: Records, key: Callable[[Facts], tuple]) -> dict[tuple, Records]:
    """Records by a key, in order of appearance."""
    groups: dict[tuple, Records] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def differences_page(groups: Sequence[Records], images: Path) -> str:
    """Intervals over seeds; and over test images within each seed, where the scores of both methods are stored."""
    by_seed = [_row("network", "epochs", "method", "seeds", *map(display, BY_SEED))]
    by_image = []
    for own in groups:
        start = (display(own[0]["network"]), str(own[0]["epochs"]))
        by_seed += [_row(*start, method, *cells) for method, cells in differences(own).items()]
        by_image += [_row(*start, *cells) for cells in image_differences(own, images)]
    text = (
        "Differences from rDE with the same images and seed; ± is half a 95 % interval.\n\n"
        f"Over seeds, by Student's t:\n\n{_table(by_seed)}"
    )
    if not by_image:
        return text
    head = _row("network", "epochs", "method", "seed", *map(display, EACH_IMAGE))
    return f"{text}\nOver test images, within a seed:\n\n{_table([head, *by_image])}"


def differences(records: Records) -> dict[str, list[str]]:
    """Per method the number of seeds it shares with rDE, and its mean difference with a 95 % interval over these."""
    table = {}
    for method, own in grouped(records, lambda record: (label(record),)).items():
        pairs = [(record, other) for record in own if (other := baseline(record, records)) is not None]
        if pairs:
            cells = [
                interval([r[score] - other[score] for r, other in pairs if _both(r, other, score)]) for score in BY_SEED
            ]
            table[method[0]] = [str(len(pairs)), *(_signed(*cell) for cell in cells)]
    return table


def image_differences(records: Records, folder: Path) -> list[list[str]]:
    """Per method and seed the mean difference over test images, with its 95 % interval, where their scores are kept."""
    rows = []
    for record in records:
        other = baseline(record, records)
        files = [folder / f"{name_of(r)}.safetensors" for r in (record, other) if r is not None]
        if other is not None and all(file.exists() for file in files):
            own, theirs = (load_file(file) for file in files)
            cells = [over_images(own[score] - theirs[score]) for score in EACH_IMAGE if score in own]
            rows.append([label(record), str(record["seed"]), *(_signed(*cell) for cell in cells)])
    return rows


def baseline(record: Facts, records: Records) -> Facts | None:
    """The record of rDE with the same network, seed and augmentation; None for rDE itself and where there is none."""
    same = {key: record.get(key) for key in ("network", "seed", "augmentation")}
    wanted = {"method": BASELINE, "context": None, **same}
    found = [other for other in records if all(other.get(key) == value for key, value in wanted.items())]
    largest = max(found, key=lambda other: other["members"], default=None)  # an ensemble before a single network
    return None if record is largest else largest


def interval(values: Sequence[float]) -> Interval:
    """Mean and half-width of the 95 % interval by Student's t; NaN for what cannot be known."""
    if not values:
        return math.nan, math.nan
    if len(values) == 1:
        return values[0], math.nan
    degrees = min(len(values) - 1, len(QUANTILES))
    return mean(values), QUANTILES[degrees - 1] * stdev(values) / math.sqrt(len(values))


def over_images(differences: torch.Tensor) -> Interval:
    """Mean and half-width of the 95 % interval of thousands of paired differences."""
    values = differences.double()
    return values.mean().item(), NORMAL * values.std().item() / math.sqrt(len(values))


def means(records: Records) -> dict[str, dict[str, Interval]]:
    """Per method, and for each score of the figure, its mean over seeds with a 95 % interval."""
    return {
        method: {score: interval([r[score] for r in own if r.get(score) is not None]) for score in BY_SEED}
        for (method,), own in grouped(records, lambda record: (label(record),)).items()
    }


def _both(record: Facts, other: Facts, score: str) -> bool:
    return record.get(score) is not None and other.get(score) is not None


def _signed(centre: float, half: float) -> str:
    if math.isnan(centre):
        return "–"
    return f"{centre:+.4f}" + ("" if math.isnan(half) else f" ± {half:.4f}")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _table(rows: Sequence[str]) -> str:
    columns = rows[0].count("|") - 1
    return "".join([rows[0], "|" + " --- |" * columns + "\n", *rows[1:]])
