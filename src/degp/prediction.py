"""⑦ Prediction: a trained ensemble on new inputs, and the method's predictive distribution of their targets."""

import torch
from jaxtyping import Float
from torch import Tensor

from degp.ensemble import Ensemble
from degp.ensemble.members import require_ensemble
from degp.ensemble.modes import evaluation
from degp.ensemble.outputs import naming_inputs
from degp.gaussian import Coefficients
from degp.methods import Method, require_method
from degp.points import Inputs, as_inputs, count_points, take_points
from degp.predictive import Predictive
from degp.runtime.progress import BAR_AFTER, progress_bar

__all__ = ["evaluate", "predict"]


@torch.no_grad()
def predict(
    ensemble: Ensemble,
    inputs: Inputs,
    method: Method,
    *,
    coefficients: Coefficients | None = None,
    num_draws: int = 1000,
    batch_size: int = 4096,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Predictive:
    """The predictive distribution of new targets, by the method that trained the ensemble.

    `predict(ensemble, inputs, methods.de(likelihood))` evaluates any ensemble as a plain mixture of its members.

    Args:
        coefficients: a summary of observations made after training, from `LowRankGaussian.coefficients`.
        num_draws: draws of the function for likelihoods whose predictive distribution has no closed form.
        batch_size: points that the networks see at once.
        progress: a progress bar, after the first second; by default where the output is a terminal.

    Example:
        >>> prediction = predict(ensemble, data.inputs, method)
        >>> prediction.mean.shape, prediction.epistemic.shape
        (torch.Size([24, 1]), torch.Size([24, 1]))
        >>> low, high = prediction.interval(0.9)
    """
    require_method(method)
    outputs = evaluate(ensemble, inputs, batch_size=batch_size, progress=progress)
    return method.predictive(outputs, coefficients=coefficients, num_draws=num_draws, generator=generator)


@torch.no_grad()
def evaluate(
    ensemble: Ensemble, inputs: Inputs, *, batch_size: int = 4096, progress: bool | None = False
) -> Float[Tensor, "M N C"]:
    """The members' outputs in evaluation mode, `batch_size` points at a time; restores each module's mode.

    Args:
        progress: a progress bar, after the first second; None shows it where the output is a terminal.

    Example:
        >>> evaluate(ensemble, data.inputs, batch_size=16).shape
        torch.Size([3, 24, 1])
    """
    require_ensemble(ensemble)
    if batch_size < 1:
        raise ValueError(f"batch_size is a number of points and must be at least 1, but it is {batch_size}")
    inputs = as_inputs(inputs)
    num_points = count_points(inputs)
    if not num_points:
        raise ValueError("there is nothing to predict: inputs have no rows")
    pieces = []
    bar = progress_bar(num_points, "point", progress, mesh=ensemble.mesh, after=BAR_AFTER)
    with evaluation(ensemble), naming_inputs(ensemble, inputs), bar as shown:
        for start in range(0, num_points, batch_size):
            pieces.append(ensemble(take_points(inputs, slice(start, start + batch_size))))
            shown.update(pieces[-1].shape[1])
    return torch.cat(pieces, dim=1)
