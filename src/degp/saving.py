"""Fitted estimators in a folder: tensors as safetensors, everything else as JSON, never pickled.

    save_model("model", estimator, preprocessing=preprocessing, target=target)
    model = load_model("model")
    model.estimator.predict(model.preprocessing.transform(frame))       # the same numbers, to the bit

`model.json` names the file of the tensors by its checksum and is written last: while a model takes another one's place,
whoever opens the folder finds the one or the other whole. It has a checksum of its own content too, from schema 2 on.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
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
from degp.files import misfit, new_file, new_folder, write_json
from degp.gaussian import Coefficients
from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.tables import Preprocessing, Target
from degp.tabular import likelihood_for, network_for

SCHEMA = 2
FACTS = "model.json"
Estimator = DEGPRegressor | DEGPClassifier
ESTIMATORS: dict[str, type[DEGPRegressor] | type[DEGPClassifier]] = {
    kind.__name__: kind for kind in (DEGPRegressor, DEGPClassifier)
}


class ModelError(ValueError):
    """A model cannot be saved or loaded; the message says why and what to do."""


@dataclass(frozen=True)
class Model:
    """A fitted estimator and the way to it from a table.

    Attributes:
        preprocessing: from rows to the estimator's inputs, if it was saved.
        target: what is predicted, if it was saved.
        metadata: all that `model.json` says.
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
    """Writes a fitted estimator into a folder, whole or not at all; a model that is there is replaced.

    Args:
        preprocessing: from the table's rows to the estimator's inputs.
        target: the column that is predicted, with its labels.
        metrics: plain values to keep beside the model, such as scores on validation data.
    """
    if type(estimator) not in ESTIMATORS.values():
        raise ModelError(f"a model must be one of {', '.join(ESTIMATORS)}, but it is a {type(estimator).__name__}")
    check_is_fitted(estimator)
    folder = check_place(folder)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _tensors(estimator).items()}
    facts = _facts(estimator) | {
        "preprocessing": None if preprocessing is None else preprocessing.to_json(),
        "target": None if target is None else target.to_json(),
        "metrics": dict(metrics or {}),
    }
    if (folder / FACTS).exists():
        _write(folder, tensors, facts)
        return folder
    if folder.exists():
        folder.rmdir()  # it is empty
    with new_folder(folder) as draft:
        _write(draft, tensors, facts)
    return folder


