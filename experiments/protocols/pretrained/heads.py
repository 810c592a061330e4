"""Heads on cached features: DE, rDE, RMS and DE-GP, and the library's one call `attach`."""

from dataclasses import dataclass

from torch import nn

from degp import attach
from degp.attached.heads import draw_heads, train_heads
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical
from degp.measurement import BatchAndMeasurement, Domain
from degp.methods import Built, Kind, degp
from experiments.protocols.pretrained.scoring import Functions
from experiments.protocols.pretrained.sets import Problem

__all__ = ["Budget", "attached", "heads", "trained_heads"]


@dataclass(frozen=True)
class Budget:
    """How all heads are made and trained.

    Attributes:
        components: principal components of the features, at most.
        width: of a head's hidden layer.
        steps: of Adam, with a cosine schedule.
        penalty: weight of the penalty of rDE and RMS; 1 is maximum a posteriori. Chosen on validation points.
    """

    components: int = 128
    width: int = 256
    steps: int = 2000
    batch_size: int = 256
    learning_rate: float = 3e-3
    penalty: float = 0.3


def heads(
    problem: Problem,
    budget: Budget,
    kind: Kind,
    members: int,
    alpha: float | None,
    domain: Domain = BatchAndMeasurement(),
) -> Functions:
    """Heads trained by a method, all from the same prior with scales by evidence."""
    ensemble, method = trained_heads(problem, budget, kind, members, alpha, domain)
    return Functions(ensemble, problem.points, method)


def trained_heads(
    problem: Problem,
    budget: Budget,
    kind: Kind,
    members: int,
    alpha: float | None = None,
    domain: Domain = BatchAndMeasurement(),
) -> tuple[Ensemble, Built]:
    """The heads in evaluation mode, and their method."""
    scales, points, generator = problem.scales, problem.points, problem.generator()
    ensemble = draw_heads(
        scales, members, budget.width, points.classes, device=points.train.device, generator=generator
    )
    likelihood = Categorical()
    method = kind.build(
        likelihood,
        ensemble,
        scales.weight_prior(),
        functional=lambda: degp(likelihood, scales.nngp(), alpha=1.0 if alpha is None else alpha, domain=domain),
        weight=budget.penalty,
        generator=generator,
    ).to(points.train.device)
    train_heads(
        ensemble,
        points.train,
        method,
        steps=budget.steps,
        rate=budget.learning_rate,
        batch_size=budget.batch_size,
        generator=generator,
        progress=False,
    )
    return ensemble.eval(), method


def attached(problem: Problem, budget: Budget, members: int) -> Functions:
    """`degp.attach` with the budget, on a network whose body is the identity: the features are its inputs."""
    train = problem.features.train
    classes, generator = problem.points.classes, problem.generator()
    network = nn.Sequential(nn.Linear(train.inputs.shape[1], classes)).to(train.device)
    found = attach(
        network,
        train,
        classes=classes,  # few labels may lack the last class
        members=members,
        width=budget.width,
        components=budget.components,
        steps=budget.steps,
        batch_size=budget.batch_size,
        generator=generator,
        progress=False,
    )
    return Functions(found.ensemble, problem.features, found.method)
