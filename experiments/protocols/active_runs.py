"""One run of active learning: a model on the labels so far, its scores, and the next labels."""

import math
import time

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import Ensemble, Gaussian, fit, methods, metrics, predict
from degp.data import Standardiser
from degp.decisions.active import beliefs
from degp.decisions.botorch import FitConfig
from degp.decisions.botorch.fitting import FittedEnsemble, fit_ensemble
from degp.methods import Kind
from degp.nets import mlp
from degp.predictive import RegressionPredictive
from degp.priors.evidence import most_likely_scales
from degp.typing import Batch
from experiments.active import Config, Networks, Readouts, Records, Strategy
from experiments.data import uci

__all__ = ["acquire", "table"]


def acquire(table: Batch, strategy: Strategy, seed: int, config: Config) -> Records:
    """RMSE and NLL on test rows after each acquisition; the first labels are common to all strategies of a seed."""
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    num_test = min(len(table) // 4, config.test)
    test, pool = order[:num_test], order[num_test:][: config.pool]
    # two standard deviations to either side fill the unit cube, for which the prior of the length scales is made
    inputs = 0.5 + Standardiser.fit(table.inputs[pool]).apply(table.inputs.double()) / 4
    labelled = torch.arange(len(pool)) < config.start
    generator = torch.Generator().manual_seed(seed)
    points: Records = []
    while True:
        start = time.perf_counter()
        rows, open_rows = pool[labelled], (~labelled).nonzero().flatten()
        scale = Standardiser.fit(table.targets[rows])
        data = Batch(inputs[rows], scale.apply(table.targets[rows].double()))
        model = fit_ensemble(data, _fit_config(config.training), generator=generator)
        points.append({"labels": len(rows), **_scores(model, inputs[test], table.targets[test], scale)})
        if len(rows) < config.stop:
            chosen = _choice(model, data, inputs[pool[open_rows]], strategy, config, generator)
            labelled[open_rows[chosen]] = True
        points[-1]["seconds"] = time.perf_counter() - start
        if len(rows) >= config.stop:
            return points


def _fit_config(own: Readouts) -> FitConfig:
    return FitConfig(own.members, own.units, own.extra_points, own.steps, own.learning_rate, own.epsilon)


def _scores(
    model: FittedEnsemble, inputs: Float[Tensor, "N D"], targets: Float[Tensor, "N 1"], scale: Standardiser
) -> dict[str, float]:
    """In original units."""
    predictive = predict(model.ensemble, inputs, model.method)
    assert isinstance(predictive, RegressionPredictive)
    mean, std = scale.undo(predictive.mean), scale.undo_std(predictive.total.sqrt())
    y = targets.double()
    return {"rmse": metrics.rmse(mean, y), "nll": metrics.gaussian_nll(mean, std.square(), y)}


def _choice(
    model: FittedEnsemble,
    data: Batch,
    candidates: Float[Tensor, "N D"],
    strategy: Strategy,
    config: Config,
    generator: torch.Generator,
) -> Int[Tensor, "K"]:
    if strategy.rule is None:
        return torch.randperm(len(candidates), generator=generator)[: config.batch]
    if strategy.method is Kind.DE:
        scale = Standardiser.fit(candidates)  # the unit cube is for the other prior
        ensemble = _networks(Batch(scale.apply(data.inputs), data.targets), config.networks, generator)
        known = beliefs(ensemble, scale.apply(candidates), methods.de(model.method.likelihood))
    else:
        known = beliefs(model.ensemble, candidates, model.method)
    return strategy.rule(known, config.batch)


def _networks(data: Batch, networks: Networks, generator: torch.Generator) -> Ensemble:
    """A deep ensemble; its noise is the same for all rows and does not change the optimum."""
    scales = most_likely_scales(data.inputs, data.targets, len(networks.widths), generator=generator)
    weights = scales.weight_prior()
    members = [mlp(data.inputs.shape[1], networks.widths, 1) for _ in range(networks.members)]
    ensemble = Ensemble([weights.initialise(member, generator=generator) for member in members])
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=networks.learning_rate)
    fit(
        ensemble,
        data.to(dtype=torch.float32),
        methods.de(Gaussian(scales.noise_variance)),
        epochs=networks.steps,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, networks.steps),
        generator=generator,
        progress=False,
    )
    return ensemble.double()


def table(name: str) -> Batch:
    """A UCI set, or forty rows of a wave for a smoke test."""
    if name != "waves":
        return uci(name)
    x = torch.linspace(-2, 2, 40)[:, None]
    return Batch(x, torch.sin(math.pi * x))
