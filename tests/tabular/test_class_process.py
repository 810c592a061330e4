"""The exact processes of classes: predictions, leave-one-out, temperature, and the average with an ensemble."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from degp.calibration import smoothed_nll
from degp.predictive import ClassPredictive, entropy
from degp.priors.evidence import Scales
from degp.tabular.class_process import ClassProcess
from degp.tabular.states import _process, _process_record, _process_tensors
from degp.typing import Batch, joined
from tests import reference
from tests.fixtures import normal

SCALES = Scales(2, (0.7, 1.5), 0.4, 1.2, 0.05)


def rows(count=12, seed=0, weights=None):
    inputs = normal(count, 2, seed=seed)
    noisy = inputs + 0.5 * normal(count, 2, seed=seed + 1)
    return Batch(inputs, (noisy[:, 0] > 0).long() + (noisy[:, 1] > 0.5).long(), weights=weights)


def certain(labels, share):
    """The predictive distribution that gives each label this probability."""
    onehot = torch.nn.functional.one_hot(labels, 3).double()
    p = share * onehot + (1 - share) / 2 * (1 - onehot)
    return ClassPredictive(p, entropy(p), entropy(p))


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2, 12, dtype=torch.float64)])
def test_predictions_are_the_dense_posterior(weights):
    data, points = rows(weights=weights), normal(5, 2, seed=3)
    process = ClassProcess.fit(SCALES, data, 3, temperature=0.7)
    kernel = SCALES.nngp()
    x, z = SCALES.apply(data.inputs), SCALES.apply(points)
    mean, variance = reference.class_moments(
        kernel(x, x), kernel(z, x), kernel(z, z).diagonal(), data.targets, 3, weights=weights
    )
    e = torch.randn(1000, 1, 3, dtype=torch.float64, generator=process.generator())
    draws = torch.softmax((mean + variance.sqrt() * e) / 0.7, -1)
    predictive = process.predictive(points)
    assert_close(predictive.probabilities, draws.mean(0))
    assert_close(predictive.aleatoric, entropy(draws).mean(0))


def test_leave_one_out_is_conditioning_on_all_other_rows():
    """Under the same prior mean."""
    data, kernel, found = rows(), SCALES.nngp(), []
    process, x = ClassProcess.fit(SCALES, data, 3), SCALES.apply(data.inputs)
    for n in range(12):
        rest, own = torch.tensor([m for m in range(12) if m != n]), x[n : n + 1]
        mean, variance = reference.class_moments(
            kernel(x[rest], x[rest]),
            kernel(own, x[rest]),
            kernel(own, own).diagonal(),
            data.targets[rest],
            3,
            prior_mean=process.prior_mean,
        )
        e = torch.randn(1000, 1, 3, dtype=torch.float64, generator=process.generator())
        found.append(torch.softmax(mean + variance.sqrt() * e, -1).mean(0))
    assert_close(process.leave_one_out().probabilities, torch.cat(found))


def test_no_temperature_predicts_left_out_rows_much_better():
    process = ClassProcess.fit(SCALES, rows(400), 3)
    labels, best = process.rows.targets, process.calibrated()
    scores = {
        factor: smoothed_nll(replace(best, temperature=factor * best.temperature).leave_one_out().probabilities, labels)
        for factor in (0.5, 0.8, 1.0, 1.25, 2.0)
    }
    assert scores[1.0] < min(scores.values()) + 1e-3 and best.temperature != 1.0


def test_conditioning_is_fitting_to_all_rows():
    data, new, points = rows(), rows(5, seed=4), normal(4, 2, seed=2)
    one = ClassProcess.fit(SCALES, data, 3, 0.8).conditioned(new)
    other = ClassProcess.fit(SCALES, joined(data, new), 3, 0.8)
    assert torch.equal(one.predictive(points).probabilities, other.predictive(points).probabilities)


def test_a_weight_counts_as_repetition():
    counts, points = torch.tensor([1, 3, 1, 2] * 3), normal(4, 2, seed=2)
    data = rows()
    repeated = Batch(data.inputs.repeat_interleave(counts, 0), data.targets.repeat_interleave(counts))
    weighted = ClassProcess.fit(SCALES, replace(data, weights=counts.double()), 3)
    other = ClassProcess.fit(SCALES, repeated, 3)
    assert_close(weighted.predictive(points).probabilities, other.predictive(points).probabilities)


def test_a_process_is_the_same_for_scaled_inputs():
    factors, points = (0.3, 2.0), normal(4, 2, seed=2)
    process = ClassProcess.fit(SCALES, rows(), 3, 0.6)
    scaled = process.relative_to(factors).predictive(points * torch.tensor(factors))
    assert_close(scaled.probabilities, process.predictive(points).probabilities)


def test_a_prediction_is_independent_of_the_other_points():
    process, points = ClassProcess.fit(SCALES, rows(), 3), normal(6, 2, seed=2)
    assert_close(
        process.predictive(points[2:3]).probabilities, process.predictive(points).probabilities[2:3], rtol=1e-12, atol=0
    )


def test_the_mixture_knows_that_its_parts_disagree():
    process, labels = ClassProcess.fit(SCALES, rows(), 3), torch.tensor([0, 1])
    first, second = certain(labels, 0.98), certain(1 - labels, 0.98)
    served = process.averaged(first, second)
    assert_close(served.probabilities, (first.probabilities + second.probabilities) / 2)
    assert_close(served.aleatoric, first.aleatoric)
    assert_close(served.total, entropy(served.probabilities))
    assert bool((served.epistemic > 0.5).all())


def test_held_out_rows_decide_whether_it_is_averaged():
    process, new = ClassProcess.fit(SCALES, rows(100), 3).calibrated(), rows(100, seed=7)
    assert process.is_worth_averaging(certain(new.targets, 1 / 3), new)
    assert process.is_worth_averaging(process.predictive(new.inputs), new)
    assert not process.is_worth_averaging(certain(new.targets, 0.99), new)
    assert process.is_worth_averaging(certain(new.targets, 0.0), new)


def test_held_out_rows_decide_by_their_weights():
    """Rows of weight 0 have no say."""
    process, new = ClassProcess.fit(SCALES, rows(100), 3).calibrated(), rows(100, seed=7)
    ensemble, known = certain(new.targets, 0.99), torch.arange(100) < 50
    lost = torch.where(known[:, None], ensemble.probabilities, torch.tensor([0.001, 0.001, 0.998]).double())
    divided = replace(ensemble, probabilities=lost)
    assert process.is_worth_averaging(divided, replace(new, weights=(~known).double()))
    assert not process.is_worth_averaging(divided, replace(new, weights=known.double()))


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2, 12, dtype=torch.float64)])
def test_a_saved_process_is_restored_bit_for_bit(weights):
    data, points = rows(weights=weights), normal(5, 2, seed=3).float()
    process = ClassProcess.fit(SCALES, replace(data, inputs=data.inputs.float()), 3).calibrated()
    metadata = {
        "process": _process_record(process),
        "classes": {"values": ["a", "b", "c"]},
        "n_features": 2,
        "n_targets": 1,
    }
    loaded = _process(metadata, {"process": _process_tensors(process)}, "cpu")
    assert torch.equal(loaded.predictive(points).probabilities, process.predictive(points).probabilities)
    assert (loaded.weight, loaded.temperature) == (process.weight, process.temperature)
