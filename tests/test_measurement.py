"""Measurement points are uniform over the given region, and `count` of them."""

import jaxtyping
import pytest
import torch
from torch.testing import assert_close

from degp import BatchPart, BatchRegion, Combined, MeasurementAlone, UniformBox, Unlabelled, no_points
from degp.measurement import BatchAndMeasurement, Domain, points_of


def test_points_are_uniform_over_the_box(generator):
    low, high = torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 2.5])
    points = UniformBox(low, high, 100_000)(torch.zeros(3, 2), generator=generator)
    assert ((low <= points) & (points <= high)).all()
    assert_close(points.mean(0), (low + high) / 2, rtol=0, atol=0.01)
    assert_close(points.std(0), (high - low) / 12**0.5, rtol=0.01, atol=0)
    assert abs(torch.corrcoef(points.T)[0, 1]) < 0.02


@pytest.mark.parametrize("shape", [(2,), (3, 4, 4)])
def test_points_fill_the_bounding_box_of_the_data(shape, generator):
    inputs = torch.randn(20, *shape, generator=generator)
    for points in (
        UniformBox.around(inputs, 2000)(inputs[:2], generator=generator),
        BatchRegion(2000)(inputs, generator=generator),
    ):
        assert_close(points.amin(0), inputs.amin(0), rtol=0, atol=0.05)
        assert_close(points.amax(0), inputs.amax(0), rtol=0, atol=0.05)


def test_no_points_are_none():
    assert len(no_points(torch.zeros(3, 2))) == 0


def test_a_box_with_low_above_high_is_refused():
    with pytest.raises(ValueError, match=r"a box needs low ≤ high in every feature, but low is 1.0 and high 0.0"):
        UniformBox(1.0, 0.0, 5)


@pytest.mark.parametrize("make", [BatchRegion, lambda count: UniformBox(0.0, 1.0, count)])
def test_count_must_be_positive(make):
    with pytest.raises(ValueError, match="must be at least 1, but it is 0; use no_points"):
        make(0)


def test_combined_points_are_those_of_each_in_turn():
    inputs, parts = torch.zeros(3, 2), (UniformBox(0.0, 1.0, 2), UniformBox(2.0, 3.0, 4))
    points = Combined(parts)(inputs, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    assert_close(points, torch.cat([part(inputs, generator=generator) for part in parts]), rtol=0, atol=0)
    with pytest.raises(ValueError, match="at least one sampler to combine"):
        Combined(())


def test_unlabelled_points_are_drawn_from_their_set(generator):
    points = torch.arange(10, dtype=torch.uint8)[:, None]
    drawn = Unlabelled(points, 10_000, lambda rows: rows / 2)(torch.zeros(3, 1), generator=generator)
    assert drawn.dtype == torch.float32
    counts = (2 * drawn).long().flatten().bincount()
    assert len(counts) == 10 and (counts - 1000).abs().max() < 5 * 30


def test_unlabelled_points_move_with_a_module_and_are_not_saved():
    sampler = Unlabelled(torch.zeros(4, 2, dtype=torch.uint8), 2)
    assert sampler.to("meta").points.is_meta and not sampler.state_dict()
    assert repr(sampler) == "Unlabelled((4, 2), 2)"
    with pytest.raises(ValueError, match="at least one unlabelled point, but there is none"):
        Unlabelled(torch.zeros(0, 2), 3)


@pytest.mark.parametrize("domain", [BatchAndMeasurement(), MeasurementAlone(), BatchPart(2), BatchPart(9)])
def test_the_rows_of_a_domain_are_the_places_of_its_points(domain):
    inputs, measurement = torch.randn(5, 2), torch.randn(3, 2)
    joint = torch.cat([inputs, measurement])
    assert isinstance(domain, Domain)
    assert_close(points_of(domain, inputs, measurement), joint[domain.rows(5)], rtol=0, atol=0)


def test_a_part_of_the_batch_is_its_last_points_and_the_measurement_points():
    inputs, measurement = torch.randn(5, 2), torch.randn(3, 2)
    assert torch.equal(points_of(BatchPart(2), inputs, measurement), torch.cat([inputs[3:], measurement]))
    assert torch.equal(points_of(BatchPart(2), inputs, measurement[:0]), inputs[3:])
    with pytest.raises(ValueError, match="count is a number of points and must be at least 1, but it is 0"):
        BatchPart(0)


def test_measurement_points_alone_must_be_some():
    with pytest.raises(ValueError, match="on measurement points alone needs some, but there is none; pass measurement"):
        points_of(MeasurementAlone(), torch.zeros(3, 2), torch.zeros(0, 2))


@pytest.mark.parametrize("sampler", [UniformBox(0.0, 1.0, 2), BatchRegion(2)])
@pytest.mark.parametrize("inputs, kind", [(torch.arange(4), "torch.int64"), ({"tokens": torch.zeros(4, 2)}, "dict")])
def test_a_box_needs_real_inputs(sampler, inputs, kind, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, who have no shape checks
    with pytest.raises(TypeError, match=f"one floating-point tensor .*, but the inputs are {kind}; pass a function"):
        sampler(inputs)
