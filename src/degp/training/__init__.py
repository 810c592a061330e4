"""⑤⑥ Training: one step, the loop around it, and checkpoints that lose nothing."""

from degp.training.checkpoint import CheckpointError as CheckpointError
from degp.training.checkpoint import Checkpoints as Checkpoints
from degp.training.checkpoint import epoch_of as epoch_of
from degp.training.history import History as History
from degp.training.loop import fit as fit
from degp.training.step import NonFiniteLossError as NonFiniteLossError
from degp.training.step import TrainState as TrainState
from degp.training.step import step as step
from degp.training.stepping import Captured as Captured
from degp.training.stepping import Eager as Eager
from degp.training.stepping import Stepping as Stepping
