"""Weight penalties pull every member to its own anchors, also if a rank holds only some of the members."""

import torch
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.ensemble import Part
from degp.priors import WeightPenalty, WeightPrior, draw_anchors

PRIOR = WeightPrior()


class SomeMembers:
    """The rows of an ensemble's members that one rank holds."""

    def __init__(self, ensemble, rows):
        (part,) = ensemble.parts()
        own = {name: value[rows] for name, value in part.parameters.items()}
        self.part = Part(part.architecture, own, rows.stop - rows.start, rows=rows)

    def parts(self):
        return [self.part]

    def total(self, own):
        return own


def test_members_in_blocks_have_the_penalty_of_the_whole():
    ensemble = Ensemble(lambda: nn.Linear(3, 2), 4).double()
    anchors = draw_anchors(PRIOR, ensemble, generator=torch.Generator().manual_seed(0))
    penalty = WeightPenalty(PRIOR, 0.5, anchors)
    blocks = [penalty(SomeMembers(ensemble, rows), 10) for rows in (slice(0, 1), slice(1, 4))]
    assert_close(sum(blocks), penalty(ensemble, 10))


def test_a_penalty_of_members_at_their_anchors_is_zero():
    ensemble = Ensemble(lambda: nn.Linear(3, 2), 4).double()
    (anchors,) = draw_anchors(PRIOR, ensemble, generator=torch.Generator().manual_seed(0))
    ensemble.stacked.load_state_dict(anchors)
    assert_close(WeightPenalty(PRIOR, 1.0, [anchors])(ensemble, 1), torch.zeros((), dtype=torch.float64))
