"""Active learning: labels bought by joint information, by single information, by DE's disagreement, or at random.

A model is trained anew on the labels bought so far, without validation rows: at α = 1 on full batches DE-GP is the
posterior of its prior, whose scales and noise the marginal likelihood sets, and the pool's own rows are the measurement
points. DE has the same networks, start, noise and steps.
"""

import math
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from jaxtyping import Float, Int
from torch import Tensor

from degp import Ensemble, Gaussian, PointwiseAverage, fit, metrics, objectives, predict
from degp.active import Rule, beliefs, joint_information, single_information, variance
from degp.data import Standardiser, uci
from degp.imaging import Deadline
from degp.nets import mlp
from degp.priors.evidence import most_likely_scales
from degp.report import save_results
from degp.typing import Batch
from experiments.active_summary import write_summary
from experiments.image_runs import Minutes
from experiments.independent_runs import Jobs, earlier_records, finished

Records = list[dict[str, Any]]
SETS = ("boston", "concrete", "energy", "power", "kin8nm")


@dataclass(frozen=True)
class Strategy:
    """What is trained, and by which rule labels are bought; None buys at random."""

    objective: str
    rule: Rule | None


STRATEGIES = {
    "joint information": Strategy("DE-GP", joint_information),
    "single information": Strategy("DE-GP", single_information),
    "random": Strategy("DE-GP", None),
    "DE, disagreement": Strategy("DE", variance),
}


@dataclass(frozen=True)
class Config:
    """What all runs share."""

    start: int = 20
    batch: int = 20
    stop: int = 200
    pool: int = 2000  # rows at most
    test: int = 500  # rows at most, and a quarter of the set
    members: int = 20
    widths: tuple[int, ...] = (50, 50)
    steps: int = 250
    learning_rate: float = 0.01
    extra_points: int = 32
    epsilon: float = 0.05


@dataclass(frozen=True)
class PoolRows:
    """`count` rows of the pool, drawn anew at each step: where the posterior should hold is where it will be asked."""

    inputs: Float[Tensor, "N D"]
    count: int

    def __call__(
        self, inputs: Float[Tensor, "B D"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "K D"]:
        return self.inputs[torch.randint(len(self.inputs), (self.count,), generator=generator)]


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json and the figure.")] = Path(
        "experiments/results/active"
    ),
    sets: Annotated[str, typer.Option(help="Names of UCI sets, separated by commas.")] = ",".join(SETS),
    strategies: Annotated[str, typer.Option(help="Names, separated by ';'.")] = ";".join(STRATEGIES),
    seeds: int = 5,
    first_seed: Annotated[int, typer.Option(help="Seeds from 100 on are for trying things out.")] = 0,
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="A made-up table and three labels, into OUT/smoke: does it run?")] = False,
) -> None:
    """All strategies on all sets; what is in metrics.json already is not run again."""
    config = Config(3, 3, 6, members=3, widths=(4,), steps=2, extra_points=4) if smoke else Config()
    if smoke:
        out, sets, seeds = out / "smoke", "waves", 1
    records = earlier_records(out, asdict(config))
    done = {(r["seed"], r["dataset"], r["strategy"]) for r in records}
    known = range(first_seed, first_seed + seeds), sets.split(","), strategies.split(";")
    tasks = [(*run, config) for run in product(*known) if run not in done]
    with closing(finished(_run, tasks, jobs=jobs, deadline=Deadline(minutes))) as runs:
        for (seed, name, strategy, _), points in runs:
            facts = {"dataset": name, "strategy": strategy, "seed": seed}
            records = sorted([*records, *(facts | point for point in points)], key=_place)
            save_results(out, config=asdict(config), records=records)
            typer.echo(f"{name:10} {strategy:20} seed {seed}: RMSE {points[-1]['rmse']:.3f} with all labels")
    if records:
        write_summary(records, out)


def _run(seed: int, name: str, strategy: str, config: Config) -> Records:
    return bought(_table(name), STRATEGIES[strategy], seed, config)


