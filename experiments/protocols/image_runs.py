"""Runs of the image experiments: each is done once, saved after each run, resumable, and limited by time.

Under `torchrun` the members are distributed across the ranks. All ranks compute; the first alone writes and prints.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
import typer
from jaxtyping import Float
from torch import Tensor

from degp.methods import Kind
from degp.metrics import ErrorUncertaintyCurve
from degp.report.figures import save_figure
from degp.runtime.cpu import tune_process
from degp.runtime.distributed import Mesh, start
from degp.runtime.files import new_file, require_writable, write_tensors
from degp.training import Checkpoints, History
from degp.typing import Batch
from degp.vision import Recipe, Trained, has_members, load_members, save_members, train
from experiments.protocols.assessment import assess
from experiments.protocols.deadline import Deadline, OutOfTime
from experiments.protocols.image_figures import Line, line_panels
from experiments.protocols.image_names import display, label
from experiments.protocols.image_records import (
    Records,
    add_record,
    add_rows,
    agrees,
    alone,
    load_records,
    load_rows,
    name_of,
)
from experiments.protocols.image_sets import ImageSets

SCORES = (
    "accuracy",
    "nll",
    "ece",
    "nll_unfitted",
    "ece_unfitted",
    "nll_calibrated",
    "ece_calibrated",
    "nll_validation",
    "member_accuracy",
)
OOD_SCORES = ("auroc_mi", "auroc_entropy", "auroc_maxprob", "fpr95_mi", "error_mi_10", "error_coverage_10")
BY_IMAGE = "by_image"  # folder of scores per image


@dataclass(frozen=True)
class Place:
    """Where results and trained members go, the time limit, and the ranks."""

    out: Path
    checkpoints: Path
    deadline: Deadline
    mesh: Mesh

    @classmethod
    def open(cls, out: Path, checkpoints: Path | None, device: str, minutes: float | None, smoke: bool) -> "Place":
        """The place that the command line names, if it is writable and its results are readable.

        Smoke runs have a folder of their own.
        """
        out = out / "smoke" if smoke else out
        tune_process()
        torch.backends.cudnn.benchmark = True
        place = cls(out, checkpoints or out / "checkpoints", Deadline(minutes), start(device=device))
        if place.mesh.is_first:
            require_writable(out)
        records_in(place)
        curves_in(place)
        return place

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self.mesh.device

    def lacks(self, run: "Run") -> bool:
        """Whether metrics.json has no record of a run yet, as the first rank sees it."""
        return self.mesh.world.agreed(not is_in(records_in(self), run))

    def has_members(self, run: "Run") -> bool:
        """Whether a run's trained members are saved here, as the first rank sees it."""
        return self.mesh.world.agreed(has_members(self.checkpoints / run.name))

    def members_of(self, run: "Run") -> Trained:
        """A run's saved members."""
        folder = self.checkpoints / run.name
        return load_members(folder, run.recipe, seed=run.seed, device=self.device, mesh=self.mesh)

    def has_time(self) -> bool:
        """Whether another run may begin, by the first rank's clock."""
        return self.mesh.world.agreed(self.deadline.allows())

    def say(self, text: str) -> None:
        """Prints a line, once for all ranks."""
        if self.mesh.is_first:
            typer.echo(text)


@dataclass(frozen=True)
class PostHoc:
    """What is done to trained members before they are evaluated.

    Attributes:
        apply: from trained members and the data sets to what is evaluated.
        name: in tables; None where the training's own name says it.
    """

    apply: Callable[[Trained, Any], Trained]
    name: str | None = None


AS_TRAINED = PostHoc(lambda trained, sets: trained)


@dataclass(frozen=True)
class Run:
    """A recipe and a seed, with names for its networks."""

    network: str
    prior: str
    recipe: Recipe
    seed: int
    context: str | None = None  # None for none
    augmentation: str | None = None  # None for crops and flips
    control: str | None = None  # what the recipe's variant is
    post_hoc: PostHoc = AS_TRAINED

    @property
    def facts(self) -> dict[str, Any]:
        """What distinguishes this run from others, as in its record; α as in the paper."""
        method = Kind(self.recipe.method)
        functional = method is Kind.DEGP
        return {
            "network": self.network,
            "method": " + ".join(filter(None, (method.label, self.control, self.post_hoc.name))),
            "alpha": self.recipe.alpha if functional else None,
            "beta": self.recipe.beta,
            "prior": self.prior if functional else None,
            "temperature_start": self.recipe.temperature if functional else None,
            "members": self.recipe.members,
            "epochs": self.recipe.epochs,
            "seed": self.seed,
            "context": self.context,
            "augmentation": self.augmentation,
        }

    @property
    def name(self) -> str:
        """The facts of the training as the name of a folder: runs that differ post hoc share their members."""
        return name_of(replace(self, post_hoc=AS_TRAINED).facts)


