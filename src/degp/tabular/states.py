"""The state of a fitted estimator: as plain JSON values and tensors, and back, bit-for-bit.

`state_of` and `restore` are inverse. Earlier schemas are restored as well: 1 and 2 had other parameters and no scales,
and before 4 an estimator did not know the preprocessing of its table, nor a classifier its labels.
"""

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import degp
from degp.data.standardise import Standardiser
from degp.ensemble import Ensemble
from degp.gaussian import Coefficients
from degp.likelihoods import Gaussian
from degp.priors.evidence import Scales
from degp.runtime.files import misfit
from degp.tabular.class_process import ClassProcess
from degp.tabular.columns import PlainColumn
from degp.tabular.embedding import Embedding
from degp.tabular.fitting import likelihood_for, method_for, network_for
from degp.tabular.folders import METADATA, SCHEMA, ModelError, summary
from degp.tabular.inputs import positional_names
from degp.tabular.missing import MissingNoise
from degp.tabular.preprocessing import Preprocessing
from degp.tabular.process import Process
from degp.tabular.targets import CLASSIFICATION, REGRESSION, Target
from degp.tabular.units import Units
from degp.training import Ending
from degp.transforms import Identity, transform_named
from degp.typing import Batch

__all__ = ["restore", "state_of"]

Estimator = Any  # DEGPRegressor or DEGPClassifier, whose module imports this one
E = TypeVar("E")


def state_of(
    estimator: Estimator, target: Target | None = None, metrics: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Everything that `restore` needs: values for `json.dump`, and tensors by name.

    Args:
        target: the column that is predicted; by default named as the y of `fit` was, if it had a name.
        metrics: plain values to save with the model.
    """
    check_is_fitted(estimator)
    known = target if target is not None else _target_of(estimator)
    records = {
        "preprocessing": estimator.preprocessing_.to_json(),
        "target": None if known is None else known.to_json(),
        "metrics": dict(metrics or {}),
    }
    return _metadata(estimator) | records, _tensors(estimator)


def restore(
    kind: type[E], metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], *, device: str | None = None
) -> E:
    """The estimator of this state; raises ModelError if it is not one.

    Args:
        device: "cpu" or "cuda", instead of the one that it was trained on.
    """
    try:
        return _rebuild(kind, metadata, tensors, device)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{METADATA} must be as save_model wrote it, but {summary(error)}; fit again") from None


def _metadata(estimator: Estimator) -> dict[str, Any]:
    """Everything about an estimator except its tensors."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "schema": SCHEMA,
        "degp": degp.__version__,
        "estimator": type(estimator).__name__,
        "parameters": {name: _as_json(value) for name, value in estimator.get_params().items()},
        "task": REGRESSION if is_regressor(estimator) else CLASSIFICATION,
        "likelihood": type(estimator.likelihood_).__name__,
        "n_columns": int(estimator.n_features_in_),
        "n_features": len(estimator.input_scaling_.mean),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_targets": len(estimator.target_scaling_.mean) if is_regressor(estimator) else 1,
        "target_transform": estimator.target_transform_.name if is_regressor(estimator) else None,
        "single_target": estimator.single_target_ if is_regressor(estimator) else True,
        "classes": None if is_regressor(estimator) else _classes_to_json(estimator.classes_),
        "scales": asdict(estimator.scales_),
        "missing_noise": asdict(estimator.missing_noise_) if is_regressor(estimator) else None,
        "process": _process_record(estimator.process_),
        "seed": estimator.seed_,
        "ending": estimator.ending_,
        "planned_steps": estimator.planned_steps_,
    }


def _tensors(estimator: Estimator) -> dict[str, Tensor]:
    """The tensors of an estimator, by name."""
    assert isinstance(estimator.likelihood_, nn.Module)
    parts = {
        "ensemble": estimator.ensemble_.state_dict(),
        "likelihood": estimator.likelihood_.state_dict(),
        "embedding": _embedding_tensors(estimator.embedding_),
        "input_scaling": _scaling_tensors(estimator.input_scaling_),
        "history": _columns(estimator.history_),
        "validation": {"nll": torch.tensor([estimator.validation_nll_], dtype=torch.float64)},
        "conformity": {"scores": torch.from_numpy(estimator.conformity_)},
        "training": {"fingerprints": torch.from_numpy(estimator.fingerprints_)},
    }
    if is_regressor(estimator):
        parts["target_scaling"] = _scaling_tensors(estimator.target_scaling_)
    if estimator.coefficients_ is not None:
        parts["coefficients"] = vars(estimator.coefficients_)
    if estimator.process_ is not None:
        parts["process"] = _process_tensors(estimator.process_)
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _rebuild(kind: type[E], metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str | None) -> E:
    parameters = _parameters(metadata)
    parameters["device"] = device or _available(parameters["device"])
    estimator: Estimator = kind(**parameters)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    estimator.scales_ = _scales(metadata, parameters)
    estimator.ensemble_, likelihood = _networks(metadata, estimator, parts)
    estimator.process_ = _process(metadata, parts, parameters["device"])
    estimator.seed_ = metadata["seed"]
    generator = torch.Generator(parameters["device"]).manual_seed(estimator.seed_)
    estimator.method_ = method_for(
        estimator.config(), likelihood, estimator.ensemble_, estimator.scales_, generator=generator
    )
    estimator.input_scaling_ = _scaling(parts, "input_scaling", metadata["n_features"])
    estimator.embedding_ = _embedding(parts, metadata["n_features"])
    estimator.validation_nll_ = float(parts["validation"]["nll"].min())
    estimator.history_ = _records(parts.get("history", {}))
    estimator.n_iter_ = len(estimator.history_)
    estimator.ending_ = Ending(metadata["ending"]) if metadata.get("ending") else None  # earlier versions: unknown
    estimator.planned_steps_ = metadata.get("planned_steps")
    estimator.coefficients_ = _coefficients(parts, len(estimator.ensemble_), parameters["device"])
    estimator.conformity_ = parts["conformity"]["scores"].numpy() if "conformity" in parts else np.empty(0)
    known = parts.get("training", {}).get("fingerprints", torch.empty(0, dtype=torch.int64))  # earlier versions: none
    estimator.fingerprints_ = known.numpy()
    _restore_inputs(estimator, metadata)
    _restore_target(estimator, metadata, parts)
    return estimator


