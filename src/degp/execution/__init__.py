"""How M members run at once: the same numbers whichever way, at another speed."""

from degp.execution.beside import Beside as Beside
from degp.execution.choice import Choice as Choice
from degp.execution.choice import candidates_for as candidates_for
from degp.execution.choice import fastest as fastest
from degp.execution.choice import kept_randomness as kept_randomness
from degp.execution.choice import workable as workable
from degp.execution.compiled import Compiled as Compiled
from degp.execution.compiled import compiled_forward as compiled_forward
from degp.execution.cpu import no_denormals as no_denormals
from degp.execution.cpu import settle_cpu as settle_cpu
from degp.execution.folded import Folded as Folded
from degp.execution.folded import NotFoldable as NotFoldable
from degp.execution.folded import folded as folded
from degp.execution.recomputed import Recomputed as Recomputed
from degp.execution.ways import Execution as Execution
from degp.execution.ways import Loop as Loop
from degp.execution.ways import Tensors as Tensors
from degp.execution.ways import Vmap as Vmap
from degp.execution.ways import one_tensor as one_tensor
