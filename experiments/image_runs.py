"""What the experiments on images share at the command line: runs that are done once, go on, and end by the clock.

Under `torchrun` the ranks share out the members. All of them do everything, and the first alone writes and speaks.
"""

import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import typer
from torch import nn

from degp.distributed import Mesh, start
from degp.files import new_file, read_json, require_writable, write_json
from degp.imaging import (
    Deadline,
    ImageSets,
    OutOfTime,
    PriorNetworks,
    Recipe,
    Trained,
    assess,
    is_kept,
    keep,
    load_kept,
    train,
)
from degp.imaging.figures import Line, line_panels
from degp.imaging.recipe import METHODS
from degp.report import environment, load_results, save_results
from degp.report.figures import save_figure
from degp.report.results import require_fields
from degp.training import Checkpoints
from degp.typing import Batch

Records = list[dict[str, Any]]
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
USUAL_PRIORS = ("lenet", "lite resnet20")
FACTS = ("network", "method", "alpha", "beta", "prior", "members", "epochs", "seed")  # of every record and curve


@dataclass(frozen=True)
class Place:
    """Where results and trained members go, until when there is time, and who takes part."""

    out: Path
    checkpoints: Path
    deadline: Deadline
    mesh: Mesh

    @classmethod
    def open(cls, out: Path, checkpoints: Path | None, device: str, minutes: float | None, smoke: bool) -> "Place":
        """The place that the command line names, if it can be written and what is there can be read.

        What is only tried out stays apart.
        """
        out = out / "smoke" if smoke else out
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

    def keeps(self, run: "Run") -> bool:
        """Whether a run's trained members are here, as the first rank sees it."""
        return self.mesh.world.agreed(is_kept(self.checkpoints / run.name))

    def has_time(self) -> bool:
        """Whether another run may begin, by the first rank's clock."""
        return self.mesh.world.agreed(self.deadline.allows())

    def say(self, text: str) -> None:
        """A line on the screen, once for all ranks."""
        if self.mesh.is_first:
            typer.echo(text)


@dataclass(frozen=True)
class Run:
    """A recipe and a seed, with words for its networks."""

    network: str
    prior: str
    recipe: Recipe
    seed: int

    @property
    def facts(self) -> dict[str, Any]:
        """What tells this run from others, as its record has it."""
        functional = self.recipe.method == "degp"
        return {
            "network": self.network,
            "method": METHODS[self.recipe.method],
            "alpha": self.recipe.alpha if functional else None,
            "beta": self.recipe.beta,
            "prior": self.prior if functional else None,
            "temperature_start": self.recipe.temperature if functional else None,
            "members": self.recipe.members,
            "epochs": self.recipe.epochs,
            "seed": self.seed,
        }

    @property
    def name(self) -> str:
        """The facts as the name of a folder."""
        words = [f"{key}-{value}" for key, value in self.facts.items() if value is not None]
        return re.sub(r"[^\w.-]+", "-", "_".join(words))


@dataclass(frozen=True)
class Findings:
    """Scores of a run, and its curves by name."""

    scores: dict[str, Any]
    curves: dict[str, Line]


Judge = Callable[[Trained, ImageSets], Findings]


def do_runs(place: Place, runs: Sequence[Run], sets: ImageSets, judge: Judge) -> None:
    """Trains and judges the runs that are not in metrics.json yet, and saves after each."""
    for run in runs:
        if not place.lacks(run):
            continue
        place.say(f"{label(run.facts)}, {run.network}, seed {run.seed}: {run.recipe.epochs} epochs")
        try:
            trained = members_of(place, run, sets.train)
        except OutOfTime as reason:
            place.say(f"{reason}; the same command goes on from there")
            return
        findings = judge(trained, sets)
        if place.mesh.is_first:
            _add(place, run, trained, findings)


