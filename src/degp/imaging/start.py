"""Where training starts: the same weights for every method, and the method's objective."""

import torch

from degp import objectives
from degp.distributed import ALONE, Mesh
from degp.ensemble import Ensemble
from degp.execution import Compiled, Execution
from degp.imaging.recipe import PriorNetworks, Recipe
from degp.imaging.running import way_for
from degp.likelihoods import Categorical
from degp.priors import Centred, MonteCarloNNGP, Prior, WeightPrior
from degp.side_by_side import Variant


def start(
    recipe: Recipe,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    execution: Execution | None = None,
    mesh: Mesh = ALONE,
) -> tuple[Ensemble, Variant]:
    """The untrained ensemble and the objective of the recipe's method.

    Weights are draws of `WeightPrior`, anchors and a fixed prior others, all drawn on the CPU: equal seeds give equal
    numbers for every method and on every device.

    Args:
        execution: how the members run; by default as suits the device.
        mesh: the ranks that share out the members.
    """
    device = torch.device(device)
    ensemble = _untrained(recipe, torch.Generator().manual_seed(seed))
    objective = _objective(recipe, ensemble, torch.Generator().manual_seed(seed + 1_000_000), device)
    assert ensemble.stacked is not None
    ensemble.execution = execution or way_for(ensemble.stacked, device)
    return ensemble.split(mesh).to(device), objective.to(device)


def _untrained(recipe: Recipe, generator: torch.Generator) -> Ensemble:
    initialise = WeightPrior().initialise
    trunk = None if recipe.trunk is None else initialise(recipe.trunk.make(), generator=generator)
    members = [initialise(recipe.make_network(), generator=generator) for _ in range(recipe.members)]
    return Ensemble(members, backbone=trunk)


def _objective(recipe: Recipe, ensemble: Ensemble, generator: torch.Generator, device: torch.device) -> Variant:
    match recipe.method:
        case "de":
            return objectives.de(Categorical())
        case "rde":
            return objectives.rde(Categorical(), weight=recipe.beta)
        case "rms":
            return objectives.rms(Categorical(), ensemble, weight=recipe.beta, generator=generator)
        case _:
            likelihood = Categorical(recipe.temperature, learned=True)
            prior = _prior(recipe.prior, generator, device)
            return objectives.degp(likelihood, prior, alpha=recipe.alpha, beta=recipe.beta)


def _prior(networks: PriorNetworks, generator: torch.Generator, device: torch.device) -> Prior:
    # its own weights are never used, but ranks compare them: they must not be a matter of chance
    features = WeightPrior().initialise(networks.make_features(), generator=torch.Generator().manual_seed(0))
    prior = MonteCarloNNGP(features, num_draws=networks.num_draws)
    if device.type == "cuda":
        prior.execution = Compiled(prior.execution)
    drawn = prior if networks.redrawn else prior.fixed(generator=generator)
    return Centred(drawn) if networks.centred else drawn