@dataclass(frozen=True)
class Evaluation:
    """Scores of a run, its curves by name, and the scores of each test image, where they are kept."""

    scores: dict[str, Any]
    curves: dict[str, Line]
    by_image: dict[str, Float[Tensor, "N"]] = field(default_factory=dict)


Evaluate = Callable[[Trained, ImageSets], Evaluation]


def evaluate(trained: Trained, sets: ImageSets) -> Evaluation:
    """All scores, with the curves of training and of error against uncertainty."""
    assessment = assess(trained, sets)
    return Evaluation(assessment.scores, evaluate_curves(trained, assessment.error_curve))


def training_cost(trained: Trained) -> dict[str, float]:
    """`seconds` of training in all, and `seconds_per_epoch`, the median: compilation in the first does not count."""
    seconds = [0.0, *trained.history.column("seconds")]
    return {"seconds": seconds[-1], "seconds_per_epoch": median(after - before for before, after in pairwise(seconds))}


def evaluate_curves(trained: Trained, curve: ErrorUncertaintyCurve | None = None) -> dict[str, Line]:
    """The curves of training, and of error against uncertainty where there is one."""
    history = trained.history
    curves: dict[str, Line] = {
        "weight norm": (history.column("epoch"), history.column("validation/weight_norm")),
        "training loss": (history.column("epoch"), history.column("loss")),
    }
    if trained.likelihood.log_temperature.requires_grad:
        temperatures = history.column("validation/temperature")
        curves["log temperature"] = (history.column("epoch"), [math.log10(temperature) for temperature in temperatures])
    if curve is not None:
        curves["error by uncertainty"] = (curve.threshold.tolist(), curve.error.tolist())
    return curves


def run_experiment(
    place: Place,
    runs: Sequence[Run],
    sets: ImageSets,
    figures: Mapping[str, tuple[str, str]],
    score: Evaluate = evaluate,
) -> None:
    """The runs, their summary, and a figure per name of curves, with labels for x and y."""
    do_runs(place, runs, sets.to(place.device), score)
    with alone(place.out):
        write_summary(place)
        draw_curves(place, figures)


def do_runs(place: Place, runs: Sequence[Run], sets: ImageSets, score: Evaluate = evaluate) -> None:
    """Trains and evaluates the runs that are not in metrics.json yet, and saves after each.

    Several processes may do different runs in one folder at the same time.
    """
    for run in runs:
        if not place.lacks(run):
            continue
        place.say(f"{label(run.facts)}, {display(run.network)}, seed {run.seed}: {run.recipe.epochs} epochs")
        try:
            with _training_of(place, run):
                trained = trained_members(place, run, sets.train)
        except OutOfTime as reason:
            place.say(f"{reason}; the same command resumes")
            return
        evaluation = score(run.post_hoc.apply(trained, sets), sets)
        if place.mesh.is_first:
            _add(place, run, trained, evaluation)


@contextmanager
def _training_of(place: Place, run: Run) -> Iterator[None]:
    """A block for one process: another that needs the same members waits until they are trained."""
    if not place.mesh.is_first:
        yield  # the first rank waits for all
        return
    with alone(place.checkpoints / run.name):
        yield


