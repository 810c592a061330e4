"""Boosted trees from packages of their own: NGBoost, CatBoost and LightGBM."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.protocols.peers.conformal import conformal_quantile, held_out, std_floor
from experiments.protocols.peers.contract import LEVEL, Interval, Normal, Predictor, Probabilities, Task
from experiments.protocols.peers.encoding import class_columns, one_hot, with_missing_category

__all__ = ["catboost", "catboost_classes", "lightgbm", "lightgbm_classes", "ngboost", "ngboost_classes"]

VALIDATION = 0.15
NG_STAGES, NG_PATIENCE = 2000, 50


def ngboost(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """NGBRegressor with a Gaussian, stopped early on validation rows, as in its guide."""
    from ngboost import NGBRegressor

    model, encode = _fit_ngboost(NGBRegressor, features, targets, task)

    def predict(new: pd.DataFrame) -> Normal:
        found = model.pred_dist(encode(new)).params
        return Normal(found["loc"], found["scale"])

    return predict


def ngboost_classes(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """NGBClassifier, stopped early on validation rows."""
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    model, encode = _fit_ngboost(partial(NGBClassifier, Dist=k_categorical(task.num_classes)), features, targets, task)
    return lambda new: Probabilities(model.predict_proba(encode(new)))


def _fit_ngboost(make: Any, features: pd.DataFrame, targets: np.ndarray, task: Task) -> tuple[Any, Any]:
    encoder = one_hot(features, task.categorical)

    def encode(new: pd.DataFrame) -> np.ndarray:
        return encoder.transform(with_missing_category(new, task.categorical))

    train, validation = held_out(len(targets), VALIDATION, task.seed)
    inputs = encode(features)
    model = make(n_estimators=NG_STAGES, verbose=False, random_state=task.seed)
    known = {"X_val": inputs[validation], "Y_val": targets[validation], "early_stopping_rounds": NG_PATIENCE}
    return model.fit(inputs[train], targets[train], **known), encode


def catboost(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """RMSEWithUncertainty with posterior sampling; a virtual ensemble of ten: knowledge plus data uncertainty.

    As in its tutorial, the number of trees is the best on validation rows: with all 1000, intervals are far too narrow.
    """
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", posterior_sampling=True, **_catboost_options(task))
    rows, validation = held_out(len(targets), VALIDATION, task.seed)
    known = with_missing_category(features, task.categorical)
    seen = (known.iloc[validation], targets[validation])
    model.fit(known.iloc[rows], targets[rows], cat_features=list(task.categorical), eval_set=seen)

    def predict(new: pd.DataFrame) -> Normal:
        mean, knowledge, data = model.virtual_ensembles_predict(
            with_missing_category(new, task.categorical), prediction_type="TotalUncertainty", thread_count=1
        ).T
        return Normal(mean, np.sqrt(knowledge + data))

    return predict


def catboost_classes(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """CatBoostClassifier() with native categories."""
    from catboost import CatBoostClassifier

    assert task.num_classes is not None
    num_classes = task.num_classes
    model = CatBoostClassifier(**_catboost_options(task))
    model.fit(with_missing_category(features, task.categorical), targets, cat_features=list(task.categorical))

    def predict(new: pd.DataFrame) -> Probabilities:
        found = model.predict_proba(with_missing_category(new, task.categorical), thread_count=1)
        return Probabilities(class_columns(found, model.classes_, num_classes))

    return predict


def _catboost_options(task: Task) -> dict[str, Any]:
    return {"random_seed": task.seed, "thread_count": 1, "verbose": False, "allow_writing_files": False}


def lightgbm(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """Conformalised quantile regression (Romano et al., 2019) of LGBMRegressor(), a fifth of the rows to calibrate.

    [q̂₅(x) − Q, q̂₉₅(x) + Q],  Q the conformal quantile of max(q̂₅(x) − y, y − q̂₉₅(x))
    """
    from lightgbm import LGBMRegressor

    train, calibration = held_out(len(targets), 0.2, task.seed)

    def fitted(**options: Any) -> Any:
        return LGBMRegressor(**_lightgbm_options(task), **options).fit(features.iloc[train], targets[train])

    mean = fitted()
    low, high = (fitted(objective="quantile", alpha=alpha) for alpha in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    known, truth = features.iloc[calibration], targets[calibration]
    margin = conformal_quantile(np.maximum(low.predict(known) - truth, truth - high.predict(known)))

    def predict(new: pd.DataFrame) -> Interval:
        ends = np.sort([low.predict(new) - margin, high.predict(new) + margin], axis=0)  # quantiles may cross
        return Interval(mean.predict(new), *ends, std_floor(targets))

    return predict


def lightgbm_classes(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """LGBMClassifier() with native categories."""
    from lightgbm import LGBMClassifier

    assert task.num_classes is not None
    num_classes = task.num_classes
    model = LGBMClassifier(**_lightgbm_options(task)).fit(features, targets)
    return lambda new: Probabilities(class_columns(model.predict_proba(new), model.classes_, num_classes))


def _lightgbm_options(task: Task) -> dict[str, Any]:
    return {"random_state": task.seed, "n_jobs": 1, "verbose": -1}
