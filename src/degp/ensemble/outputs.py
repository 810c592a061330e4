"""What members are given and what they give: errors that name shapes and types."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from degp.points import Inputs, tensors_of

__all__ = ["checked", "joined", "naming_inputs"]


@contextmanager
def naming_inputs(ensemble: nn.Module, inputs: Inputs) -> Iterator[None]:
    """Errors of torch in the members as a ValueError that says what they were given."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        given = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors_of(inputs))
        weights = {str(parameter.dtype) for parameter in ensemble.parameters()}
        raise ValueError(
            f"members must be able to run on the inputs, which are {given}, but they cannot: "
            f"{str(error).strip().splitlines()[0]}; their weights are {', '.join(sorted(weights))}: pass the "
            f"features and the dtype that they were made for, for example inputs.float()"
        ) from error


def joined(outputs: Sequence[Tensor]) -> Tensor:
    """The outputs of separate members (N, C) as one tensor (M, N, C); ValueError where their shapes differ."""
    widths = [tuple(output.shape[1:]) for output in outputs]
    for index, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"members must have the same number of outputs, but member 0 has {widths[0]} per point and "
                f"member {index} {width}; change the last layer of one"
            )
    return torch.stack(list(outputs))


def checked(outputs: Tensor, inputs: Inputs) -> Tensor:
    """The same outputs; ValueError where they are not (M, N, C) at N points."""
    num_points = tensors_of(inputs)[0].shape[0]  # not len(), a plain number that would fix the batch of an export
    if outputs.ndim != 3 or outputs.shape[1] != num_points:
        raise ValueError(
            f"each member must map {num_points} points to ({num_points}, C) outputs, but one member's outputs have "
            f"shape {tuple(outputs.shape[1:])}; a single output is (N, 1), for example nn.Linear(…, 1)"
        )
    return outputs