def _restore_inputs(estimator: Estimator, metadata: Mapping[str, Any]) -> None:
    """The preprocessing and the columns that it takes."""
    names, record = metadata["feature_names"], metadata["preprocessing"]
    if record is None:  # before schema 4, of an estimator that was fitted to numbers
        columns = names or positional_names(metadata["n_features"])
        fill = zip(columns, estimator.input_scaling_.mean, strict=True)
        estimator.preprocessing_ = Preprocessing(tuple(PlainColumn(name, mean) for name, mean in fill))
    else:
        estimator.preprocessing_ = Preprocessing.from_json(record)
        names = names if metadata["schema"] > 3 else estimator.preprocessing_.names
    known = metadata["schema"] > 3
    estimator.n_features_in_ = metadata["n_columns"] if known else len(estimator.preprocessing_.columns)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if len(estimator.preprocessing_.features) != estimator.embedding_.num_features:
        raise ModelError(
            f"the preprocessing must compute the {metadata['n_features']} features of the network, but it computes "
            f"{len(estimator.preprocessing_.features)}; fit again"
        )


def _restore_target(
    estimator: Estimator, metadata: Mapping[str, Any], parts: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """The target's name, and its scale or its labels."""
    target = None if metadata["target"] is None else Target.from_json(metadata["target"])
    estimator.target_name_ = None if target is None else target.name
    if is_regressor(estimator):
        estimator.single_target_ = metadata["single_target"]
        transform = transform_named(metadata.get("target_transform", Identity().name))  # once there was no other
        noise = metadata.get("missing_noise", {})  # of earlier versions: the same in all rows
        estimator.missing_noise_ = MissingNoise(*(tuple(noise.get(name, ())) for name in ("places", "factors")))
        estimator.units_ = Units(transform, _scaling(parts, "target_scaling", metadata["n_targets"]))
    elif target is not None and metadata["schema"] < 4:  # its classes are the places of the labels
        estimator.classes_ = np.array(target.labels)
    else:
        estimator.classes_ = np.array(metadata["classes"]["values"], dtype=metadata["classes"]["dtype"])


def _target_of(estimator: Estimator) -> Target | None:
    """The record of a single target that had a name."""
    if estimator.target_name_ is None:
        return None
    if is_regressor(estimator):
        return Target((estimator.target_name_,), REGRESSION) if estimator.single_target_ else None
    values = _classes_to_json(estimator.classes_)["values"]
    labels = tuple(int(value) if isinstance(value, float) and value.is_integer() else value for value in values)
    return Target((estimator.target_name_,), CLASSIFICATION, labels)


def _parameters(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator's parameters; schemas 1 and 2 had other names, and a list of α to choose from.

    Before schema 4, training ended by early stopping alone.
    """
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in metadata["parameters"].items()}
    if metadata["schema"] < 3:
        del parameters["alphas"]
        parameters |= {"method": parameters.pop("objective"), "measurement_points": parameters.pop("extra_points")}
        parameters["alpha"] = 1.0 if metadata["alpha"] is None else metadata["alpha"]
    if metadata["schema"] < 4:
        parameters = {name: value for name, value in parameters.items() if name not in ("max_epochs", "patience")}
    if isinstance(parameters.get("class_weight"), tuple):
        parameters["class_weight"] = dict(parameters["class_weight"])
    return parameters


def _scales(metadata: Mapping[str, Any], parameters: Mapping[str, Any]) -> Scales:
    """The prior's scales, which predictions do not depend on; schemas 1 and 2 did not save them."""
    if metadata["schema"] < 3:
        return Scales(len(parameters["hidden_layers"]), (1.0,) * metadata["n_features"], 1.0, 1.0, 1.0)
    return Scales(**metadata["scales"] | {"relevance": tuple(metadata["scales"]["relevance"])})


def _process_record(process: Process | ClassProcess | None) -> dict[str, Any] | None:
    if process is None:
        return None
    record = {"scales": asdict(process.scales), "weight": process.weight}
    return record | ({"temperature": process.temperature} if isinstance(process, ClassProcess) else {})


def _process_tensors(process: Process | ClassProcess) -> dict[str, Tensor]:
    """The rows that the process is conditioned on; its root is computed again."""
    weights = {} if process.rows.weights is None else {"weights": process.rows.weights}
    return {"inputs": process.rows.inputs, "targets": process.rows.targets, **weights}


def _process(
    metadata: Mapping[str, Any], parts: Mapping[str, Mapping[str, Tensor]], device: str
) -> Process | ClassProcess | None:
    record = metadata.get("process")
    if record is None:
        return None
    scales = Scales(**record["scales"] | {"relevance": tuple(record["scales"]["relevance"])})
    saved, N = parts.get("process", {}), len(parts.get("process", {}).get("targets", ()))
    num_classes = None if metadata["classes"] is None else len(metadata["classes"]["values"])
    form = (N, metadata["n_targets"]) if num_classes is None else (N,)
    targets = torch.empty(form, dtype=torch.float32 if num_classes is None else torch.int64)
    expected = {"inputs": torch.empty(N, metadata["n_features"]), "targets": targets}
    if "weights" in saved:
        expected["weights"] = torch.empty(N, dtype=saved["weights"].dtype)
    _check_forms("process", expected, saved)
    rows = _rows(saved).to(device=device)
    if num_classes is None:
        return Process.fit(scales, rows, record["weight"])
    return replace(ClassProcess.fit(scales, rows, num_classes, record["temperature"]), weight=record["weight"])


def _rows(tensors: Mapping[str, Tensor]) -> Batch:
    return Batch(tensors["inputs"], tensors["targets"], weights=tensors.get("weights"))


def _networks(
    metadata: Mapping[str, Any], estimator: Estimator, parts: Mapping[str, dict[str, Tensor]]
) -> tuple[Ensemble, Any]:
    """Ensemble and likelihood as training constructs them, with the saved weights."""
    num_classes = None if metadata["classes"] is None else len(metadata["classes"]["values"])
    config, device, form = estimator.config(), estimator.device, (metadata["n_features"], metadata["n_targets"])
    with torch.device("meta"):  # no weights are drawn: torch's global generator stays as it is
        members = [network_for(*form, num_classes, config, estimator.scales_.activation) for _ in range(config.members)]
        ensemble = Ensemble(members).to(_precision(parts.get("ensemble", {})))
    likelihood = likelihood_for(num_classes, config.noise, 1.0)
    if isinstance(likelihood, Gaussian):  # before schema 4, the noise had no lower bound
        parts.get("likelihood", {}).setdefault("floor", torch.zeros((), dtype=torch.float64))
    assert isinstance(likelihood, nn.Module)
    if type(likelihood).__name__ != metadata["likelihood"]:
        raise ModelError(
            f"its likelihood must be a {type(likelihood).__name__}, given its other settings, but it is a "
            f"{metadata['likelihood']}; fit again"
        )
    for name, module in (("ensemble", ensemble), ("likelihood", likelihood)):
        _check_forms(name, module.state_dict(), parts.get(name, {}))
        module.load_state_dict(parts[name], assign=True)
        module.to(device).eval()
    return ensemble, likelihood


def _precision(tensors: Mapping[str, Tensor]) -> torch.dtype:
    first = next(iter(tensors.values()), torch.empty(0))
    return first.dtype if first.is_floating_point() else torch.float32


def _check_forms(part: str, expected: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    difference = misfit(expected, saved, prefix=f"{part}/")
    if difference is not None:
        raise ModelError(f"the tensors must be of the network that {METADATA} describes, but {difference}; fit again")


def _embedding_tensors(embedding: Embedding) -> dict[str, Tensor]:
    ends = {name: torch.tensor(getattr(embedding, name), dtype=torch.float64) for name in ("starts", "ends")}
    return {"places": torch.tensor(embedding.places, dtype=torch.int64), **ends}


def _embedding(parts: Mapping[str, Mapping[str, Tensor]], inputs: int) -> Embedding:
    """Of a network with so many inputs; models were once saved without any pieces."""
    saved = parts.get("embedding", _embedding_tensors(Embedding(inputs)))
    places = saved.get("places", torch.empty(0, dtype=torch.int64))
    ends = dict.fromkeys(("starts", "ends"), torch.empty(len(places), dtype=torch.float64))
    _check_forms("embedding", {"places": places, **ends}, saved)
    D = inputs - len(places)
    if not all(0 <= place < D for place in places.tolist()):
        raise ModelError(f"the pieces must be of the {D} features of {METADATA}, but one is of another; fit again")
    return Embedding(D, *(tuple(saved[name].tolist()) for name in ("places", "starts", "ends")))


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
    """The records again: NaN stands for what a record does not have."""
    rows = zip(*(tensor.tolist() for tensor in columns.values()), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value == value} for row in rows]


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
    if isinstance(value, dict):
        return [[_as_json(key), _as_json(entry)] for key, entry in value.items()]  # JSON's own keys are text
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
