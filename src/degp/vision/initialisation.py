"""The start of a run: the same initial weights for every method, and the method itself."""

import torch
from torch import nn

from degp import methods
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical
from degp.measurement import no_points
from degp.methods import DEGP, Kind, Memberwise
from degp.priors import Centred, MonteCarloNNGP, Prior
from degp.runtime.distributed import ALONE, Mesh
from degp.runtime.execution import Execution
from degp.vision.recipe import WEIGHT_PRIOR, PriorNetworks, Recipe

__all__ = ["initialise"]

METHOD_SEED = 1_000_000  # added to the seed of the weights: anchors and a fixed prior are independent of them


def initialise(
    recipe: Recipe,
    *,
    seed: int,
    num_images: int | None = None,
    device: torch.device | str = "cpu",
    execution: Execution | None = None,
    mesh: Mesh = ALONE,
) -> tuple[Ensemble, Memberwise | DEGP]:
    """The untrained ensemble and the recipe's method.

    Weights, anchors and a fixed prior are drawn on the CPU: equal seeds give equal weights for every method and on
    every device.

    Args:
        num_images: N, the size of the training set, which `Recipe.bayes_alpha` needs. Without it α is 1, which
            prediction does not use.
        execution: how the members run; by default `fit` chooses.
        mesh: the ranks that the members are distributed across.
    """
    ensemble = _untrained(recipe, execution, torch.Generator().manual_seed(seed))
    alpha = 1.0 if num_images is None else recipe.bayes_alpha(num_images)
    method = _method(recipe, alpha, ensemble, torch.Generator().manual_seed(seed + METHOD_SEED))
    return ensemble.split(mesh).to(device), method.to(device)


def _untrained(recipe: Recipe, execution: Execution | None, generator: torch.Generator) -> Ensemble:
    def drawn(network: nn.Module) -> nn.Module:
        return WEIGHT_PRIOR.initialise(network, generator=generator)

    if recipe.light is not None:
        ensemble = recipe.light(drawn(recipe.make_network()), recipe.members, generator)
        ensemble.execution = execution
        return ensemble
    backbone = None if recipe.backbone is None else drawn(recipe.backbone.make())
    members = [drawn(recipe.make_network()) for _ in range(recipe.members)]
    return Ensemble(members, backbone=backbone, execution=execution)


def _method(recipe: Recipe, alpha: float, ensemble: Ensemble, generator: torch.Generator) -> Memberwise | DEGP:
    def functional() -> DEGP:
        likelihood, prior = Categorical(recipe.temperature, learned=True), _prior(recipe.prior, generator)
        return methods.degp(
            likelihood,
            prior,
            alpha=alpha,
            beta=recipe.beta,
            measurement=recipe.context or no_points,
            domain=recipe.domain,
            weight_prior=WEIGHT_PRIOR,
        )

    method = Kind(recipe.method).build(
        Categorical(), ensemble, WEIGHT_PRIOR, functional=functional, weight=recipe.beta, generator=generator
    )
    return method if recipe.variant is None else recipe.variant(method)


def _prior(networks: PriorNetworks, generator: torch.Generator) -> Prior:
    # only the architecture counts, but ranks compare the weights: they must not be random
    features = WEIGHT_PRIOR.initialise(networks.features(), generator=torch.Generator().manual_seed(0))
    prior = MonteCarloNNGP(
        features,
        num_draws=networks.num_draws,
        weight_prior=WEIGHT_PRIOR,
        readout_weight_variance=2.0,
        readout_bias_variance=0.01,
    )
    drawn = prior if networks.redrawn else prior.fixed(generator=generator)
    return Centred(drawn) if networks.centred else drawn
