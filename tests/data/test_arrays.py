"""Arrays, lists and tensors become a batch; unusable values are refused with the reason."""

import jaxtyping
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from degp.data import as_batch, check_inputs, check_weights

ROWS = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize(
    "targets, expected",
    [
        ([0.5, 1.5, 2.5], torch.tensor([[0.5], [1.5], [2.5]])),
        (np.array([[0.5, 1], [1.5, 2], [2.5, 3]]), torch.tensor([[0.5, 1], [1.5, 2], [2.5, 3]])),
        (np.array([0.5, 1.5, 2.5], dtype=np.float16), torch.tensor([[0.5], [1.5], [2.5]])),
        (np.array([0.5, 1.5, 2.5], dtype=">f8"), torch.tensor([[0.5], [1.5], [2.5]])),
        (torch.tensor([0.5, 1.5, 2.5]).double(), torch.tensor([[0.5], [1.5], [2.5]]).double()),
        ([0, 2, 1], torch.tensor([0, 2, 1])),
        (np.array([0, 2, 1], dtype=np.int32), torch.tensor([0, 2, 1], dtype=torch.int32)),
        (np.array([True, False, True]), torch.tensor([True, False, True])),
    ],
    ids=["list", "float64 columns", "float16", "big-endian", "tensor", "labels", "int32 labels", "bool"],
)
def test_targets_become_columns_or_stay_labels(targets, expected):
    assert_close(as_batch(ROWS, targets).targets, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "inputs",
    [
        ROWS,
        np.array(ROWS),
        np.asfortranarray(ROWS),
        np.array(ROWS)[::-1][::-1],
        np.broadcast_to(np.array(ROWS), (3, 2)),
    ],
    ids=["list", "float64", "columns first", "strided", "read-only"],
)
def test_inputs_become_float32_without_a_warning(inputs, recwarn):
    assert_close(as_batch(inputs, [0, 1, 2]).inputs, torch.tensor(ROWS), rtol=0, atol=0)
    assert not recwarn.list


def test_images_and_tokens_keep_their_shape_and_dtype():
    assert as_batch(np.zeros((3, 1, 4, 4)), [0, 1, 2]).inputs.shape == (3, 1, 4, 4)
    assert as_batch([[1, 2], [3, 4]], [0, 1]).inputs.dtype == torch.int64


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 2, 2)])
def test_inputs_that_are_not_finite_are_refused_by_row(bad, shape):
    inputs = torch.zeros(shape)
    inputs[2:] = bad
    message = "inputs must be finite, but 2 of 4 rows have NaN or infinite values, the first is row 2; drop these rows"
    with pytest.raises(ValueError, match=message):
        check_inputs(inputs)
    with pytest.raises(ValueError, match=message):
        as_batch(inputs.numpy(), [0, 1, 2, 3])


@pytest.mark.parametrize(
    "inputs, targets, message",
    [
        (np.zeros((0, 2)), np.zeros(0), "at least one row of data, but inputs have none; was everything filtered out?"),
        (np.array([["a"], ["b"]]), [0, 1], "inputs must be numbers, but their type is <U1; encode text and dates"),
        (ROWS, ["yes", "no", "no"], "targets must be numbers, but their type is <U3"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), [0], "inputs must be numbers, but their type is datetime64"),
    ],
    ids=["no rows", "text", "text labels", "dates"],
)
def test_unusable_values_are_refused_with_the_reason(inputs, targets, message):
    with pytest.raises(ValueError, match=message):
        as_batch(inputs, targets)


def test_inputs_and_targets_must_have_as_many_rows(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    with pytest.raises(ValueError, match="there are 3 rows of inputs and 2 of targets; check how the data were split"):
        as_batch(ROWS, [0, 1])


@pytest.mark.parametrize("weights", [[1, 2, 3], np.array([0.5, 1.0, 1.5]), torch.tensor([2.0, 4.0, 6.0])])
def test_weights_are_relative(weights):
    assert_close(as_batch(ROWS, [0, 1, 2], weights).weights, torch.tensor([0.5, 1.0, 1.5]))


def test_weights_of_one_stay_exact():
    assert as_batch(ROWS, [0, 1, 2], [1.0, 1.0, 1.0]).weights.tolist() == [1.0, 1.0, 1.0]
    assert as_batch(ROWS, [0, 1, 2]).weights is None


def test_unusable_weights_are_refused():
    with pytest.raises(ValueError, match=r"but 1 of 3 are not, the first is -1.0 in row 2; give a row"):
        as_batch(ROWS, [0, 1, 2], [0, 1, -1])
    with pytest.raises(ValueError, match="some weight must be positive, but all 2 are zero"):
        check_weights(torch.zeros(2))
