"""Fitted estimators in a folder: tensors as safetensors, everything else as JSON, never pickled.

    save_model("model", estimator, preprocessing=preprocessing, target=target)
    model = load_model("model")
    model.estimator.predict(model.preprocessing.transform(frame))       # bit-for-bit equal

`model.json` names the file of the tensors by its checksum and is written last: while a model is being replaced, the
folder holds either the old or the new one, complete. From schema 2 on it also has a checksum of its own content.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import degp
from degp.data.standardise import Standardiser
from degp.ensemble import Ensemble
from degp.gaussian import Coefficients
from degp.priors.evidence import Scales
from degp.runtime.files import misfit, new_file, new_folder, write_json
from degp.tabular.estimators import DEGPClassifier, DEGPRegressor
from degp.tabular.fitting import likelihood_for, method_for, network_for
from degp.tabular.preprocessing import Preprocessing
from degp.tabular.targets import Target
from degp.training import Ending

__all__ = ["Estimator", "Model", "ModelError", "check_destination", "load_model", "save_model"]

SCHEMA = 3
METADATA = "model.json"
Estimator = DEGPRegressor | DEGPClassifier
ESTIMATORS: dict[str, type[DEGPRegressor] | type[DEGPClassifier]] = {
    kind.__name__: kind for kind in (DEGPRegressor, DEGPClassifier)
}


class ModelError(ValueError):
    """A model cannot be saved or loaded; the message says why and what to do."""


@dataclass(frozen=True)
class Model:
    """A fitted estimator with the preprocessing of its table.

    Attributes:
        preprocessing: from rows to the estimator's inputs, if it was saved.
        target: the column that is predicted, if it was saved.
        metadata: the content of `model.json`.
    """

    estimator: Estimator
    preprocessing: Preprocessing | None
    target: Target | None
    metadata: dict[str, Any]


def save_model(
    folder: Path | str,
    estimator: Estimator,
    *,
    preprocessing: Preprocessing | None = None,
    target: Target | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a fitted estimator into a folder, atomically; an existing model is replaced.

    Args:
        preprocessing: from the table's rows to the estimator's inputs.
        target: the column that is predicted, with its labels.
        metrics: plain values to save with the model, such as scores on validation data.
    """
    if type(estimator) not in ESTIMATORS.values():
        raise ModelError(f"a model must be one of {', '.join(ESTIMATORS)}, but it is a {type(estimator).__name__}")
    check_is_fitted(estimator)
    folder = check_destination(folder)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _tensors(estimator).items()}
    metadata = _metadata(estimator) | {
        "preprocessing": None if preprocessing is None else preprocessing.to_json(),
        "target": None if target is None else target.to_json(),
        "metrics": dict(metrics or {}),
    }
    if (folder / METADATA).exists():
        _write(folder, tensors, metadata)
        return folder
    if folder.exists():
        folder.rmdir()  # it is empty
    with new_folder(folder) as draft:
        _write(draft, tensors, metadata)
    return folder


def load_model(folder: Path | str, *, device: str | None = None) -> Model:
    """The model that `save_model` wrote, with bit-for-bit equal predictions.

    Args:
        device: "cpu" or "cuda", instead of the one that it was trained on.
    """
    folder = Path(folder)
    metadata = _read_metadata(folder)
    tensors = _read_tensors(folder, metadata)
    try:
        estimator = _rebuild(metadata, tensors, device)
        preprocessing, target = metadata["preprocessing"], metadata["target"]
        return Model(
            estimator,
            None if preprocessing is None else Preprocessing.from_json(preprocessing),
            None if target is None else Target.from_json(target),
            metadata,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{folder / METADATA} must be as save_model wrote it, but {_summary(error)}; fit again"
        ) from None


def check_destination(folder: Path | str) -> Path:
    """The folder, if a model can be saved there: it is new, or empty, or has a model to be replaced."""
    folder = Path(folder)
    if folder.is_file():
        raise ModelError(f"a model is saved in a folder, but {folder} is a file; choose another name")
    if folder.exists() and not (folder / METADATA).exists() and any(folder.iterdir()):
        raise ModelError(f"{folder} must be new, empty or a model, but it has other files; choose another name")
    return folder


