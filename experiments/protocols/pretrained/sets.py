"""Features of the data sets of a run, with labels, and the prior that all methods on them share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.attached.components import scaled_components
from degp.data import subset
from degp.priors.evidence import Scales
from degp.priors.labels import as_real
from degp.typing import Batch

__all__ = ["FeatureSets", "Problem"]


@dataclass(frozen=True)
class FeatureSets:
    """Features (N, D) with labels, on one device.

    Attributes:
        train: to train on.
        validation: for temperatures and for model selection; never trained on.
        test: to score on.
        ood: out-of-distribution points by name.
        shifted: points of the same classes under a shift.
        shift: its name.
        classes: C.
    """

    train: Batch
    validation: Batch
    test: Batch
    ood: Mapping[str, Float[Tensor, "_ D"]]
    shifted: Batch
    shift: str
    classes: int

    def labelled(self, count: int, seed: int) -> "FeatureSets":
        """With `count` random points to train on; those of a smaller count are among those of a larger one."""
        if count > len(self.train):
            raise ValueError(f"there are {len(self.train)} points to train on, but {count} are wanted; ask for fewer")
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        return replace(self, train=subset(self.train, order[:count].to(self.train.device)))

    @torch.no_grad()
    def mapped(self, layer: nn.Module) -> "FeatureSets":
        """All features through a layer."""

        def of(batch: Batch) -> Batch:
            return replace(batch, inputs=layer(batch.inputs))

        batches = {name: of(getattr(self, name)) for name in ("train", "validation", "test", "shifted")}
        return replace(self, **batches, ood={name: layer(points) for name, points in self.ood.items()})


@dataclass(frozen=True)
class Problem:
    """A label subset: its features, their scaled principal components, and the prior's scales on these.

    Attributes:
        features: as the network gives them.
        projection: to the components, at the prior's scale.
        points: the features through it.
        scales: of the prior, by evidence.
        seed: of the label subset and of everything drawn.
    """

    features: FeatureSets
    projection: nn.Module
    points: FeatureSets
    scales: Scales
    seed: int

    @classmethod
    def of(cls, sets: FeatureSets, labels: int, seed: int, components: int) -> "Problem":
        """The problem of so many labels; components and scales see the labelled points only."""
        own = sets.labelled(labels, seed)
        generator = torch.Generator(own.train.device).manual_seed(seed)
        real = replace(own.train, targets=as_real(own.train.targets, own.classes))
        projection, scales = scaled_components(real, components, labels=own.train.targets, generator=generator)
        return cls(own, projection, own.mapped(projection), scales, seed)

    def generator(self) -> torch.Generator:
        """A new one, seeded for this problem."""
        return torch.Generator(self.points.train.device).manual_seed(1000 + self.seed)
