"""Our estimators as they come: DE-GP and its baselines."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from degp.metrics.regression import normal_quantile
from degp.transforms import Identity
from experiments.protocols.peers.contract import LEVEL, Normal, Prediction, Predictor, Probabilities, Task, Transformed
from experiments.protocols.peers.encoding import class_columns, one_hot, with_missing_category

__all__ = ["own", "own_classes"]


def own(features: pd.DataFrame, targets: np.ndarray, task: Task, *, method: str) -> Predictor:
    """DEGPRegressor(method=…)."""
    from degp.sklearn import DEGPRegressor

    model = DEGPRegressor(method=method, random_state=task.seed, **_budget(task))
    encode = _encoding(model, features, task)
    model.fit(encode(features), targets)
    return lambda new: _distribution(model, encode(new))


def own_classes(features: pd.DataFrame, targets: np.ndarray, task: Task, *, method: str) -> Predictor:
    """DEGPClassifier(method=…)."""
    from degp.sklearn import DEGPClassifier

    assert task.num_classes is not None
    num_classes = task.num_classes
    model = DEGPClassifier(method=method, random_state=task.seed, **_budget(task))
    encode = _encoding(model, features, task)
    model.fit(encode(features), targets)
    return lambda new: Probabilities(class_columns(model.predict_proba(encode(new)), model.classes_, num_classes))


def _distribution(model: Any, inputs: Any) -> Prediction:
    """A Gaussian, of the target or of its transform; the latter's ends are equally far from its mean."""
    transform = model.target_transform_
    if transform == Identity():
        return Normal(*model.predict(inputs, return_std=True))
    low, high = transform.forward(torch.tensor(model.predict_interval(inputs, LEVEL))).numpy().T
    scale = (high - low) / (2 * normal_quantile(LEVEL))
    return Transformed(model.predict(inputs), (low + high) / 2, scale, transform)


def _budget(task: Task) -> dict[str, Any]:
    return {} if task.steps is None else {"steps": task.steps}


def _encoding(model: Any, features: pd.DataFrame, task: Task) -> Any:
    """The frame itself if it has numbers only or if the estimator takes categories, else one-hot columns."""
    complete = not task.categorical and not features.isna().any(axis=None)
    if complete or model.__sklearn_tags__().input_tags.categorical:
        return lambda new: new
    encoder = one_hot(features, task.categorical)
    return lambda new: encoder.transform(with_missing_category(new, task.categorical))