def _write(folder: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Writes the tensors, then `model.json`, which makes them the model; then deletes those of an earlier model."""
    json.dumps(metadata)  # fails here, before anything is written
    content = save(tensors)
    digest = hashlib.sha256(content).hexdigest()
    name = f"model-{digest[:12]}.safetensors"
    with new_file(folder / name) as draft:
        draft.write_bytes(content)
    complete = metadata | {"tensors": name, "sha256": digest}
    write_json(folder / METADATA, complete | {"checksum": _checksum(complete)})
    for old in folder.glob("model-*.safetensors"):
        if old.name != name:
            old.unlink()


def _read_metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA
    if not path.is_file():
        raise ModelError(f"{folder} must be a folder that save_model or `degp fit` wrote, but it has no {METADATA}")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        schema = metadata["schema"]
        newer = schema > SCHEMA
        intact = schema < 2 or metadata["checksum"] == _checksum(metadata)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} must be as save_model wrote it, but {_summary(error)}; fit again") from None
    if newer:
        raise ModelError(f"{path} has schema {schema}, and degp {degp.__version__} reads up to {SCHEMA}; update degp")
    if not intact:
        raise ModelError(f"{path} is damaged or was edited: its checksum does not match its content; copy it again")
    return metadata


def _checksum(metadata: Mapping[str, Any]) -> str:
    """sha256 of the content of `model.json` except for this checksum, independent of its layout."""
    content = {name: value for name, value in metadata.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read_tensors(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Tensor]:
    path = folder / Path(str(metadata.get("tensors"))).name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{folder} must contain the tensors of its model, but {_summary(error)}; fit again") from None
    if hashlib.sha256(content).hexdigest() != metadata.get("sha256"):
        raise ModelError(
            f"{path} is damaged: its checksum is not the one in {METADATA}; copy the folder again, or fit again"
        )
    try:
        return load(content)
    except SafetensorError as error:
        raise ModelError(f"{path} must be safetensors, but {_summary(error)}; fit again") from None


def _metadata(estimator: Estimator) -> dict[str, Any]:
    """Everything about an estimator except its tensors."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "schema": SCHEMA,
        "degp": degp.__version__,
        "estimator": type(estimator).__name__,
        "parameters": {name: _as_json(value) for name, value in estimator.get_params().items()},
        "task": "regression" if isinstance(estimator, DEGPRegressor) else "classification",
        "likelihood": type(estimator.likelihood_).__name__,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_targets": len(estimator.target_scaling_.mean) if isinstance(estimator, DEGPRegressor) else 1,
        "single_target": estimator.single_target_ if isinstance(estimator, DEGPRegressor) else True,
        "classes": None if isinstance(estimator, DEGPRegressor) else _classes_to_json(estimator.classes_),
        "scales": asdict(estimator.scales_),
        "seed": estimator.seed_,
        "ending": estimator.ending_,
    }


