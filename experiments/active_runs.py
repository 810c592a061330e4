"""One run of active learning: a model on the labels bought so far, its scores, and the next labels."""

import math
import time
from dataclasses import asdict

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import Ensemble, Gaussian, PointwiseAverage, fit, metrics, objectives, predict
from degp.active import beliefs
from degp.botorch.training import Trained, Training, train
from degp.data import Standardiser, uci
from degp.nets import mlp
from degp.priors.evidence import most_likely_scales
from degp.typing import Batch
from degp.uncertainty import RegressionPredictive
from experiments.active import Config, Networks, Records, Strategy


def bought(table: Batch, strategy: Strategy, seed: int, config: Config) -> Records:
    """RMSE and NLL on test rows after each purchase; the first labels are the same for all strategies of a seed."""
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    test, pool = order.split([min(len(table) // 4, config.test), len(table) - min(len(table) // 4, config.test)])
    pool = pool[: config.pool]
    # two standard deviations to either side fill the unit cube, for which the prior of the lengths is made
    inputs = 0.5 + Standardiser.fit(table.inputs[pool]).apply(table.inputs.double()) / 4
    labelled = torch.arange(len(pool)) < config.start
    generator = torch.Generator().manual_seed(seed)
    points: Records = []
    while True:
        start = time.perf_counter()
        rows, open_rows = pool[labelled], (~labelled).nonzero().flatten()
        scale = Standardiser.fit(table.targets[rows])
        data = Batch(inputs[rows], scale.apply(table.targets[rows].double()))
        model = train(data, Training(**asdict(config.training)), generator=generator)
        points.append({"labels": len(rows), **_scores(model, inputs[test], table.targets[test], scale, config)})
        if len(rows) < config.stop:
            chosen = _choice(model, data, inputs[pool[open_rows]], strategy, config, generator)
            labelled[open_rows[chosen]] = True
        points[-1]["seconds"] = time.perf_counter() - start
        if len(rows) >= config.stop:
            return points


def _scores(
    model: Trained, inputs: Float[Tensor, "N D"], targets: Float[Tensor, "N 1"], scale: Standardiser, config: Config
) -> dict[str, float]:
    """In original units."""
    likelihood, diagonal = Gaussian(model.prior.noise_variance), PointwiseAverage(config.training.epsilon)
    predictive = predict(model.ensemble, inputs, likelihood, diagonal=diagonal)
    assert isinstance(predictive, RegressionPredictive)
    mean, std = scale.undo(predictive.mean), scale.undo_std(predictive.total.sqrt())
    y = targets.double()
    return {"rmse": metrics.rmse(mean, y), "nll": metrics.gaussian_nll(mean, std.square(), y)}


def _choice(
    model: Trained,
    data: Batch,
    candidates: Float[Tensor, "N D"],
    strategy: Strategy,
    config: Config,
    generator: torch.Generator,
) -> Int[Tensor, "K"]:
    if strategy.rule is None:
        return torch.randperm(len(candidates), generator=generator)[: config.batch]
    likelihood, diagonal = Gaussian(model.prior.noise_variance), PointwiseAverage(config.training.epsilon)
    if strategy.believer == "DE":
        scale = Standardiser.fit(candidates)  # as ReLU networks like it
        ensemble = _networks(Batch(scale.apply(data.inputs), data.targets), config.networks, generator)
        known = beliefs(ensemble, scale.apply(candidates), likelihood, diagonal=diagonal)
    else:
        known = beliefs(model.ensemble, candidates, likelihood, diagonal=diagonal)
    return strategy.rule(known, config.batch)


def _networks(data: Batch, networks: Networks, generator: torch.Generator) -> Ensemble:
    """A deep ensemble; its noise is one for all rows, and so does not change what it learns."""
    scales = most_likely_scales(data.inputs, data.targets, len(networks.widths), generator=generator)
    weights = scales.weight_prior()
    members = [mlp(data.inputs.shape[1], networks.widths, 1) for _ in range(networks.members)]
    ensemble = Ensemble([weights.initialise(member, generator=generator) for member in members])
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=networks.learning_rate)
    fit(
        ensemble,
        data.to(dtype=torch.float32),
        objectives.de(Gaussian(scales.noise_variance)),
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
