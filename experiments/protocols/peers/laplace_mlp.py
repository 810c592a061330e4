"""laplace-torch on a multilayer perceptron."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.protocols.peers.conformal import held_out
from experiments.protocols.peers.contract import Normal, Prediction, Predictor, Probabilities, Task
from experiments.protocols.peers.encoding import one_hot, with_missing_category
from experiments.protocols.peers.training import BATCH, VALIDATION, Scale, floats, train

__all__ = ["laplace"]


def laplace(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """`Laplace(model, likelihood)` as it comes, last layer and Kronecker factors, on an MLP of 2 × 64 tanh units.

    Prior precision and noise maximise the marginal likelihood; classes by the probit approximation.
    """
    from laplace import Laplace

    torch.manual_seed(task.seed)
    encoder, scale = one_hot(features, task.categorical), Scale(targets, task)
    inputs = floats(encoder.transform(with_missing_category(features, task.categorical)))
    rows, validation = held_out(len(targets), VALIDATION, task.seed)
    model = _trained_mlp(*((inputs[part], scale.apply(targets[part])) for part in (rows, validation)), task)
    posterior = Laplace(model, "regression" if task.num_classes is None else "classification")
    posterior.fit(DataLoader(TensorDataset(inputs[rows], scale.apply(targets[rows])), BATCH))
    _maximise_marginal_likelihood(posterior, task)

    def predict(new: pd.DataFrame) -> Prediction:
        points = floats(encoder.transform(with_missing_category(new, task.categorical)))
        if task.num_classes is not None:
            return Probabilities(posterior(points, link_approx="probit").detach().double().numpy())
        mean, variance = (part.detach().double().flatten() for part in posterior(points))
        std = (variance + posterior.sigma_noise.item() ** 2).sqrt()
        return Normal(scale.undo(mean.numpy()), scale.std * std.numpy())

    return predict


def _trained_mlp(known: Any, validation: Any, task: Task) -> nn.Module:
    inputs, truth = known
    model = nn.Sequential(
        nn.Linear(inputs.shape[1], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, task.num_classes or 1)
    )
    loss = nn.functional.mse_loss if task.num_classes is None else nn.functional.cross_entropy
    train(
        model,
        torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3),
        lambda rows: loss(model(inputs[rows]), truth[rows]),
        lambda: loss(model(validation[0]), validation[1]).item(),
        num_rows=len(inputs),
        patience=30,
    )
    return model


def _maximise_marginal_likelihood(posterior: Any, task: Task) -> None:
    """By Adam, as in the package's regression example; for classes by its own search."""
    if task.num_classes is not None:
        posterior.optimize_prior_precision(method="marglik")
        return
    log_prior, log_noise = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([log_prior, log_noise], lr=1e-1)
    for _ in range(200):
        optimizer.zero_grad()
        (-posterior.log_marginal_likelihood(log_prior.exp(), log_noise.exp())).sum().backward()
        optimizer.step()
