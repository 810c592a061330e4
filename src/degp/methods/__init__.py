"""④ Methods: DE, rDE, RMS and DE-GP, each a value that knows its loss and its predictive distribution.

    prepared = method.prepare(batch.inputs)                               # what needs no member
    outputs = ensemble.joint_outputs(batch.inputs, prepared.measurement)  # (M, N, C)
    loss = method.loss(outputs, ensemble, batch, prepared)
    predictive = method.predictive(ensemble(new_inputs))

`fit` and `predict` take the same value. Losses are sums over members and means over the batch, so that every member
sees a gradient of the same size whatever the method.
"""

from degp.methods.contract import Method, Prepared, batch_loss, require_method, with_likelihood
from degp.methods.functional import DEGP, degp
from degp.methods.kind import Built, Kind
from degp.methods.memberwise import Memberwise, de, rde, rms

__all__ = [
    "DEGP",
    "Built",
    "Kind",
    "Memberwise",
    "Method",
    "Prepared",
    "batch_loss",
    "de",
    "degp",
    "rde",
    "require_method",
    "rms",
    "with_likelihood",
]