def load_model(folder: Path | str, *, device: str | None = None) -> Model:
    """The model that `save_model` wrote, with the same predictions to the bit.

    Args:
        device: "cpu" or "cuda", in place of the one that it was trained on.
    """
    folder = Path(folder)
    facts = _read_facts(folder)
    tensors = _read_tensors(folder, facts)
    try:
        estimator = _rebuilt(facts, tensors, device)
        preprocessing, target = facts["preprocessing"], facts["target"]
        return Model(
            estimator,
            None if preprocessing is None else Preprocessing.from_json(preprocessing),
            None if target is None else Target.from_json(target),
            facts,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{folder / FACTS} must be as save_model wrote it, but {_said(error)}; fit again") from None


def check_place(folder: Path | str) -> Path:
    """The folder, if a model can be saved there: it is new, or empty, or has a model that would be replaced."""
    folder = Path(folder)
    if folder.is_file():
        raise ModelError(f"a model is saved in a folder, but {folder} is a file; choose another name")
    if folder.exists() and not (folder / FACTS).exists() and any(folder.iterdir()):
        raise ModelError(f"{folder} must be new, empty or a model, but it has other files; choose another name")
    return folder


def _write(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """The tensors, then `model.json`, which makes them the model; then the tensors of an earlier model go."""
    json.dumps(facts)  # what cannot be written should fail before anything is
    content = save(tensors)
    digest = hashlib.sha256(content).hexdigest()
    name = f"model-{digest[:12]}.safetensors"
    with new_file(folder / name) as draft:
        draft.write_bytes(content)
    told = facts | {"tensors": name, "sha256": digest}
    write_json(folder / FACTS, told | {"checksum": _checksum(told)})
    for old in folder.glob("model-*.safetensors"):
        if old.name != name:
            old.unlink()


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / FACTS
    if not path.is_file():
        raise ModelError(f"{folder} must be a folder that save_model or `degp fit` wrote, but it has no {FACTS}")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        schema = facts["schema"]
        newer = schema > SCHEMA
        intact = schema < 2 or facts["checksum"] == _checksum(facts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} must be as save_model wrote it, but {_said(error)}; fit again") from None
    if newer:
        raise ModelError(f"{path} has schema {schema}, and degp {degp.__version__} reads up to {SCHEMA}; update degp")
    if not intact:
        raise ModelError(f"{path} is damaged or was edited: its checksum is not that of its content; copy it anew")
    return facts


def _checksum(facts: Mapping[str, Any]) -> str:
    """sha256 of all that `model.json` says, its own checksum aside, however it is laid out."""
    content = {name: value for name, value in facts.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read_tensors(folder: Path, facts: Mapping[str, Any]) -> dict[str, Tensor]:
    path = folder / Path(str(facts.get("tensors"))).name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{folder} must have the tensors of its model, but {_said(error)}; fit again") from None
    if hashlib.sha256(content).hexdigest() != facts.get("sha256"):
        raise ModelError(
            f"{path} is damaged: its checksum is not the one in {FACTS}; copy the folder anew, or fit again"
        )
    try:
        return load(content)
    except SafetensorError as error:
        raise ModelError(f"{path} must be safetensors, but {_said(error)}; fit again") from None


def _facts(estimator: Estimator) -> dict[str, Any]:
    """All about an estimator but its tensors."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "schema": SCHEMA,
        "degp": degp.__version__,
        "estimator": type(estimator).__name__,
        "parameters": {name: _plain(value) for name, value in estimator.get_params().items()},
        "task": "regression" if isinstance(estimator, DEGPRegressor) else "classification",
        "likelihood": type(estimator.likelihood_).__name__,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_targets": len(estimator.target_scaling_.mean) if isinstance(estimator, DEGPRegressor) else 1,
        "single_target": estimator.single_target_ if isinstance(estimator, DEGPRegressor) else True,
        "classes": None if isinstance(estimator, DEGPRegressor) else _classes_to_json(estimator.classes_),
        "alpha": estimator.alpha_,
        "seed": estimator.seed_,
    }


def _tensors(estimator: Estimator) -> dict[str, Tensor]:
    """All tensors of an estimator, by name."""
    assert isinstance(estimator.likelihood_, nn.Module)
    parts = {
        "ensemble": estimator.ensemble_.state_dict(),
        "likelihood": estimator.likelihood_.state_dict(),
        "input_scaling": _scaling_tensors(estimator.input_scaling_),
        "history": _columns(estimator.history_),
        "validation": {"nll": torch.tensor(estimator.validation_nll_, dtype=torch.float64)},
    }
    if isinstance(estimator, DEGPRegressor):
        parts["target_scaling"] = _scaling_tensors(estimator.target_scaling_)
        parts["conformity"] = {"scores": torch.from_numpy(estimator.conformity_)}
    if estimator.coefficients_ is not None:
        parts["coefficients"] = vars(estimator.coefficients_)
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _rebuilt(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str | None) -> Estimator:
    if facts["estimator"] not in ESTIMATORS:
        raise ModelError(f"a model must be one of {', '.join(ESTIMATORS)}, but it is a {facts['estimator']!r}")
    parameters: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in facts["parameters"].items()
    }
    parameters["device"] = device or _present(parameters["device"])
    estimator = ESTIMATORS[facts["estimator"]](**parameters)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    D, C = facts["n_features"], facts["n_targets"]
    estimator.n_features_in_ = D
    if facts["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    estimator.ensemble_, estimator.likelihood_ = _networks(facts, parameters, parts)
    estimator.input_scaling_ = _scaling(parts, "input_scaling", D)
    estimator.alpha_, estimator.seed_ = facts["alpha"], facts["seed"]
    estimator.validation_nll_ = parts["validation"]["nll"].tolist()
    estimator.history_ = _records(parts.get("history", {}))
    estimator.n_iter_ = len(estimator.history_)
    estimator.coefficients_ = _coefficients(parts, len(estimator.ensemble_), parameters["device"])
    if isinstance(estimator, DEGPRegressor):
        estimator.single_target_ = facts["single_target"]
        estimator.target_scaling_ = _scaling(parts, "target_scaling", C)
        estimator.conformity_ = parts["conformity"]["scores"].numpy()
    else:
        estimator.classes_ = np.array(facts["classes"]["values"], dtype=facts["classes"]["dtype"])
    return estimator


def _networks(
    facts: Mapping[str, Any], parameters: Mapping[str, Any], parts: Mapping[str, Mapping[str, Tensor]]
) -> tuple[Ensemble, Any]:
    """Ensemble and likelihood as training makes them, with the saved weights."""
    num_classes = None if facts["classes"] is None else len(facts["classes"]["values"])
    noise, widths = parameters.get("noise", "constant"), parameters["hidden_layers"]
    with torch.device("meta"):  # no weights are drawn for nothing, and nobody's random numbers are used up
        members = [
            network_for(facts["n_features"], facts["n_targets"], num_classes, widths, noise)
            for _ in range(parameters["members"])
        ]
        ensemble = Ensemble(members).to(_precision(parts.get("ensemble", {})))
    likelihood = likelihood_for(num_classes, noise, 1.0)
    assert isinstance(likelihood, nn.Module)
    if type(likelihood).__name__ != facts["likelihood"]:
        raise ModelError(
            f"its likelihood must be a {type(likelihood).__name__}, given its other settings, but it is a "
            f"{facts['likelihood']}; fit again"
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
        raise ModelError(f"the tensors must be of the network that {FACTS} describes, but {difference}; fit again")


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
    """One tensor a column: int64 where its first entry is whole, else float64; NaN where a record has none."""
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


def _plain(value: Any) -> Any:
    """A parameter as JSON has it; a random generator becomes None: the seed that was drawn from it is kept."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return None if isinstance(value, np.random.RandomState) else value


def _present(device: str) -> str:
    if device == "cpu" or torch.cuda.is_available():
        return device
    warnings.warn(
        f"the model was trained on {device}, which is not to be had here; it runs on the CPU, where the last digits "
        f"of its numbers may differ",
        stacklevel=4,
    )
    return "cpu"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
