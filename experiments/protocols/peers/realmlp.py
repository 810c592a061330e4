"""RealMLP (Holzmüller et al., 2024) with the tuned defaults of pytabkit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from experiments.protocols.peers.conformal import around_mean, held_out, std_floor
from experiments.protocols.peers.contract import Interval, Predictor, Probabilities, Task
from experiments.protocols.peers.encoding import class_columns, numeric_columns

__all__ = ["realmlp", "realmlp_classes"]

VALIDATION = 0.2  # the package's own


def realmlp(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """RealMLP_TD_Regressor(); split-conformal around the mean, with the rows that chose the epoch."""
    from pytabkit import RealMLP_TD_Regressor

    impute = _imputation(features, task)
    model, validation = _fitted(RealMLP_TD_Regressor(**_options(task)), impute(features), targets, task)
    residuals = targets[validation] - model.predict(impute(features.iloc[validation])).ravel()

    def predict(new: pd.DataFrame) -> Interval:
        return around_mean(model.predict(impute(new)).ravel().astype(float), residuals, std_floor(targets))

    return predict


def realmlp_classes(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """RealMLP_TD_Classifier() with the settings that its guide recommends for log-loss."""
    from pytabkit import RealMLP_TD_Classifier

    assert task.num_classes is not None
    num_classes = task.num_classes
    impute = _imputation(features, task)
    unfitted = RealMLP_TD_Classifier(val_metric_name="cross_entropy", use_ls=False, **_options(task))
    model, _ = _fitted(unfitted, impute(features), targets, task)

    def predict(new: pd.DataFrame) -> Probabilities:
        found = model.predict_proba(impute(new)).astype(float)
        return Probabilities(class_columns(found, model.classes_, num_classes))

    return predict


def _fitted(model: Any, features: pd.DataFrame, targets: np.ndarray, task: Task) -> tuple[Any, np.ndarray]:
    _, validation = held_out(len(targets), VALIDATION, task.seed)
    return model.fit(features, targets, val_idxs=validation, cat_col_names=list(task.categorical)), validation


def _options(task: Task) -> dict[str, Any]:
    return {"device": "cpu", "n_threads": 1, "random_state": task.seed, "verbosity": 0}


def _imputation(features: pd.DataFrame, task: Task) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Numbers with the training median where they are missing."""
    medians = features[numeric_columns(features, task.categorical)].median().to_dict()
    return lambda new: new.fillna(medians)
