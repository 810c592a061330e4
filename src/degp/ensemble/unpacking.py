"""Networks that take their inputs as separate arguments, or return more than one tensor, as members and backbones."""

import inspect
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from degp.points import Inputs

__all__ = ["Unpacked", "takes_one_argument"]


class Unpacked(nn.Module):
    """A network whose inputs are separate arguments and which returns a record, such as a model of transformers.

        lora(Unpacked(BertForSequenceClassification.from_pretrained(name)), 50, layers="*attention*")
        Ensemble(make_head, 100, backbone=Unpacked(ViTModel.from_pretrained(name), "pooler_output"))

    Args:
        network: gets the entries of a dictionary by their names, and those of a tuple in order.
        output: the name of the tensor to take, where the network returns several, or its place in a tuple.
    """

    def __init__(self, network: nn.Module, output: str | int = "logits") -> None:
        super().__init__()
        self.network = network
        self.output = output
        self.training = network.training

    def forward(self, inputs: Inputs) -> Float[Tensor, "N ..."]:
        if isinstance(inputs, Mapping):
            return self._picked(self.network(**inputs))
        return self._picked(self.network(*inputs) if isinstance(inputs, (tuple, list)) else self.network(inputs))

    def extra_repr(self) -> str:
        return f"output={self.output!r}"

    def _picked(self, outputs: Any) -> Tensor:
        if isinstance(outputs, Tensor):
            return outputs
        found = _entry(outputs, self.output)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"the network must return a tensor, or a record with {self.output!r}, but it returns "
                f"{_described(outputs)}; name the tensor to take as Unpacked(network, output=…)"
            )
        return found


def _entry(outputs: Any, name: str | int) -> Any:
    """The entry of a mapping, a tuple or a record; None where there is none."""
    if isinstance(name, int):
        return outputs[name] if isinstance(outputs, (tuple, list)) and name < len(outputs) else None
    return outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)


def _described(outputs: Any) -> str:
    if isinstance(outputs, Mapping):
        return ", ".join(map(str, outputs))
    kind = type(outputs).__name__
    return f"a {kind} of {len(outputs)}, to name by 0, 1, …" if type(outputs) in (tuple, list) else kind


def takes_one_argument(network: nn.Module, inputs: Inputs) -> bool:
    """Whether a network takes all inputs as one argument, as its signature has it.

    Not if names of a dictionary are names of its arguments, or if it needs several.
    """
    signature = inspect.signature(network.forward)
    if isinstance(inputs, Mapping) and not set(inputs).isdisjoint(signature.parameters):
        return False
    try:
        signature.bind(inputs)
    except TypeError:
        return False
    return True
