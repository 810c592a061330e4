"""One-dimensional regression: DE, rDE, DE-GP and NN-GP on eight points (the paper's Figures 1, 2 and 7)."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from degp.data import sine
from degp.demo import SineResult, SineRun, distance_to_exact, exact_band, exact_posterior, train
from degp.methods import Kind
from degp.report import save_results
from degp.report.figures import Band, band_grid, save_figure
from degp.runtime.files import require_writable

DEPTHS: tuple[tuple[int, ...], ...] = ((), (64,), (128, 128), (256, 256, 256))
RUNS = ((Kind.DE, 0), (Kind.RDE, 0), (Kind.DEGP, 8), (Kind.DEGP, 0))  # method, measurement points per step
FIGURE_INPUTS = torch.linspace(-3, 3, 301)[:, None]


@dataclass(frozen=True)
class Config:
    """What the whole experiment shares."""

    members: int = 50
    steps: int = 1000
    learning_rate: float = 1e-3
    seed: int = 0


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path("experiments/results/toy"),
    seed: int = 0,
    smoke: Annotated[bool, typer.Option(help="A few steps of small ensembles: does it run?")] = False,
) -> None:
    """DE, rDE and DE-GP with 0 to 3 hidden layers against the exact NN-GP posterior."""
    config = Config(members=5, steps=3, seed=seed) if smoke else Config(seed=seed)
    require_writable(out)
    runs = [_run(method, extra, widths, config) for widths in DEPTHS for method, extra in RUNS]
    records = [_record(trained) for trained in runs] + [_exact_record(widths) for widths in DEPTHS]
    save_results(out, config=asdict(config), records=records)
    _figures(runs, out)
    Console().print(_table(records))


def _run(method: Kind, points: int, widths: tuple[int, ...], config: Config) -> SineResult:
    typer.echo(f"{method.label:5}  {points} measurement points  hidden layers {list(widths)}")
    run = SineRun(
        method, widths, points, members=config.members, steps=config.steps, learning_rate=config.learning_rate
    )
    return train(run, generator=torch.Generator().manual_seed(config.seed))


def _record(trained: SineResult) -> dict[str, Any]:
    run = trained.run
    return {
        "hidden_layers": len(run.widths),
        "method": run.method.label,
        "extra_points": run.measurement_points,
        **distance_to_exact(trained),
        "seconds": trained.seconds,
    }


def _exact_record(widths: tuple[int, ...]) -> dict[str, Any]:
    start = time.perf_counter()
    exact = exact_posterior(widths)
    exact_band(widths, FIGURE_INPUTS)
    return {
        "hidden_layers": len(widths),
        "method": "NN-GP",
        "extra_points": 0,
        "mean_abs_log_std_ratio": 0.0,
        "rms_mean_error": 0.0,
        "seconds": time.perf_counter() - start,
        "log_marginal_likelihood": exact.log_marginal_likelihood().item(),
    }


def _figures(runs: list[SineResult], out: Path) -> None:
    data = sine().inputs[:, 0], sine().targets[:, 0]
    results = {(r.run.method, r.run.measurement_points, r.run.widths): r for r in runs}

    def row(method: Kind, points: int) -> dict[tuple[str, str], Band]:
        bands = {widths: results[method, points, widths].band(FIGURE_INPUTS) for widths in DEPTHS}
        return {(method.label, _title(widths)): band for widths, band in bands.items()}

    exact = {("NN-GP", _title(widths)): exact_band(widths, FIGURE_INPUTS) for widths in DEPTHS}
    save_figure(band_grid(row(Kind.DE, 0) | row(Kind.RDE, 0) | exact, data), out / "figure1.png")
    save_figure(band_grid(row(Kind.DEGP, 8) | exact, data), out / "figure2.png")
    save_figure(band_grid(row(Kind.DEGP, 0) | exact, data), out / "without_measurement_points.png")


def _title(widths: tuple[int, ...]) -> str:
    return f"{len(widths)} hidden layer{'s' * (len(widths) != 1)}"


def _table(records: list[dict[str, Any]]) -> Table:
    table = Table(title="Distance to the exact posterior on [−2, 2]")
    for heading in records[0]:
        table.add_column(heading.replace("_", " "), justify="right")
    for record in records:
        table.add_row(*(f"{value:.4f}" if isinstance(value, float) else str(value) for value in record.values()))
    return table
