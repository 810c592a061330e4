"""Members as users hand them over: networks or a function that makes one, checked and stacked."""

import copy
import warnings
from collections.abc import Callable, Sequence

from torch import nn
from torch.nn.parameter import is_lazy

from degp.ensemble.backbones import bare
from degp.ensemble.stacking import Stacked, difference

__all__ = ["networks_from", "require_initialised", "stacked_if_alike"]


def stacked_if_alike(modules: list[nn.Module]) -> Stacked | list[nn.Module]:
    """The networks as one module; copies of them, with a warning, where they have different architectures."""
    reason = difference(modules)
    if reason is None:
        return Stacked.of(modules)
    warnings.warn(f"members run one after the other, because {reason}", stacklevel=3)
    return copy.deepcopy(modules)


def networks_from(members: Sequence[nn.Module] | Callable[[], nn.Module], count: int | None) -> list[nn.Module]:
    """The networks that a user hands over, as a list or as a function that makes one; errors say what is wrong.

    Networks inside `torch.compile` or `nn.DataParallel` are unwrapped.
    """
    if callable(members) and not isinstance(members, nn.Module):
        if count is None or count < 1:
            raise ValueError(
                f"a function that makes members needs a count, as in Ensemble(make, 10), but it is {count}"
            )
        modules = [members() for _ in range(count)]
    elif isinstance(members, nn.Module) and not isinstance(members, nn.ModuleList):
        raise TypeError(
            f"members must be a list of networks or a function that makes one, but it is one network, "
            f"a {type(members).__name__}"
        )
    else:
        modules = list(members)
        if count not in (None, len(modules)):
            raise ValueError(f"count is for a function, but it is {count} for a list of {len(modules)}")
    if not modules:
        raise ValueError("an ensemble needs at least one member, but the list of members is empty")
    for index, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise TypeError(f"every member must be a torch.nn.Module, but member {index} is a {type(module).__name__}")
        require_initialised(f"member {index}", module)
    modules = [bare(module) for module in modules]  # wrappers differ, and cannot be stacked
    if len({id(module) for module in modules}) != len(modules):
        raise ValueError("members must be different objects, but one network is in the list twice; deepcopy it")
    seen: dict[int, int] = {}
    for index, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            if seen.setdefault(id(parameter), index) != index:
                raise ValueError(
                    f"members must have weights of their own, but member {index} shares {name} with member "
                    f"{seen[id(parameter)]}; pass what is shared as backbone, or deepcopy it"
                )
    return modules


def require_initialised(name: str, module: nn.Module) -> None:
    """Raises ValueError where a lazy layer has no weights yet."""
    lazy = [key for key, tensor in (*module.named_parameters(), *module.named_buffers()) if is_lazy(tensor)]
    if lazy:
        raise ValueError(
            f"weights must be initialised before they can be copied, but {name} has {', '.join(lazy)} of a lazy "
            f"layer without a shape; call the network once on some inputs first"
        )