def members_of(place: Place, run: Run, data: Batch) -> Trained:
    """A run's members from the checkpoint folder, trained first where they are not there; what is scored is kept."""
    folder, mesh = place.checkpoints / run.name, place.mesh
    if not place.keeps(run):
        if not place.has_time():
            raise OutOfTime("the time is up")
        unfinished = Checkpoints(folder / "training", every=20 * -(-len(data) // run.recipe.batch_size), keep=1)
        trained = train(run.recipe, data, seed=run.seed, checkpoints=unfinished, deadline=place.deadline, mesh=mesh)
        keep(trained, folder)
        if mesh.is_first:
            shutil.rmtree(unfinished.folder)
    return load_kept(folder, run.recipe, seed=run.seed, device=place.device, mesh=mesh)


def judged(trained: Trained, sets: ImageSets) -> Findings:
    """All scores, with the curves of training and of error against uncertainty."""
    assessment = assess(trained, sets)
    epochs = trained.history.column("epoch")
    curves: dict[str, Line] = {
        "weight norm": (epochs, trained.history.column("validation/weight_norm")),
        "training loss": (epochs, trained.history.column("loss")),
    }
    if trained.recipe.method == "degp":
        temperatures = trained.history.column("validation/temperature")
        curves["log temperature"] = (epochs, [math.log10(temperature) for temperature in temperatures])
    curve = assessment.error_curve
    if curve is not None:
        curves["error by uncertainty"] = (curve.threshold.tolist(), curve.error.tolist())
    return Findings(assessment.scores, curves)


def records_in(place: Place) -> Records:
    """What metrics.json has, if it is there."""
    return load_results(place.out, fields=FACTS)["records"] if (place.out / "metrics.json").exists() else []


def curves_in(place: Place) -> Records:
    """What curves.json has, if it is there."""
    path = place.out / "curves.json"
    curves = read_json(path) if path.exists() else []
    require_fields(path, curves, (*FACTS, "curve", "x", "y"))
    return curves


def known(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The values with None for NaN and infinity, which JSON does not have."""
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}


def is_in(records: Records, run: Run) -> bool:
    """Whether one of the records is of this run."""
    return any(all(record.get(key) == value for key, value in run.facts.items()) for record in records)


def draw_curves(place: Place, axes: Mapping[str, tuple[str, str]]) -> None:
    """A figure for each name of curves there are, with labels for x and y; a panel a network."""
    if not place.mesh.is_first:
        return
    for name, (x_label, y_label) in axes.items():
        panels = _lines_in(place, name)
        if panels:
            figure = line_panels(panels, x_label=x_label, y_label=y_label)
            save_figure(figure, place.out / f"{name.replace(' ', '_')}.png")


def label(facts: Mapping[str, Any]) -> str:
    """The method, and for DE-GP its weights, with its prior and where its temperature starts if not as usual."""
    if facts["method"] != "DE-GP":
        return facts["method"]
    prior = "" if facts["prior"] in USUAL_PRIORS else f", prior {facts['prior']}"
    temperature = facts.get("temperature_start", 1)
    start = "" if temperature == 1 else f", τ from {temperature:g}"
    return f"DE-GP α = {facts['alpha']:g}, β = {facts['beta']:g}{prior}{start}"


def write_summary(place: Place, scores: Sequence[str] = (*SCORES, *OOD_SCORES)) -> None:
    """`summary.md`: mean ± standard error over the seeds, a row a network and method; also on the screen."""
    groups: dict[tuple[str, str, int], Records] = {}
    for record in records_in(place):
        groups.setdefault((record["network"], label(record), record["epochs"]), []).append(record)
    if not groups or not place.mesh.is_first:
        return
    columns = [score for score in scores if any(score in r for own in groups.values() for r in own)]
    lines = [f"| network | method | epochs | seeds | {' | '.join(columns)} |", "|---" * (len(columns) + 4) + "|"]
    for (network, method, epochs), own in groups.items():
        cells = [_cell([r[score] for r in own if r.get(score) is not None]) for score in columns]
        lines.append(f"| {network} | {method} | {epochs} | {len(own)} | {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    with new_file(place.out / "summary.md") as draft:
        draft.write_text(text, encoding="utf-8")
    typer.echo(text)


def tiny(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """The smallest network with all kinds of layers, to try an experiment out."""
    return nn.Sequential(nn.BatchNorm2d(channels), *tiny_features(channels), nn.Linear(16, classes))


def tiny_features(channels: int = 3, layers: int = 1) -> nn.Sequential:
    """The same without BatchNorm and read-out, and of as many layers as are wanted."""
    deeper = [part for _ in range(layers - 1) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(channels, 4, 3, 4), nn.ReLU(), *deeper, nn.AdaptiveAvgPool2d(2), nn.Flatten())


def tiny_prior(prior: PriorNetworks, channels: int = 3) -> PriorNetworks:
    """An eighth of the layers and a tenth of the draws, and a few: priors that differ still do."""
    with torch.device("meta"):
        layers = sum(isinstance(module, nn.Conv2d) for module in prior.make_features().modules())
    features = partial(tiny_features, channels, 1 + layers // 8)
    return replace(prior, make_features=features, num_draws=2 + prior.num_draws // 10)


def tried_out(runs: Sequence[Run], channels: int = 3, classes: int = 10) -> list[Run]:
    """The runs of the first seed with tiny networks, three members and two epochs."""

    def small(run: Run) -> Run:
        recipe = replace(
            run.recipe,
            make_network=partial(tiny, channels, classes),
            prior=tiny_prior(run.recipe.prior, channels),
            members=3,
            epochs=2,
            batch_size=16,
        )
        return replace(run, network="tiny", recipe=recipe)

    return [small(run) for run in runs if run.seed == runs[0].seed]


def made_up(channels: int = 3, size: int = 32, classes: int = 10) -> ImageSets:
    """Images of noise, brighter from class to class; the foreign ones are all noise."""
    generator = torch.Generator().manual_seed(0)

    def images(number: int, contrast: float) -> Batch:
        labels = torch.randint(classes, (number,), generator=generator)
        noise = torch.rand(number, channels, size, size, generator=generator)
        levels = 100 * noise + contrast * 155 * labels.view(-1, 1, 1, 1) / classes
        return Batch(levels.to(torch.uint8), labels)

    return ImageSets(images(64, 1.0), images(32, 1.0), images(32, 1.0), images(32, 0.0))


def _add(place: Place, run: Run, trained: Trained, findings: Findings) -> None:
    where = {key: environment()[key] for key in ("commit", "device")}
    record = {**run.facts, **known(findings.scores), "seconds": trained.history.last["seconds"], **where}
    curves = [curve for curve in curves_in(place) if not is_in([curve], run)] + [
        {**run.facts, "curve": name, "x": list(x), "y": list(known(dict(enumerate(y))).values())}
        for name, (x, y) in findings.curves.items()
    ]
    write_json(place.out / "curves.json", curves)
    config = run.recipe.describe() | {"network": run.network}
    save_results(place.out, config=config, records=[*records_in(place), record])
    typer.echo("  " + "  ".join(f"{key} {findings.scores[key]:.4f}" for key in SCORES))


def _lines_in(place: Place, name: str) -> dict[str, dict[str, list[Line]]]:
    """Curves of one name: for each network and number of epochs, for each method, one line a seed."""
    curves = [curve for curve in curves_in(place) if curve["curve"] == name]
    alike = len({curve["epochs"] for curve in curves}) == 1
    panels: dict[str, dict[str, list[Line]]] = {}
    for curve in curves:
        y = [math.nan if value is None else value for value in curve["y"]]
        title = curve["network"] if alike else f"{curve['network']}, {curve['epochs']} epochs"
        panels.setdefault(title, {}).setdefault(label(curve), []).append((curve["x"], y))
    return panels


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    error = f" ± {stdev(values) / math.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{error}"
