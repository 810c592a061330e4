"""The one call: from a trained network and data to heads that predict with uncertainty."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from degp.attached.heads import train_calibrated
from degp.attached.predictor import Attached
from degp.attached.preparing import prepare
from degp.attached.targets import Targets, checked_targets
from degp.data.arrays import check_weights
from degp.data.batches import batches_of, count_of
from degp.ensemble import Ensemble
from degp.ensemble.last_layers import callable_with, last_layer
from degp.ensemble.modes import with_gradients
from degp.features import cache_features
from degp.typing import Batch

__all__ = ["attach"]


def attach(
    network: nn.Module,
    data: Any,
    *,
    validation: Any = None,
    layer: str | None = None,
    classes: int | None = None,
    members: int = 100,
    width: int = 256,
    components: int = 128,
    steps: int = 2000,
    batch_size: int = 128,
    path: Path | str | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Attached:
    """Uncertainty for a trained network: its last linear layer is replaced by M heads, trained as DE-GP with α = 1.

        attached = attach(network, loader, validation=other_loader)
        prediction = attached.predict(inputs)   # mean and std, or probabilities; epistemic, aleatoric

    The network is not changed. Each point passes it once; the prior is the NN-GP of the features' first principal
    components (`scaled_components`), with scales that maximise the evidence.

    On points that it was trained on, a network's features give its errors away too well: intervals from them are too
    short. Pass points that it has not seen as `validation`, or as `data`. For classes without validation points, 15 %
    of the data are held out at first, to fit a temperature.

    Args:
        network: trained, on the device where it is to run. It may take its inputs as one argument or as several, and
            return a tensor or a record with `logits`, as models of transformers do.
        data: a DataLoader, a Dataset, a `Batch` or an iterable of batches; integer targets are classes.
        validation: points that the network was not trained on, in any form that `data` may have; noise variances, or
            the temperature, are fitted on them. Needed where the network was trained on `data`; without them a warning
            says so.
        layer: the name of the layer to replace, with all that follows it; by default the last linear one, where the
            network's outputs depend on it alone.
        classes: their number, where labels are for another task than the network's own, or the last are missing, or
            labels are real numbers or one-hot rows.
        members: M.
        width: units of each head's hidden layer.
        components: at most so many principal components of the features.
        steps: of Adam at 3e-3 with a cosine schedule, up to whole epochs; too few leave the heads near the prior.
        batch_size: of these steps.
        path: a file to cache the features in, with their targets; one that exists is read instead of the data.
        generator: for all draws, on the network's device.
        progress: a progress bar; by default where the output is a terminal.
    """
    _require_network(network)
    _require_at_least(2, members=members)
    _require_at_least(1, width=width, components=components, steps=steps, batch_size=batch_size)
    device = _device(network)
    _require_generator_on(device, generator)
    if validation is None:
        _warn_of_seen_points()
    with with_gradients(), torch.autocast(device.type, enabled=False):
        batches = batches_of(data, device=device)
        first = _first(batches)
        network = callable_with(network, first.inputs)
        cut, outputs = last_layer(network, first.inputs, layer)
        body = cut.backbone(network)
        points = chain([first], batches)
        features = cache_features(body, points, path=path, total=count_of(data), progress=progress)
        _check_features(features)
        targets = Targets.of(features, outputs, classes)
        sizes = {"members": members, "width": width, "components": components}
        made = prepare(body, features, targets, **sizes, generator=generator)
        ensemble, method = made.ensemble, made.method
        held_out = None if validation is None else _held_out(ensemble, validation, targets, device, progress)
        heads = ensemble.on_features()
        options = {"batch_size": batch_size, "generator": generator, "progress": progress}
        train_calibrated(heads, made.points, method, held_out, steps=steps, **options)
    ensemble.execution = heads.execution
    return Attached(ensemble.eval(), method.requires_grad_(False), cut, made.scales)


def _warn_of_seen_points() -> None:
    warnings.warn(
        "without validation points, uncertainty is judged by the errors on data, which are too small if the network "
        "was trained on these points; pass points that it has not seen as validation",
        stacklevel=3,
    )


def _require_network(network: object) -> None:
    if not isinstance(network, nn.Module):
        raise TypeError(
            f"the network must be a trained torch.nn.Module, but it is a {type(network).__name__}; for a table without "
            f"a network, use degp.sklearn.DEGPRegressor or DEGPClassifier"
        )
    if isinstance(network, torch.jit.ScriptModule):
        raise TypeError(
            "a scripted or traced network cannot be taken apart at its last layer; pass the nn.Module itself"
        )
    if any(parameter.is_meta for parameter in network.parameters()):
        raise ValueError("the network's weights must be loaded, but some are on the meta device; load them first")


def _require_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, but it is {value}; its default is a good start")


def _device(network: nn.Module) -> torch.device:
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def _require_generator_on(device: torch.device, generator: object) -> None:
    if not isinstance(generator, torch.Generator | None):
        raise TypeError(
            f"the generator must be a torch.Generator, but it is a {type(generator).__name__}; pass "
            f"torch.Generator({str(device)!r}).manual_seed(0)"
        )
    if generator is not None and generator.device.type != device.type:
        raise ValueError(
            f"the generator must be on the network's device, {device}, but it is on {generator.device}; pass "
            f"torch.Generator({str(device)!r})"
        )


def _first(batches: Iterator[Batch]) -> Batch:
    """The first batch, with a point in it."""
    for batch in batches:
        if len(batch):
            return batch
    raise ValueError(
        "members need data to train on, but there is no batch; is the iterator used up, or batch_size above the number "
        "of points with drop_last=True?"
    )


def _held_out(
    ensemble: Ensemble, validation: Any, known: Targets, device: torch.device, progress: bool | None
) -> Batch:
    """Features of validation points, whose targets are of the kind and number of the data's."""
    assert ensemble.backbone is not None
    try:
        batches = batches_of(validation, device=device)
        points = chain([_first(batches)], batches)
        features = cache_features(ensemble.backbone, points, total=count_of(validation), progress=progress)
        _check_features(features)
        targets, columns = checked_targets(features.targets, known.outputs, None if known.units else known.outputs)
    except ValueError as error:
        raise ValueError(f"validation points must be like those of the data, but here {error}") from error
    if columns != known.outputs:
        raise ValueError(
            f"validation points must have the targets of the data, but there are {columns} targets per point, and "
            f"{known.outputs} in the data; take both from one data set"
        )
    return replace(features, targets=targets)


def _check_features(features: Batch) -> None:
    """Raises ValueError where heads cannot be trained on these."""
    if len(features) < 2:
        raise ValueError(f"members need at least two points to differ on, but there is {len(features)}; pass more data")
    bad = ~features.inputs.isfinite().all(1)
    if bool(bad.any()):
        raise ValueError(
            f"the network's features must be finite, but those of {int(bad.sum())} of {len(bad)} points have NaN or "
            f"infinite values, the first is point {int(bad.nonzero()[0])}; drop these points, or fill in their inputs"
        )
    if features.weights is not None:
        check_weights(features.weights)
