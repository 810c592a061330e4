"""What comes with scikit-learn: an exact Gaussian process, gradient boosting on histograms, logistic regression."""

import warnings

import numpy as np
import pandas as pd

from experiments.protocols.peers.conformal import around_mean, held_out, std_floor
from experiments.protocols.peers.contract import Interval, Normal, Predictor, Probabilities, Task
from experiments.protocols.peers.encoding import class_columns, one_hot, with_missing_category

__all__ = [
    "GP_FEATURES",
    "GP_ROWS",
    "gaussian_process",
    "hist_boosting",
    "hist_boosting_classes",
    "logistic_regression",
]

GP_ROWS, GP_FEATURES = 2000, 10  # of more rows a random part: rows² × features numbers fill the memory


def gaussian_process(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """σ² · Matérn 5/2 with one length scale per feature, plus noise, by the marginal likelihood.

    Of more than GP_ROWS rows a random part; fewer for more than GP_FEATURES columns, at equal cost of a step.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    encode = one_hot(features, task.categorical)
    inputs = encode.transform(with_missing_category(features, task.categorical))
    most = int(GP_ROWS * min(1.0, GP_FEATURES / inputs.shape[1]) ** 0.5)
    rows = np.random.RandomState(task.seed).permutation(len(targets))[:most]
    kernel = ConstantKernel() * Matern(np.ones(inputs.shape[1]), nu=2.5) + WhiteKernel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # length scales of irrelevant features end at their bound
        model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=task.seed)
        model.fit(inputs[rows], targets[rows])

    def predict(new: pd.DataFrame) -> Normal:
        return Normal(*model.predict(encode.transform(with_missing_category(new, task.categorical)), return_std=True))

    return predict


def hist_boosting(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """HistGradientBoostingRegressor() with native categories; split-conformal with a fifth of the rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    train, calibration = held_out(len(targets), 0.2, task.seed)
    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=task.seed)
    model.fit(features.iloc[train], targets[train])
    residuals = targets[calibration] - model.predict(features.iloc[calibration])

    def predict(new: pd.DataFrame) -> Interval:
        return around_mean(model.predict(new), residuals, std_floor(targets))

    return predict


def hist_boosting_classes(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """HistGradientBoostingClassifier() with native categories."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    assert task.num_classes is not None
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=task.seed)
    model.fit(features, targets)
    num_classes = task.num_classes
    return lambda new: Probabilities(class_columns(model.predict_proba(new), model.classes_, num_classes))


def logistic_regression(features: pd.DataFrame, targets: np.ndarray, task: Task) -> Predictor:
    """LogisticRegression() on standardised features, multinomial for several classes."""
    from sklearn.linear_model import LogisticRegression

    assert task.num_classes is not None
    num_classes = task.num_classes
    encode = one_hot(features, task.categorical)
    model = LogisticRegression(max_iter=2000, random_state=task.seed)
    model.fit(encode.transform(with_missing_category(features, task.categorical)), targets)

    def predict(new: pd.DataFrame) -> Probabilities:
        inputs = encode.transform(with_missing_category(new, task.categorical))
        return Probabilities(class_columns(model.predict_proba(inputs), model.classes_, num_classes))

    return predict