def _place(record: dict[str, Any]) -> tuple[int, int, str, int]:
    """Of a run in metrics.json, sets that are not ours last; its purchases stay as they are."""
    name, strategy = record["dataset"], record["strategy"]
    return record["seed"], (*SETS, name).index(name), name, list(STRATEGIES).index(strategy)


def bought(table: Batch, strategy: Strategy, seed: int, config: Config) -> Records:
    """RMSE and NLL on test rows after each purchase; the first labels are the same for all strategies of a seed."""
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    test, pool = order.split([min(len(table) // 4, config.test), len(table) - min(len(table) // 4, config.test)])
    pool = pool[: config.pool]
    inputs = Standardiser.fit(table.inputs[pool]).apply(table.inputs)
    labelled = torch.arange(len(pool)) < config.start
    generator = torch.Generator().manual_seed(seed)
    points: Records = []
    while True:
        start = time.perf_counter()
        rows = pool[labelled]
        scale = Standardiser.fit(table.targets[rows])
        model = _train(Batch(inputs[rows], scale.apply(table.targets[rows])), inputs[pool], strategy, config, generator)
        points.append({"labels": len(rows), **_scores(model, inputs[test], table.targets[test], scale, config)})
        if len(rows) < config.stop:
            open_rows = (~labelled).nonzero().flatten()
            labelled[open_rows[_choice(model, inputs[pool[open_rows]], strategy, config, generator)]] = True
        points[-1]["seconds"] = time.perf_counter() - start
        if len(rows) >= config.stop:
            return points


Model = tuple[Ensemble, Gaussian]


def _train(
    data: Batch, pool: Float[Tensor, "N D"], strategy: Strategy, config: Config, generator: torch.Generator
) -> Model:
    scales = most_likely_scales(data.inputs, data.targets, len(config.widths), generator=generator)
    weights, likelihood = scales.weight_prior(), Gaussian(scales.noise_variance)
    networks = [mlp(data.inputs.shape[1], config.widths, 1) for _ in range(config.members)]
    ensemble = Ensemble([weights.initialise(network, generator=generator) for network in networks])
    if strategy.objective == "DE":
        objective: objectives.Objective = objectives.de(likelihood)
    else:
        measurement = PoolRows(pool, config.extra_points)
        objective = objectives.degp(likelihood, scales.nngp(), measurement=measurement, epsilon=config.epsilon)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=config.learning_rate)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    fit(
        ensemble,
        data,
        objective,
        epochs=config.steps,
        optimizer=optimizer,
        scheduler=cosine,
        generator=generator,
        progress=False,
    )
    return ensemble, likelihood


def _scores(
    model: Model, inputs: Float[Tensor, "N D"], targets: Float[Tensor, "N 1"], scale: Standardiser, config: Config
) -> dict[str, float]:
    """In original units."""
    predictive = predict(model[0], inputs, model[1], diagonal=PointwiseAverage(config.epsilon))
    mean, std = scale.undo(predictive.mean.double()), scale.undo_std(predictive.total.double().sqrt())
    y = targets.double()
    return {"rmse": metrics.rmse(mean, y), "nll": metrics.gaussian_nll(mean, std.square(), y)}


def _choice(
    model: Model, inputs: Float[Tensor, "N D"], strategy: Strategy, config: Config, generator: torch.Generator
) -> Int[Tensor, "K"]:
    if strategy.rule is None:
        return torch.randperm(len(inputs), generator=generator)[: config.batch]
    known = beliefs(model[0], inputs, model[1], diagonal=PointwiseAverage(config.epsilon))
    return strategy.rule(known, config.batch)


def _table(name: str) -> Batch:
    """A UCI set, or forty rows of a wave for a smoke test."""
    if name != "waves":
        return uci(name)
    x = torch.linspace(-2, 2, 40)[:, None]
    return Batch(x, torch.sin(math.pi * x))
