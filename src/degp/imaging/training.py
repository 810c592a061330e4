"""Training by a recipe: on a GPU each step captured as CUDA graphs in bfloat16, on a CPU as it comes."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from degp.data import Normalise
from degp.distributed import ALONE, Mesh
from degp.ensemble import Ensemble
from degp.execution import Execution, compiled_forward
from degp.imaging.clock import Deadline, OutOfTime
from degp.imaging.recipe import Recipe
from degp.imaging.start import start
from degp.likelihoods import Categorical
from degp.priors import WeightPrior
from degp.side_by_side import Variant
from degp.training import Captured, Checkpoints, Eager, History, Stepping, fit
from degp.training.capture import adam
from degp.training.progress import progress_bar
from degp.typing import Batch

BAR_AFTER = 1.0  # seconds of looking at images without a progress bar
BATCHES = {"cuda": 500, "cpu": 50}  # images at a time to look at


@dataclass(frozen=True)
class Trained:
    """An ensemble with the recipe, the seed and the objective that it was trained by."""

    recipe: Recipe
    seed: int
    ensemble: Ensemble
    objective: Variant
    history: History

    @property
    def likelihood(self) -> Categorical:
        """p(y | f), with the temperature as training left it."""
        assert isinstance(self.objective.likelihood, Categorical)
        return self.objective.likelihood

    @torch.no_grad()
    def outputs(
        self, images: UInt8[Tensor, "N channels H W"], *, batch_size: int | None = None, progress: bool | None = None
    ) -> Float[Tensor, "M N C"]:
        """The members' outputs in evaluation mode and float32.

        Args:
            batch_size: images at a time; by default 500 on a GPU and 50 on a CPU, where more are slower.
            progress: a progress bar; by default where the output is a terminal.
        """
        normalise = _normalise(self.recipe, images.device)
        size = batch_size if batch_size is not None else BATCHES.get(images.device.type, 50)
        self.ensemble.eval()
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
    deadline: Deadline = Deadline(),
    execution: Execution | None = None,
    mesh: Mesh = ALONE,
    progress: bool | None = None,
) -> Trained:
    """An ensemble trained by the recipe on images in uint8, which are on the device to train on.

    Equal seeds start every method from the same weights. DE, rDE and RMS then see the same batches; DE-GP, whose
    objective draws from the same generator, sees others. The history has `validation/weight_norm` and
    `validation/temperature` of each epoch.

    Args:
        checkpoints: where to save at the end, when the time is up, and as often as they say; a run by the same recipe,
            on the same images and from the same seed, that is there already goes on, and another is an error.
        deadline: training stops at the end of an epoch when the next would not be done in time.
        execution: how the members run; by default as suits the device.
        mesh: the ranks that share out the members; all must call this, with the same of everything.

    Raises:
        OutOfTime: the deadline came before the last epoch.
    """
    device = data.inputs.device
    if device.type == "cuda":
        torch.compiler.reset()  # it keeps eight forms of a function at most, and then compiles no more
    ensemble, objective = start(recipe, seed=seed, device=device, execution=execution, mesh=mesh)
    optimizers = _optimizers(recipe, ensemble, objective)
    with _trunk_compiled(ensemble, device):
        history = fit(
            ensemble,
            data,
            objective,
            epochs=recipe.epochs,
            batch_size=recipe.batch_size,
            optimizer=optimizers,
            scheduler=LambdaLR(optimizers[0], lambda epoch: recipe.rate_factor(epoch)),
            validation=lambda members: _told_of_an_epoch(members, objective),
            stop=lambda history: not deadline.allows(_seconds_of_last_epoch(history)),
            stepping=_stepping(recipe, device, mesh),
            checkpoints=None if checkpoints is None else checkpoints.of(_facts(recipe, data, seed)),
            resume=True,
            generator=torch.Generator(device).manual_seed(seed),
            progress=progress,
        )
    if len(history) < recipe.epochs:
        raise OutOfTime(f"the time was up after epoch {len(history)} of {recipe.epochs}")
    return Trained(recipe, seed, ensemble, objective, history)


def _facts(recipe: Recipe, data: Batch, seed: int) -> dict[str, Any]:
    """What tells a run from others; of the images, how many there are and the sum of all they hold."""
    images, sums = tuple(data.inputs.shape), (int(data.inputs.sum()), int(data.targets.sum()))
    return recipe.describe() | {"seed": seed, "images": f"{images}, which sum to {sums}"}


def _told_of_an_epoch(ensemble: Ensemble, objective: Variant) -> dict[str, float]:
    assert isinstance(objective.likelihood, Categorical)
    return {"weight_norm": weight_norm(ensemble), "temperature": objective.likelihood.temperature.item()}


def weight_norm(ensemble: Ensemble) -> float:
    """Mean over the members of ‖wᵢ‖, over all weights with a prior; BatchNorm has none, and a trunk counts for each."""
    own = range(len(ensemble))[ensemble.mesh.block(len(ensemble))]  # of many ranks, this one's members
    squares = torch.zeros(len(own), device=next(ensemble.parameters()).device)
    for part in ensemble.parts():
        for name in WeightPrior().variances(part.architecture):
            values = part.parameters[name].detach()
            squares += (values if part.members else values[None]).flatten(1).square().sum(1)
    return float(ensemble.total(squares.sqrt().sum())) / len(ensemble)


def _trunk_compiled(ensemble: Ensemble, device: torch.device) -> AbstractContextManager[None]:
    """On a GPU what the members share runs compiled, as they do."""
    if device.type != "cuda" or ensemble.backbone is None:
        return nullcontext()
    return compiled_forward(ensemble.backbone)


def _stepping(recipe: Recipe, device: torch.device, mesh: Mesh) -> Stepping:
    transform = _transform(recipe, device)
    if device.type != "cuda":
        return Eager(transform)
    if mesh.world.size > 1:
        warnings.warn(
            "steps are not captured as CUDA graphs, which one rank alone can make: they run eagerly", stacklevel=3
        )
        return Eager(transform, precision=torch.bfloat16, even=True)  # the same batches as captured ones
    return Captured(transform, precision=torch.bfloat16)


def _transform(recipe: Recipe, device: torch.device) -> Callable[[Tensor, torch.Generator], Tensor]:
    normalise, augment = _normalise(recipe, device), recipe.augmentation
    if augment is None:
        return lambda images, generator: normalise(images)
    return lambda images, generator: normalise(augment(images, generator))


def _normalise(recipe: Recipe, device: torch.device) -> Normalise:
    return Normalise(*recipe.scale, channels_last=device.type == "cuda").to(device)


def _optimizers(recipe: Recipe, ensemble: Ensemble, objective: Variant) -> list[Optimizer]:
    """SGD for the weights, with the trunk's own rate, and Adam for a temperature that is learned."""
    device = next(ensemble.parameters()).device
    on_gpu = device.type == "cuda"

    def rate(value: float) -> float | Tensor:
        return torch.tensor(value, device=device) if on_gpu else value  # a graph reads it where it is

    shared = [] if ensemble.backbone is None else list(ensemble.backbone.parameters())
    own = [p for p in ensemble.parameters() if all(p is not other for other in shared)]
    groups = [{"params": own, "lr": rate(recipe.learning_rate)}]
    if recipe.trunk is not None:
        groups.append({"params": shared, "lr": rate(recipe.trunk.learning_rate)})
    optimizers: list[Optimizer] = [SGD(groups, lr=rate(recipe.learning_rate), momentum=recipe.momentum, fused=on_gpu)]
    learned = [p for p in objective.parameters() if p.requires_grad]
    if learned:
        optimizers.append(adam(learned, recipe.temperature_rate))
    return optimizers


def _seconds_of_last_epoch(history: History) -> float:
    before = history.records[-2]["seconds"] if len(history) > 1 else 0.0
    return history.last["seconds"] - before
