"""From a standardised table to a chosen, calibrated ensemble: what the estimators do, in tensors."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from degp import objectives
from degp.data import hold_out_rows
from degp.distributed import ALONE, Mesh
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from degp.measurement import UniformBox, no_points
from degp.nets import mlp
from degp.objectives import FunctionalObjective
from degp.priors import WeightPenalty, draw_anchors, no_penalty
from degp.priors.evidence import Scales, most_likely_scales
from degp.priors.penalty import Penalty
from degp.selection import Budget, Contest, Selected, select
from degp.side_by_side import Variant
from degp.training import Checkpoints
from degp.typing import Batch

METHODS = ("degp", "de", "rde", "rms")


@dataclass(frozen=True)
class Recipe:
    """How to train on a table.

    Attributes:
        method: "degp", "de", "rde" or "rms".
        hidden_layers: widths of each member's hidden layers.
        members: M.
        alphas: for "degp", the weights of the divergence to choose from, in growing order.
        extra_points: measurement points a step besides the batch, uniform over the region of the data.
        penalties: what pulls on the weights of "degp", to choose from: "none", or "anchored" as in "rms".
        epsilon: λ and jitter of "degp", as a share of the mean variance.
        noise: "constant" or "input-dependent", for real targets.
        validation_fraction: share of the rows on which α, the epoch and the calibration are chosen.
        budget: how long to train.
    """

    method: str = "degp"
    hidden_layers: tuple[int, ...] = (100, 100)
    members: int = 10
    alphas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    extra_points: int = 64
    penalties: tuple[str, ...] = ("none", "anchored")
    epsilon: float = 0.05
    noise: str = "constant"
    validation_fraction: float = 0.15
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"objective must be one of {', '.join(METHODS)}, but it is {self.method!r}")
        if self.noise not in ("constant", "input-dependent"):
            raise ValueError(f"noise must be 'constant' or 'input-dependent', but it is {self.noise!r}")
        if not self.alphas or min(self.alphas) < 0:
            raise ValueError(f"alphas must be a list of numbers that are not negative, but it is {self.alphas}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, but it is {self.validation_fraction}")
        if self.members < 2:
            raise ValueError(f"members must be at least 2, but it is {self.members}")


@dataclass(frozen=True)
class Outcome:
    """What training on a table gives."""

    selected: Selected
    alpha: float | None
    validation: Batch


def train_on_table(
    data: Batch,
    num_classes: int | None,
    recipe: Recipe,
    *,
    checkpoints: Checkpoints | None = None,
    mesh: Mesh = ALONE,
    generator: torch.Generator,
    progress: bool | None = None,
) -> Outcome:
    """Splits off validation rows, lets the evidence set the prior's scales, and trains the variants side by side.

    Args:
        data: standardised inputs (N, D); standardised targets (N, C), or labels (N,) where there are classes.
        num_classes: None for real targets.
        mesh: the ranks that share out the members of all variants; each gets the whole outcome.
    """
    _check_ranks(recipe.members, mesh)
    train, validation = hold_out_rows(data, recipe.validation_fraction, generator=generator)
    contest, ensemble, grid, _ = contest_for(train, validation, num_classes, recipe, generator=generator)
    selected = select(
        ensemble.split(mesh),
        contest,
        train,
        alphas=[alpha or 0.0 for _, alpha in grid],
        budget=recipe.budget,
        checkpoints=checkpoints,
        generator=generator,
        progress=progress,
    )
    return Outcome(selected, grid[selected.index][1], validation)


def contest_for(
    train: Batch,
    validation: Batch,
    num_classes: int | None,
    recipe: Recipe,
    *,
    methods: Sequence[str] = (),
    generator: torch.Generator,
) -> tuple[Contest, Ensemble, list[tuple[str, float | None]], Scales]:
    """All that is trained side by side, from the same start, and what each variant is: its method and its α.

    Args:
        methods: instead of the recipe's one.
    """
    real = _as_real(train.targets, num_classes)
    scales = most_likely_scales(train.inputs, real, len(recipe.hidden_layers), generator=generator)
    make_member = _member_maker(train, num_classes, recipe, scales, generator)
    start = [make_member() for _ in range(recipe.members)]
    variants: list[Variant] = []
    grid: list[tuple[str, float | None]] = []
    for method in methods or (recipe.method,):
        variants += _variants(method, train, num_classes, recipe, scales, start, generator)
        grid += [(method, alpha) for alpha in _alphas(method, recipe)]
    ensemble = Ensemble([copy.deepcopy(network) for _ in variants for network in start])
    contest = Contest(variants, recipe.members, ensemble, validation).to(train.inputs.device)
    return contest, ensemble, grid, scales


def likelihood_for(num_classes: int | None, noise: str, noise_variance: float) -> Likelihood:
    """The likelihood of a table's target, its noise or temperature learned."""
    if num_classes is not None:
        return Categorical(learned=True, num_draws=64)
    if noise == "constant":
        return Gaussian(noise_variance, learned=True)
    return HeteroscedasticGaussian(noise_variance)


