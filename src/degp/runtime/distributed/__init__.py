"""Training on many ranks: blocks of members, replicas that split the batches; a world of one runs the same code."""

from degp.runtime.distributed.agreement import RanksDiffer, require_same
from degp.runtime.distributed.group import Group
from degp.runtime.distributed.launch import current, launched, loopback, start
from degp.runtime.distributed.mesh import ALONE, Mesh
from degp.runtime.distributed.traffic import StepSizes

__all__ = [
    "ALONE",
    "Group",
    "Mesh",
    "RanksDiffer",
    "StepSizes",
    "current",
    "launched",
    "loopback",
    "require_same",
    "start",
]