def _tensors(estimator: Estimator) -> dict[str, Tensor]:
    """The tensors of an estimator, by name."""
    assert isinstance(estimator.likelihood_, nn.Module)
    parts = {
        "ensemble": estimator.ensemble_.state_dict(),
        "likelihood": estimator.likelihood_.state_dict(),
        "input_scaling": _scaling_tensors(estimator.input_scaling_),
        "history": _columns(estimator.history_),
        "validation": {"nll": torch.tensor([estimator.validation_nll_], dtype=torch.float64)},
    }
    if isinstance(estimator, DEGPRegressor):
        parts["target_scaling"] = _scaling_tensors(estimator.target_scaling_)
        parts["conformity"] = {"scores": torch.from_numpy(estimator.conformity_)}
    if estimator.coefficients_ is not None:
        parts["coefficients"] = vars(estimator.coefficients_)
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _rebuild(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str | None) -> Estimator:
    if metadata["estimator"] not in ESTIMATORS:
        raise ModelError(f"a model must be one of {', '.join(ESTIMATORS)}, but it is a {metadata['estimator']!r}")
    parameters = _parameters(metadata)
    parameters["device"] = device or _available(parameters["device"])
    estimator = ESTIMATORS[metadata["estimator"]](**parameters)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    D, C = metadata["n_features"], metadata["n_targets"]
    estimator.n_features_in_ = D
    if metadata["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(metadata["feature_names"], dtype=object)
    estimator.ensemble_, likelihood = _networks(metadata, parameters, parts)
    estimator.scales_ = _scales(metadata, parameters)
    estimator.seed_ = metadata["seed"]
    generator = torch.Generator(parameters["device"]).manual_seed(estimator.seed_)
    estimator.method_ = method_for(
        estimator.config(), likelihood, estimator.ensemble_, estimator.scales_, generator=generator
    )
    estimator.input_scaling_ = _scaling(parts, "input_scaling", D)
    estimator.validation_nll_ = float(parts["validation"]["nll"].min())
    estimator.history_ = _records(parts.get("history", {}))
    estimator.n_iter_ = len(estimator.history_)
    estimator.ending_ = Ending(metadata["ending"]) if metadata.get("ending") else None  # earlier versions: unknown
    estimator.coefficients_ = _coefficients(parts, len(estimator.ensemble_), parameters["device"])
    if isinstance(estimator, DEGPRegressor):
        estimator.single_target_ = metadata["single_target"]
        estimator.target_scaling_ = _scaling(parts, "target_scaling", C)
        estimator.conformity_ = parts["conformity"]["scores"].numpy()
    else:
        estimator.classes_ = np.array(metadata["classes"]["values"], dtype=metadata["classes"]["dtype"])
    return estimator


def _parameters(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator's parameters; schemas 1 and 2 had other names, and a list of α to choose from."""
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in metadata["parameters"].items()}
    if metadata["schema"] < 3:
        del parameters["alphas"]
        parameters |= {"method": parameters.pop("objective"), "measurement_points": parameters.pop("extra_points")}
        parameters["alpha"] = 1.0 if metadata["alpha"] is None else metadata["alpha"]
    return parameters


def _scales(metadata: Mapping[str, Any], parameters: Mapping[str, Any]) -> Scales:
    """The prior's scales, which predictions do not depend on; schemas 1 and 2 did not save them."""
    if metadata["schema"] < 3:
        return Scales(len(parameters["hidden_layers"]), (1.0,) * metadata["n_features"], 1.0, 1.0, 1.0)
    return Scales(**metadata["scales"] | {"relevance": tuple(metadata["scales"]["relevance"])})


def _networks(
    metadata: Mapping[str, Any], parameters: Mapping[str, Any], parts: Mapping[str, Mapping[str, Tensor]]
) -> tuple[Ensemble, Any]:
    """Ensemble and likelihood as training constructs them, with the saved weights."""
    num_classes = None if metadata["classes"] is None else len(metadata["classes"]["values"])
    noise, widths = parameters.get("noise", "constant"), parameters["hidden_layers"]
    with torch.device("meta"):  # no weights are drawn: torch's global generator stays as it is
        members = [
            network_for(metadata["n_features"], metadata["n_targets"], num_classes, widths, noise)
            for _ in range(parameters["members"])
        ]
        ensemble = Ensemble(members).to(_precision(parts.get("ensemble", {})))
    likelihood = likelihood_for(num_classes, noise, 1.0)
    assert isinstance(likelihood, nn.Module)
    if type(likelihood).__name__ != metadata["likelihood"]:
        raise ModelError(
            f"its likelihood must be a {type(likelihood).__name__}, given its other settings, but it is a "
            f"{metadata['likelihood']}; fit again"
        )
    for name, module in (("ensemble", ensemble), ("likelihood", likelihood)):
        _check_forms(name, module.state_dict(), parts.get(name, {}))
        module.load_state_dict(parts[name], assign=True)
        module.to(parameters["device"]).eval()
    return ensemble, likelihood


def _precision(tensors: Mapping[str, Tensor]) -> torch.dtype:
    first = next(iter(tensors.values()), torch.empty(0))
    return first.dtype if first.is_floating_point() else torch.float32


def _check_forms(part: str, expected: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    difference = misfit(expected, saved, prefix=f"{part}/")
    if difference is not None:
        raise ModelError(f"the tensors must be of the network that {METADATA} describes, but {difference}; fit again")


def _scaling_tensors(scaling: Standardiser) -> dict[str, Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in scaling.to_json().items()}


def _scaling(parts: Mapping[str, Mapping[str, Tensor]], name: str, features: int) -> Standardiser:
    expected = dict.fromkeys(("mean", "std"), torch.empty(features, dtype=torch.float64))
    _check_forms(name, expected, parts.get(name, {}))
    return Standardiser.from_json({key: tensor.tolist() for key, tensor in parts[name].items()})


def _coefficients(parts: Mapping[str, Mapping[str, Tensor]], members: int, device: str) -> Coefficients | None:
    if "coefficients" not in parts:
        return None
    expected = {"mean": torch.empty(members), "precision_root": torch.empty(members, members)}
    _check_forms("coefficients", {name: t.double() for name, t in expected.items()}, parts["coefficients"])
    return Coefficients(**{name: tensor.to(device) for name, tensor in parts["coefficients"].items()})


def _columns(records: list[dict[str, Any]]) -> dict[str, Tensor]:
    """One tensor per column: int64 if its first entry is an integer, else float64; NaN where a record has none."""
    columns = {name: [record.get(name, float("nan")) for record in records] for name in (records[0] if records else {})}
    return {
        name: torch.tensor(values, dtype=torch.int64 if isinstance(values[0], int) else torch.float64)
        for name, values in columns.items()
    }


def _records(columns: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    values = [tensor.tolist() for tensor in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _classes_to_json(classes: np.ndarray) -> dict[str, Any]:
    values = classes.tolist()
    odd = [value for value in values if not isinstance(value, str | int | float)]
    if odd:
        raise ModelError(f"classes must be text or numbers to be saved, but there is {odd[0]!r}; rename the classes")
    return {"dtype": classes.dtype.str if classes.dtype.kind != "O" else "object", "values": values}


def _as_json(value: Any) -> Any:
    """A parameter as a JSON value; a random generator becomes None, since the seed drawn from it is saved."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_as_json(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return None if isinstance(value, np.random.RandomState) else value


def _available(device: str) -> str:
    if device == "cpu" or torch.cuda.is_available():
        return device
    warnings.warn(
        f"the model was trained on {device}, which is unavailable; it runs on the CPU, where the last digits of its "
        f"numbers may differ",
        stacklevel=4,
    )
    return "cpu"


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
