"""Training by a recipe: on a GPU each step as CUDA graphs in bfloat16, on a CPU eagerly."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from degp.ensemble import Ensemble
from degp.likelihoods import Categorical
from degp.methods import Method
from degp.runtime.distributed import ALONE, Mesh
from degp.runtime.execution import Execution, compiled_forward
from degp.runtime.progress import BAR_AFTER, progress_bar
from degp.training import Captured, Checkpoints, Eager, History, Plan, Stepping, adam, fit
from degp.training.plan import never
from degp.training.transform import Transform
from degp.typing import Batch
from degp.vision.initialisation import initialise
from degp.vision.recipe import WEIGHT_PRIOR, Recipe

__all__ = ["Trained", "train", "weight_norm"]

BATCHES = {"cuda": 500, "cpu": 50}  # images per batch in evaluation
RECOMPILE_LIMIT = 256  # forms of a function that torch.compile keeps; at its default of 8 a ninth would run eagerly


@dataclass(frozen=True)
class Trained:
    """An ensemble with the recipe, the seed and the method that it was trained by.

    Example:
        >>> from degp.vision import PriorNetworks
        >>> recipe = Recipe(lenet, PriorNetworks(lenet_features), ((0.5,), (0.5,)), method="de", members=2, epochs=1)
        >>> trained = train(recipe, Batch(torch.zeros(8, 1, 28, 28).byte(), torch.arange(8)), seed=0, progress=False)
        >>> trained.seed, len(trained.history), len(trained.ensemble)
        (0, 1, 2)
    """

    recipe: Recipe
    seed: int
    ensemble: Ensemble
    method: Method
    history: History

    @property
    def likelihood(self) -> Categorical:
        """p(y | f) at the temperature of training."""
        return _categorical(self.method)

    @torch.no_grad()
    def outputs(
        self, images: UInt8[Tensor, "N channels H W"], *, batch_size: int | None = None, progress: bool | None = None
    ) -> Float[Tensor, "M N C"]:
        """The members' outputs in evaluation mode and float32.

        Args:
            batch_size: images at a time; by default 500 on a GPU and 50 on a CPU, where more are slower.
            progress: a progress bar; by default where the output is a terminal.
        """
        normalise = self.recipe.normalise(images.device)
        size = batch_size if batch_size is not None else BATCHES.get(images.device.type, 50)
        self.ensemble.eval()
        if images.is_cuda and self.ensemble.execution is None:  # saved members: `fit` has not chosen
            self.ensemble.choose_execution(normalise(images[:size]))
        pieces = []
        with progress_bar(len(images), "image", progress, mesh=self.ensemble.mesh, after=BAR_AFTER) as bar:
            for piece in images.split(size):
                pieces.append(self.ensemble(normalise(piece)))
                bar.update(len(piece))
        return torch.cat(pieces, dim=1)


def train(
    recipe: Recipe,
    data: Batch,
    *,
    seed: int,
    checkpoints: Checkpoints | None = None,
    stop: Callable[[History], bool] = never,
    execution: Execution | None = None,
    mesh: Mesh = ALONE,
    progress: bool | None = None,
) -> Trained:
    """An ensemble trained by the recipe on images in uint8, which are on the device to train on.

    Equal seeds start every method from the same weights. DE, rDE and RMS then see the same batches; DE-GP, whose loss
    draws from the same generator, sees others. The history has `validation/weight_norm` and `validation/temperature`
    per epoch.

    Args:
        checkpoints: where to save at the end and as often as they say. An interrupted run of the same recipe, images
            and seed resumes from there; a different run is an error.
        stop: called after each epoch with the history; True ends training, and the history is then shorter than the
            recipe's epochs.
        execution: how the members run; by default `fit` chooses.
        mesh: the ranks that the members are distributed across; all must call this with equal arguments.
    """
    device = data.inputs.device
    ensemble, method = initialise(
        recipe, seed=seed, num_images=data.population, device=device, execution=execution, mesh=mesh
    )
    optimizers = _optimizers(recipe, ensemble, _categorical(method))
    plan = Plan(
        recipe.epochs,
        recipe.batch_size,
        stop=stop,
        stepping=_stepping(recipe, device, mesh),
        checkpoints=None if checkpoints is None else checkpoints.of(_facts(recipe, data, seed)),
        resume=True,
    )
    with _compilation(ensemble, device):
        history = fit(
            ensemble,
            data,
            method,
            plan,
            optimizer=optimizers,
            scheduler=LambdaLR(optimizers[0], lambda epoch: recipe.rate_factor(epoch)),  # a method would be saved
            validation=lambda members: _epoch_metrics(members, method),
            generator=torch.Generator(device).manual_seed(seed),
            progress=progress,
        )
    return Trained(recipe, seed, ensemble, method, history)


def weight_norm(ensemble: Ensemble) -> float:
    """Mean over the members of ‖wᵢ‖, over all weights with a prior; BatchNorm has none, a backbone counts for each.

    Example:
        >>> for parameter in ensemble.parameters():
        ...     _ = torch.nn.init.ones_(parameter)
        >>> round(weight_norm(ensemble), 3)  # √33: each member has 33 weights
        5.745
    """
    own = range(len(ensemble))[ensemble.mesh.block(len(ensemble))]  # of several ranks, this one's members
    squares = torch.zeros(len(own), device=next(ensemble.parameters()).device)
    for part in ensemble.parts():
        for name in WEIGHT_PRIOR.variances(part.architecture).keys() & part.parameters.keys():  # light members split
            values = part.parameters[name].detach()
            squares += (values if part.members else values[None]).flatten(1).square().sum(1)
    return float(ensemble.total(squares.sqrt().sum())) / len(ensemble)


def _facts(recipe: Recipe, data: Batch, seed: int) -> dict[str, Any]:
    """What distinguishes a run from others; of the images, their shape and the sum of their values."""
    images, sums = tuple(data.inputs.shape), (int(data.inputs.sum()), int(data.targets.sum()))
    return recipe.describe() | {"seed": seed, "images": f"{images}, which sum to {sums}"}


def _epoch_metrics(ensemble: Ensemble, method: Method) -> dict[str, float]:
    return {"weight_norm": weight_norm(ensemble), "temperature": _categorical(method).temperature.item()}


def _categorical(method: Method) -> Categorical:
    assert isinstance(method.likelihood, Categorical)
    return method.likelihood


@contextmanager
def _compilation(ensemble: Ensemble, device: torch.device) -> Iterator[None]:
    """On a GPU: a compiled backbone, and enough compiled forms for many runs in one process."""
    if device.type != "cuda":
        yield
        return
    backbone = nullcontext() if ensemble.backbone is None else compiled_forward(ensemble.backbone)
    with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT), backbone:
        yield


def _stepping(recipe: Recipe, device: torch.device, mesh: Mesh) -> Stepping:
    transform = _transform(recipe, device)
    if device.type != "cuda":
        return Eager(transform)
    if mesh.replicas.size > 1:
        warnings.warn("steps run eagerly, and slower: CUDA graphs need a single replica", stacklevel=3)
        return Eager(transform, precision=torch.bfloat16, even=True)  # the same batches as captured ones
    return Captured(transform, precision=torch.bfloat16)


def _transform(recipe: Recipe, device: torch.device) -> Transform:
    normalise, augment = recipe.normalise(device), recipe.augmentation
    if augment is None:
        return lambda images, generator: normalise(images)
    return lambda images, generator: normalise(augment(images, generator))


def _optimizers(recipe: Recipe, ensemble: Ensemble, likelihood: Categorical) -> list[Optimizer]:
    """SGD for the weights, with the backbone's own rate, and Adam for a learned temperature."""
    device = next(ensemble.parameters()).device
    on_gpu = device.type == "cuda"

    def rate(value: float) -> float | Tensor:
        return torch.tensor(value, device=device) if on_gpu else value  # a graph reads it from the GPU

    shared = [] if ensemble.backbone is None else list(ensemble.backbone.parameters())
    own = [p for p in ensemble.parameters() if all(p is not other for other in shared)]
    groups = [{"params": own, "lr": rate(recipe.learning_rate)}]
    if recipe.backbone is not None:
        groups.append({"params": shared, "lr": rate(recipe.backbone.learning_rate)})
    optimizers: list[Optimizer] = [SGD(groups, lr=rate(recipe.learning_rate), momentum=recipe.momentum, fused=on_gpu)]
    learned = [p for p in likelihood.parameters() if p.requires_grad]
    return [*optimizers, adam(learned, recipe.temperature_rate)] if learned else optimizers
