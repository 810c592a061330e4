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
from degp.demo import SineRun, Trained, distance_to_exact, exact_band, exact_posterior, train
from degp.files import require_writable
from degp.report import save_results
from degp.report.figures import Band, band_grid, bars, save_figure

DEPTHS: tuple[tuple[int, ...], ...] = ((), (64,), (128, 128), (256, 256, 256))
RUNS = (("DE", 0), ("rDE", 0), ("DE-GP", 8), ("DE-GP", 0))  # method, extra measurement points a step
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


def _run(method: str, extra_points: int, widths: tuple[int, ...], config: Config) -> Trained:
    typer.echo(f"{method:5}  {extra_points} extra points  hidden layers {list(widths)}")
    run = SineRun(
        method, widths, extra_points, members=config.members, steps=config.steps, learning_rate=config.learning_rate
    )
    return train(run, generator=torch.Generator().manual_seed(config.seed))


def _record(trained: Trained) -> dict[str, Any]:
    run = trained.run
    return {
        "hidden_layers": len(run.widths),
        "method": run.method,
        "extra_points": run.extra_points,
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


def _figures(runs: list[Trained], out: Path) -> None:
    data = sine().inputs[:, 0], sine().targets[:, 0]
    bands = {(trained.run.method, trained.run.extra_points, trained.run.widths): trained for trained in runs}

    def row(name: str, method: str, extra: int) -> dict[tuple[str, str], Band]:
        return {(name, _title(widths)): bands[method, extra, widths].band(FIGURE_INPUTS) for widths in DEPTHS}

    exact = {("NN-GP", _title(widths)): exact_band(widths, FIGURE_INPUTS) for widths in DEPTHS}
    save_figure(band_grid(row("DE", "DE", 0) | row("rDE", "rDE", 0) | exact, data), out / "figure1.png")
    save_figure(band_grid(row("DE-GP", "DE-GP", 8) | exact, data), out / "figure2.png")
    save_figure(band_grid(row("DE-GP", "DE-GP", 0) | exact, data), out / "without_extra_points.png")
    seconds = {name: bands[name, extra, DEPTHS[-1]].seconds for name, extra in (("DE", 0), ("rDE", 0), ("DE-GP", 8))}
    figure = bars(seconds, label="seconds of training", title="3 hidden layers of 256")
    save_figure(figure, out / "training_speed.png")


def _title(widths: tuple[int, ...]) -> str:
    return f"{len(widths)} hidden layer{'s' * (len(widths) != 1)}"


def _table(records: list[dict[str, Any]]) -> Table:
    table = Table(title="Distance to the exact posterior on [−2, 2]")
    for heading in records[0]:
        table.add_column(heading.replace("_", " "), justify="right")
    for record in records:
        table.add_row(*(f"{value:.4f}" if isinstance(value, float) else str(value) for value in record.values()))
    return table
