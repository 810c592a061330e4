"""TabM (Gorishniy et al., 2025), set up as in the example of its package."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments.protocols.peers.conformal import around_mean, held_out, std_floor
from experiments.protocols.peers.contract import Predictor, Probabilities, Task
from experiments.protocols.peers.encoding import category_codes, numeric_columns
from experiments.protocols.peers.training import VALIDATION, Scale, floats, train

__all__ = ["tabm"]

Inputs = dict[str, Tensor]  # x_num and x_cat, as far as the table has them


def tabm(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """Piecewise-linear embeddings, 32 members, AdamW; stopped early by the mean of the members.

    Intervals are split-conformal around that mean, with the rows for early stopping.
    """
    torch.manual_seed(task.seed)
    scale = Scale(targets, task)
    rows, validation = held_out(len(targets), VALIDATION, task.seed)
    encode = _encoding(features.iloc[rows], task)
    model = _model(encode(features.iloc[rows]), features, task)
    parts = [(encode(features.iloc[part]), scale.apply(targets[part])) for part in (rows, validation)]
    _train(model, *parts, task)
    if task.num_classes is not None:
        return lambda new: Probabilities(_average(model, encode(new), task).numpy())

    def mean(new: pd.DataFrame) -> Float[np.ndarray, "N"]:
        return scale.undo(_average(model, encode(new), task)[:, 0].numpy())

    residuals = targets[validation] - mean(features.iloc[validation])
    return lambda new: around_mean(mean(new), residuals, std_floor(targets))


def _train(model: Any, known: tuple[Inputs, Tensor], validation: tuple[Inputs, Tensor], task: Task) -> None:
    inputs, truth = known

    def loss(rows: Tensor) -> Tensor:  # of each member by itself
        outputs = model(**{name: part[rows] for name, part in inputs.items()}).flatten(0, 1)
        repeated = truth[rows].repeat_interleave(model.backbone.k, 0)
        return (nn.functional.mse_loss if task.num_classes is None else nn.functional.cross_entropy)(outputs, repeated)

    def score() -> float:
        average = _average(model, validation[0], task)
        if task.num_classes is None:
            return nn.functional.mse_loss(average, validation[1].double()).item()
        return nn.functional.nll_loss(average.log(), validation[1]).item()

    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=3e-4)
    train(model, optimizer, loss, score, num_rows=len(truth), patience=16, clip=1.0)


def _average(model: nn.Module, inputs: Inputs, task: Task) -> Float[Tensor, "N C"]:
    """The mean over members of their predictions, or of their probabilities."""
    with torch.inference_mode():
        outputs = model(**inputs).double()
    return (outputs if task.num_classes is None else outputs.softmax(-1)).mean(1)


def _encoding(train: pd.DataFrame, task: Task) -> Callable[[pd.DataFrame], Inputs]:
    """Numbers to normal quantiles, with a little noise while these are fitted; categories to codes."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import QuantileTransformer

    names = [name for name in numeric_columns(train, task.categorical) if train[name].nunique() > 1]
    impute = SimpleImputer(strategy="median").fit(train[names].to_numpy())
    numbers = impute.transform(train[names].to_numpy())
    noise = np.random.RandomState(task.seed).normal(0, 1e-5, numbers.shape)
    num_quantiles = min(max(min(len(train) // 30, 1000), 10), len(train))
    quantiles = QuantileTransformer(n_quantiles=num_quantiles, output_distribution="normal", subsample=10**9)
    quantiles.fit(numbers + noise)

    def encode(new: pd.DataFrame) -> Inputs:
        inputs = {"x_num": floats(quantiles.transform(impute.transform(new[names].to_numpy())))}
        if task.categorical:
            inputs["x_cat"] = torch.from_numpy(category_codes(new, task.categorical)[0])
        return inputs

    return encode


def _model(train: Inputs, features: pd.DataFrame, task: Task) -> Any:
    import tabm as package
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins

    numbers = train["x_num"]
    cardinalities: Sequence[int] = category_codes(features, task.categorical)[1] if task.categorical else []
    bins = compute_bins(numbers, n_bins=min(48, len(numbers) - 1))
    return package.TabM.make(
        n_num_features=numbers.shape[1],
        cat_cardinalities=list(cardinalities),
        d_out=task.num_classes or 1,
        num_embeddings=PiecewiseLinearEmbeddings(bins, d_embedding=16, activation=False, version="B"),
    )
