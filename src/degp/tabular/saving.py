"""Fitted estimators in a folder, with what the command line needs besides: the target, and metrics.

    save_model("model", estimator, target=target)
    model = load_model("model")
    model.estimator.predict(frame)       # bit-for-bit equal

`DEGPRegressor.save` and `DEGPRegressor.load` write and read the same folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from degp.tabular.classifier import DEGPClassifier
from degp.tabular.errors import TableError
from degp.tabular.folders import METADATA, ModelError, check_destination, read_folder, write_folder
from degp.tabular.preprocessing import Preprocessing
from degp.tabular.regressor import DEGPRegressor
from degp.tabular.states import restore, state_of
from degp.tabular.targets import Target

__all__ = ["Estimator", "Model", "ModelError", "check_destination", "load_model", "save_model"]

Estimator = DEGPRegressor | DEGPClassifier
ESTIMATORS: dict[str, type[DEGPRegressor] | type[DEGPClassifier]] = {
    kind.__name__: kind for kind in (DEGPRegressor, DEGPClassifier)
}


@dataclass(frozen=True)
class Model:
    """A fitted estimator with its target.

    Attributes:
        target: the column that is predicted, if it was saved.
        metadata: the content of `model.json`.

    Example:
        >>> estimator = DEGPRegressor(random_state=0).fit(X, Y[:, 0])
        >>> model = load_model(save_model("houses", estimator, target=Target(("price",), "regression")))
        >>> model.target.name, model.estimator.predict(X).shape
        ('price', (24,))
    """

    estimator: Estimator
    target: Target | None
    metadata: dict[str, Any]

    @property
    def preprocessing(self) -> Preprocessing:
        """From rows to the inputs of the networks."""
        return self.estimator.preprocessing_


def save_model(
    folder: Path | str,
    estimator: Estimator,
    *,
    target: Target | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a fitted estimator into a folder, atomically; an existing model is replaced.

    Args:
        target: the column that is predicted, with its labels; by default as the y of `fit` was named.
        metrics: plain values to save with the model, such as scores on validation data.

    Example:
        >>> estimator = DEGPRegressor(random_state=0).fit(X, Y[:, 0])
        >>> folder = save_model("houses", estimator, metrics={"rmse": 0.1})
        >>> load_model(folder).metadata["metrics"]
        {'rmse': 0.1}
    """
    if type(estimator) not in ESTIMATORS.values():
        raise ModelError(f"a model must be one of {', '.join(ESTIMATORS)}, but it is a {type(estimator).__name__}")
    return write_folder(folder, *state_of(estimator, target, metrics))


def load_model(folder: Path | str, *, device: str | None = None) -> Model:
    """The model that `save_model` wrote, with bit-for-bit equal predictions.

    Args:
        device: "cpu" or "cuda", instead of the one that it was trained on.

    Example:
        >>> estimator = DEGPRegressor(random_state=0).fit(X, Y[:, 0])
        >>> loaded = load_model(save_model("houses", estimator)).estimator
        >>> bool((loaded.predict(X) == estimator.predict(X)).all())
        True
    """
    metadata, tensors = read_folder(folder)
    if metadata.get("estimator") not in ESTIMATORS:
        raise ModelError(f"a model must be one of {', '.join(ESTIMATORS)}, but it is a {metadata.get('estimator')!r}")
    estimator = restore(ESTIMATORS[metadata["estimator"]], metadata, tensors, device=device)
    try:
        target = None if metadata["target"] is None else Target.from_json(metadata["target"])
    except TableError as error:
        raise ModelError(f"{folder}/{METADATA} must be as save_model wrote it, but {error}; fit again") from None
    return Model(estimator, target, metadata)
