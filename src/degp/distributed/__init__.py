"""Training on many ranks: blocks of members, replicas that split the data; a world of one is the same code."""

from degp.distributed.agreement import RanksDiffer as RanksDiffer
from degp.distributed.agreement import require_same as require_same
from degp.distributed.group import Group as Group
from degp.distributed.launch import current as current
from degp.distributed.launch import launched as launched
from degp.distributed.launch import start as start
from degp.distributed.mesh import ALONE as ALONE
from degp.distributed.mesh import Mesh as Mesh
from degp.distributed.traffic import StepSizes as StepSizes
