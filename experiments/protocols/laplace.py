"""laplace-torch on the last layer of a trained classifier; precision by the marginal likelihood."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from degp.typing import Batch
from experiments.data.backbones import MissingPackageError

__all__ = ["fitted_laplace", "laplace_draws"]


def fitted_laplace(network: nn.Module, train: Batch, structure: str, batch_size: int) -> Any:
    """The posterior of the last layer, whose weights are at their maximum a posteriori.

    Args:
        structure: "full" or "kron".
    """
    try:
        from laplace import Laplace
    except ImportError as error:
        raise MissingPackageError(f"it needs laplace-torch: pip install 'degp[pretrained]' ({error})") from error

    posterior = Laplace(network.eval(), "classification", subset_of_weights="last_layer", hessian_structure=structure)
    data = TensorDataset(train.inputs, train.targets.long())
    batches = BatchSampler(SequentialSampler(data), batch_size, drop_last=False)
    with train.inputs.device:  # the full structure multiplies by an identity matrix on the default device
        posterior.fit(DataLoader(data, sampler=batches, batch_size=None))  # whole batches: rows are slow on a GPU
        posterior.optimize_prior_precision(method="marglik")
    return posterior


def laplace_draws(
    posterior: Any, points: Shaped[Tensor, "N ..."], num_draws: int, seed: int, size: int = 1000
) -> Float[Tensor, "S N C"]:
    """Logits of draws of the last layer, linearised; the same at every call with the same points."""
    generator = torch.Generator(points.device)
    draws = [
        posterior.functional_samples(piece, n_samples=num_draws, generator=generator.manual_seed(seed)).detach()
        for piece in points.split(size)
    ]
    return torch.cat(draws, dim=1)
