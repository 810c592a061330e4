"""⑤⑥ Training: one step, the loop around it, and checkpoints that lose nothing."""

from degp.training.checkpoints import CheckpointError, Checkpoints, epoch_of
from degp.training.graphs import adam
from degp.training.history import Ending, History
from degp.training.loop import fit
from degp.training.plan import Plan
from degp.training.schedules import EachStep
from degp.training.step import NonFiniteLossError, TrainState
from degp.training.stepping import Captured, Eager, Stepping
from degp.training.stopping import EarlyStopping

__all__ = [
    "Captured",
    "CheckpointError",
    "Checkpoints",
    "EachStep",
    "Eager",
    "EarlyStopping",
    "Ending",
    "History",
    "NonFiniteLossError",
    "Plan",
    "Stepping",
    "TrainState",
    "adam",
    "epoch_of",
    "fit",
]