def network_for(
    num_features: int, num_targets: int, num_classes: int | None, hidden_layers: Sequence[int], noise: str
) -> nn.Module:
    """One member: an MLP with an output a class, a target, or two a target where the noise depends on the input."""
    if num_classes is not None:
        return mlp(num_features, hidden_layers, num_classes)
    return mlp(num_features, hidden_layers, num_targets * (2 if noise == "input-dependent" else 1))


def _check_ranks(members: int, mesh: Mesh) -> None:
    if members < mesh.members.size:  # the variants that are left in the end may be one
        raise ValueError(
            f"there must be at least as many members as ranks that share them out, but there are {members} for "
            f"{mesh.members.size}; start fewer ranks, or train more members"
        )


def _member_maker(
    data: Batch, num_classes: int | None, recipe: Recipe, scales: Scales, generator: torch.Generator
) -> Callable[[], nn.Module]:
    num_targets = 1 if data.targets.ndim == 1 else data.targets.shape[1]
    weight_prior = scales.weight_prior()

    def make() -> nn.Module:
        network = network_for(data.inputs.shape[1], num_targets, num_classes, recipe.hidden_layers, recipe.noise)
        return weight_prior.initialise(network.to(generator.device), generator=generator)

    return make


def _variants(
    method: str,
    train: Batch,
    num_classes: int | None,
    recipe: Recipe,
    scales: Scales,
    start: Sequence[nn.Module],
    generator: torch.Generator,
) -> list[Variant]:
    def likelihood() -> Likelihood:
        return likelihood_for(num_classes, recipe.noise, scales.noise_variance)

    weight_prior = scales.weight_prior()
    if method == "de":
        return [objectives.de(likelihood())]
    if method == "rde":
        return [objectives.rde(likelihood(), weight_prior)]
    if method == "rms":
        return [objectives.rms(likelihood(), Ensemble(start), weight_prior, generator=generator)]
    prior = scales.nngp()
    measurement = UniformBox.around(train.inputs, recipe.extra_points) if recipe.extra_points else no_points
    anchors = draw_anchors(weight_prior, Ensemble(start), generator=generator)
    penalties: dict[str, Penalty] = {"none": no_penalty, "anchored": WeightPenalty(weight_prior, anchors=anchors)}
    return [
        FunctionalObjective(
            likelihood(),
            prior,
            alpha=alpha,
            measurement=measurement,
            penalty=penalties[penalty],
            epsilon=recipe.epsilon,
        )
        for alpha in recipe.alphas
        for penalty in recipe.penalties
    ]


def _alphas(method: str, recipe: Recipe) -> list[float | None]:
    """α of each of a method's variants, in growing order."""
    return [alpha for alpha in recipe.alphas for _ in recipe.penalties] if method == "degp" else [None]


def _as_real(targets: Shaped[Tensor, "N *C"], num_classes: int | None) -> Float[Tensor, "N C"]:
    """Targets for the evidence: themselves, or one centred column a class, wide enough for logits."""
    if num_classes is None:
        return targets
    onehot = torch.nn.functional.one_hot(targets, num_classes).double()
    return 4 * (onehot - onehot.mean(0))
