"""Networks with several arguments or records of outputs are members and backbones like others."""

from collections import UserDict
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from degp import Batch, Categorical, Ensemble, Unpacked, cache_features, fit, lora, methods, predict
from degp.ensemble.unpacking import takes_one_argument
from tests.fixtures import normal, seeded

X = {"left": normal(6, 3, dtype=torch.float32), "right": normal(6, 3, seed=1, dtype=torch.float32)}
LABELS = torch.arange(6) % 2


@dataclass
class Outputs:
    logits: Tensor
    hidden: Tensor


class Separate(nn.Module):
    """Two arguments, and a record of outputs."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, left, right=None, scale=1.0):
        hidden = self.inner(left - right).tanh()
        return Outputs(self.head(scale * hidden), hidden)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, batch):
        return {"scores": self.layer(batch["left"])}


def test_arguments_go_by_name_or_in_order():
    network = Separate()
    expected = network(**X)
    assert_close(Unpacked(network)(X), expected.logits)
    assert_close(Unpacked(network)((X["left"], X["right"])), expected.logits)
    assert_close(Unpacked(network)(UserDict(X)), expected.logits)
    assert_close(Unpacked(network, "hidden")(X), expected.hidden)


def test_signatures_tell_how_a_network_is_called():
    assert not takes_one_argument(Separate(), X)
    assert takes_one_argument(Whole(), X)
    assert takes_one_argument(nn.Linear(3, 2), X["left"])
    assert not takes_one_argument(nn.Bilinear(3, 3, 2), (X["left"], X["right"]))


@pytest.mark.parametrize("kind", ["members", "low rank", "heads"])
def test_they_train_and_predict(kind):
    torch.manual_seed(0)
    make = {
        "members": lambda: Ensemble(lambda: Unpacked(Separate()), 3),
        "low rank": lambda: lora(Unpacked(Separate()), 3, layers="network.*"),
        "heads": lambda: Ensemble(lambda: nn.Linear(4, 2), 3, backbone=Unpacked(Separate(), "hidden")),
    }[kind]
    ensemble, method = make(), methods.de(Categorical())
    history = fit(ensemble, Batch(UserDict(X), LABELS), method, epochs=20, generator=seeded(), progress=False)
    assert history.column("loss")[-1] < history.column("loss")[0]
    assert_close(predict(ensemble, UserDict(X), method).probabilities, predict(ensemble, X, method).probabilities)


def test_a_record_without_the_output_is_an_error():
    with pytest.raises(TypeError, match="or a record with 'logits', but it returns scores; name the tensor to take as"):
        Unpacked(Whole())((X,))
    with pytest.raises(TypeError, match="or a record with 'other', but it returns Outputs"):
        Unpacked(Separate(), "other")(X)


class Record(nn.Module):
    """A backbone of one argument that returns a record."""

    def forward(self, x):
        return Outputs(x, x)


def test_a_record_of_features_says_what_to_do():
    message = "a network must return one tensor, but it returns a Outputs; wrap it as degp.Unpacked"
    with pytest.raises(TypeError, match=message):
        Ensemble(lambda: nn.Linear(3, 2), 3, backbone=Record())(X["left"])
    with pytest.raises(TypeError, match=message):
        cache_features(Record(), Batch(X["left"], LABELS))