def trained_members(place: Place, run: Run, data: Batch) -> Trained:
    """A run's saved members, trained and saved first where there are none: what is scored is what is saved."""
    if not place.has_members(run):
        if not place.has_time():
            raise OutOfTime("the time is up")
        folder = place.checkpoints / run.name
        unfinished = Checkpoints(folder / "training", every=20 * -(-len(data) // run.recipe.batch_size), keep=1)
        trained = train_in_time(run, data, place.deadline, checkpoints=unfinished, mesh=place.mesh)
        save_members(trained, folder)
        if place.mesh.is_first:
            shutil.rmtree(unfinished.folder)
    return place.members_of(run)


def train_in_time(run: Run, data: Batch, deadline: Deadline, **options: Any) -> Trained:
    """`train`, stopped after an epoch when another would end too late.

    Raises:
        OutOfTime: the deadline came before the last epoch.
    """

    def stop(history: History) -> bool:
        seconds = [0.0, *history.column("seconds")]
        return not deadline.allows(seconds[-1] - seconds[-2])

    trained = train(run.recipe, data, seed=run.seed, stop=stop, **options)
    if len(trained.history) < run.recipe.epochs:
        raise OutOfTime(f"the time was up after epoch {len(trained.history)} of {run.recipe.epochs}")
    return trained


def records_in(place: Place) -> Records:
    """The records of metrics.json; none where there is no such file."""
    return load_records(place.out)


def curves_in(place: Place) -> Records:
    """The curves of curves.json; none where there is no such file."""
    return load_rows(place.out / "curves.json", ("curve", "x", "y"))


def is_in(records: Records, run: Run) -> bool:
    """Whether one of the records is of this run."""
    return any(agrees(record, run.facts) for record in records)


def draw_curves(place: Place, figures: Mapping[str, tuple[str, str]]) -> None:
    """A figure per name of curves, with labels for x and y, and one panel per network."""
    if not place.mesh.is_first:
        return
    for name, (x_label, y_label) in figures.items():
        panels = _lines_in(place, name)
        if panels:
            figure = line_panels(panels, x_label=x_label, y_label=y_label)
            save_figure(figure, place.out / f"{name.replace(' ', '_')}.png")


def write_summary(place: Place, scores: Sequence[str] = (*SCORES, *OOD_SCORES)) -> None:
    """`summary.md`: mean ± standard error over the seeds, one row per network and method; also printed."""
    groups: dict[tuple[str, str, int], Records] = {}
    for record in records_in(place):
        groups.setdefault((display(record["network"]), display(label(record)), record["epochs"]), []).append(record)
    if not groups or not place.mesh.is_first:
        return
    columns = [score for score in scores if any(score in r for own in groups.values() for r in own)]
    rows = [
        [*map(str, key), str(len(own)), *(_cell([r[s] for r in own if r.get(s) is not None]) for s in columns)]
        for key, own in groups.items()
    ]
    write_table(place, ["network", "method", "epochs", "seeds", *map(display, columns)], rows)


def write_table(place: Place, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table as `summary.md`, also printed."""
    lines = [headings, ["---"] * len(headings), *rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    with new_file(place.out / "summary.md") as draft:
        draft.write_text(text, encoding="utf-8")
    typer.echo(text)


def _add(place: Place, run: Run, trained: Trained, evaluation: Evaluation) -> None:
    if evaluation.by_image:
        path = place.out / BY_IMAGE / f"{name_of(run.facts)}.safetensors"
        with new_file(path) as draft:
            write_tensors(
                draft, {name: values.float().cpu().contiguous() for name, values in evaluation.by_image.items()}
            )
    curves = [{"curve": name, "x": list(x), "y": list(y)} for name, (x, y) in evaluation.curves.items()]
    add_rows(place.out / "curves.json", run.facts, curves)
    scores = {**evaluation.scores, **training_cost(trained)}
    add_record(place.out, run.facts, scores, run.recipe.describe() | {"network": run.network})
    shown = [key for key in SCORES if key in evaluation.scores]
    typer.echo("  " + "  ".join(f"{display(key)} {evaluation.scores[key]:.4f}" for key in shown))


def _lines_in(place: Place, name: str) -> dict[str, dict[str, list[Line]]]:
    """Curves of one name: per network and number of epochs, per method, one line per seed."""
    curves = [curve for curve in curves_in(place) if curve["curve"] == name]
    alike = len({curve["epochs"] for curve in curves}) == 1
    panels: dict[str, dict[str, list[Line]]] = {}
    for curve in curves:
        y = [math.nan if value is None else value for value in curve["y"]]
        network = display(curve["network"])
        title = network if alike else f"{network}, {curve['epochs']} epochs"
        panels.setdefault(title, {}).setdefault(display(label(curve)), []).append((curve["x"], y))
    return panels


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    error = f" ± {stdev(values) / math.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{error}"
