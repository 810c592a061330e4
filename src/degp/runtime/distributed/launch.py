"""Joining the ranks that `torchrun` started."""

import atexit
import os
import platform
import sys
import warnings
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from degp.runtime.distributed.agreement import require_same
from degp.runtime.distributed.group import Group
from degp.runtime.distributed.mesh import ALONE, Mesh

__all__ = ["current", "launched", "loopback", "start"]

_current: Mesh = ALONE


def start(*, replicas: int = 1, device: str | None = None, timeout: timedelta | None = None) -> Mesh:
    """The mesh of this program's ranks; a single rank where it was not started by `torchrun`.

    Ranks are numbered row by row: the K ranks of the first replica, then those of the second. Each uses the GPU of its
    local number. Warnings are shown on the first rank only: the others would repeat them.

    Args:
        replicas: D, how many copies of the ensemble split each batch; the other ranks split the members.
        device: "cpu" or "cuda"; by default GPUs where there are any.
        timeout: how long to wait for a rank that does not respond; torch's default.
    """
    global _current
    _, ranks = launched()
    _require_divisible(ranks, replicas)
    own = _device(device)
    if ranks > 1 and not dist.is_initialized():
        _join("cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo", timeout or default_pg_timeout)
    _current = _mesh(replicas, own) if ranks > 1 else Mesh(device=own)
    if not _current.is_first:
        warnings.simplefilter("ignore")
    require_same(_current.world, lambda: {**_versions(), "replicas": replicas, "device": own.type})
    return _current


def loopback(device: torch.device | str) -> Mesh:
    """The mesh of one rank that sends its messages to itself: for tests, and to time on one GPU what many would send.

    Joins a process group of one, unless there is one already; end it by `torch.distributed.destroy_process_group()`.

    Example:
        >>> mesh = loopback("cpu")
        >>> ensemble.split(mesh)(data.inputs).shape
        torch.Size([3, 24, 1])
        >>> torch.distributed.destroy_process_group()
    """
    own = torch.device(device)
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    world, members = Group(dist.group.WORLD), Group(dist.group.WORLD)
    world.alone = members.alone = False
    return Mesh(world, members=members, device=own)


def launched() -> tuple[int, int]:
    """(this rank's number, how many `torchrun` started), known before they join; (0, 1) without `torchrun`.

    Example:
        >>> rank, ranks = launched()
        >>> f"rank {rank} of {ranks}"
        'rank 0 of 1'
    """
    if "RANK" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", 1))


def current() -> Mesh:
    """The mesh of the last `start`; `ALONE` before it. Estimators split their ensembles over it.

    Example:
        >>> current().is_first  # without torchrun the only rank
        True
    """
    return _current


def _join(backend: str, timeout: timedelta) -> None:
    """Like `torch.distributed`, but with a prefix per attempt in the store that `torchrun` keeps.

    Restarted ranks would otherwise read the addresses of the previous attempt from it, and wait for ranks that died.
    """
    store, rank, world = next(rendezvous("env://", timeout=timeout))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = PrefixStore(f"attempt {attempt}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    atexit.register(_leave)


def _leave() -> None:
    """Ends the groups, whose threads otherwise outlive the interpreter, and abort a rank that has done its work.

    A thread that releases a finished operation needs the interpreter. After an error the groups are left as they are,
    since other ranks may wait in the middle of an operation.
    """
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        dist.destroy_process_group()


def _mesh(replicas: int, device: torch.device) -> Mesh:
    """Rank number d·K + k is block k of replica d."""
    shape = (replicas, dist.get_world_size() // replicas)
    grid = init_device_mesh(device.type, shape, mesh_dim_names=("replicas", "members"))
    groups = [Group(handle) for handle in (dist.group.WORLD, grid.get_group("replicas"), grid.get_group("members"))]
    for group in groups:
        atexit.register(group.release)  # before `_leave`: threads run for as long as somebody holds their group
    return Mesh(*groups, device=device)


def _device(asked: str | None) -> torch.device:
    kind = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"the device must be 'cpu' or 'cuda', but it is {kind!r}; a rank finds its own GPU")
    if kind == "cpu":
        return torch.device("cpu")
    own = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0)))
    if torch.cuda.device_count() <= own.index:
        raise ValueError(
            f"every rank of a machine must have a GPU of its own, but rank {own.index} of this one finds "
            f"{torch.cuda.device_count()}; start fewer with --nproc-per-node, or pass device='cpu'"
        )
    torch.cuda.set_device(own)
    return own


def _require_divisible(world: int, replicas: int) -> None:
    if replicas < 1 or world % replicas:
        raise ValueError(
            f"the ranks must form rows of replicas, but {world} ranks cannot be split into {replicas}; "
            f"choose a divisor of {world}"
        )


def _versions() -> dict[str, str | None]:
    try:
        own = version("degp")
    except PackageNotFoundError:
        own = None  # run from the sources
    versions = {"degp": own, "torch": torch.__version__, "Python": platform.python_version()}
    return {f"the version of {name}": value for name, value in versions.items()}
