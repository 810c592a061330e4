"""The last linear layer of a trained network: which one it is, and what heads that replace it would lose."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing import assert_close

from degp.ensemble.backbones import Cut
from degp.ensemble.last_layers import callable_with, last_layer
from degp.ensemble.unpacking import Unpacked
from tests.fixtures import normal

X = normal(6, 4, dtype=torch.float32)


class Net(nn.Module):
    """Two layers, and a function of the user's after them."""

    def __init__(self, end=lambda values: values, outputs=3):
        super().__init__()
        self.body, self.head, self.end = nn.Linear(4, 8), nn.Linear(8, outputs), end

    def hidden(self, x):
        return self.body(x).tanh()

    def forward(self, x):
        return self.end(self.head(self.hidden(x)))


class Two(Net):
    """A second layer decides some outputs."""

    def __init__(self):
        super().__init__()
        self.other = nn.Linear(8, 1)

    def forward(self, x):
        return torch.cat([super().forward(x), self.other(self.hidden(x))], 1)


class Skipping(Net):
    """Inputs reach the outputs around the last layer too."""

    def forward(self, x):
        return super().forward(x) + x[:, :3]


class Again(Net):
    """Its last layer is called twice."""

    def __init__(self):
        super().__init__(outputs=8)

    def forward(self, x):
        return self.head(super().forward(x).tanh())


class Masks(nn.Module):
    """One row of outputs per token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(x.view(-1, 2, 2))


class Named(Net):
    """Takes its inputs by name."""

    def forward(self, values, shift=0.0):
        return super().forward(values + shift)


ENDS = {
    "none": (lambda values: values, True),
    "squeezed": (lambda values: values.squeeze(-1), True),
    "column": (lambda values: values[:, 0], False),
    "softmax": (lambda values: values.softmax(1), False),
    "log_softmax": (lambda values: F.log_softmax(values, 1), False),
    "sigmoid": (torch.sigmoid, False),
    "units": (lambda values: 300 + 50 * values, False),
}


@pytest.mark.parametrize("end, is_end", ENDS.values(), ids=ENDS.keys())
def test_features_do_not_depend_on_what_follows_the_last_layer(end, is_end):
    network = Net(end, outputs=1)
    cut, outputs = last_layer(network, X)
    assert (cut, outputs) == (Cut("head", is_end), 1)
    assert_close(cut.backbone(network)(X), network.hidden(X))


def test_a_named_layer_needs_features_only():
    for network, name, outputs in ((Two(), "head", 3), (Skipping(), "head", 3), (Net(), "body", 3)):
        cut, found = last_layer(network, X, name)
        assert (cut.layer, found) == (name, outputs)
    network = Unpacked(Two())
    cut, _ = last_layer(network, X, "other")
    assert cut == Cut("network.other", is_end=False, output="logits")
    assert_close(cut.backbone(network)(X), network.network.hidden(X))
    assert_close(cut.backbone(network.network)(X), network.network.hidden(X))


REFUSED = {
    "two layers": (
        Two(),
        None,
        r"outputs must be one row per point, .* no linear layer decides them; .*body, head, other",
    ),
    "around": (Skipping(), None, r"through its last linear layer alone, but for 6 points they have the shape \(6, 3\)"),
    "twice": (Again(), "head", r"called once, on features \(N, D\), but 'head' gets \(6, 8\), \(6, 8\) of 6 points"),
    "tokens": (Masks(), None, r"for 6 points they have the shape \(6, 2, 3\)"),
    "token": (Masks(), "head", r"but 'head' gets \(6, 2, 2\) of 6 points"),
    "none": (nn.Conv1d(1, 1, 3), None, "has none that can be found: torch.nn.Linear, not scripted"),
    "many": (
        nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)]),
        "x",
        "there are: …, 12, 13, 14, 15, 16, 17, 18, 19$",
    ),
}


@pytest.mark.parametrize("network, name, message", REFUSED.values(), ids=REFUSED.keys())
def test_layers_that_do_not_give_the_outputs_are_refused(network, name, message):
    with pytest.raises(ValueError, match=message):
        last_layer(network, X[:, None] if isinstance(network, nn.Conv1d) else X, name)


def test_one_point_does_not_prove_that_a_layer_decides():
    with pytest.raises(ValueError, match="no linear layer decides them"):
        last_layer(Skipping(), X[:1])


def test_a_network_is_left_as_it_is():
    network = Net(lambda values: values.softmax(1)).train()
    before = copy.deepcopy(network.state_dict())
    cut, _ = last_layer(network, X)
    cut.backbone(network)(X)
    assert isinstance(network.head, nn.Linear) and all(part.training for part in network.modules())
    assert_close(network.state_dict(), before, rtol=0, atol=0)


class Padded(nn.Module):
    """A Transformer with a padding mask: in evaluation mode its layers pass on nested tensors."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, 3)

    def forward(self, inputs):
        values, mask = inputs
        hidden = self.encoder(values, src_key_padding_mask=mask == 0)
        return self.head((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def test_a_transformer_may_have_a_padding_mask():
    inputs = normal(6, 5, 8, dtype=torch.float32), (torch.arange(5) < 2 + torch.arange(6)[:, None] % 4).float()
    assert last_layer(Padded(), inputs) == (Cut("head"), 3)


class Convolutional(nn.Module):
    """Ends with a 1 × 1 convolution, and means over the places before or after it."""

    def __init__(self, pool, end=lambda values: values):
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 5, 3, padding=1), nn.Conv2d(5, 3, 1)
        self.pool, self.end = pool, end

    def forward(self, x):
        hidden = self.body(x.view(-1, 1, 2, 2))
        if self.pool == "before":
            return self.end(self.head(hidden.mean((2, 3), keepdim=True)).flatten(1))
        return self.end(self.head(hidden)).mean((2, 3))


@pytest.mark.parametrize("pool", ["before", "after"])
@pytest.mark.parametrize("end, is_end", [(lambda values: values, True), (torch.relu, False)], ids=["end", "relu"])
def test_the_last_layer_may_be_a_convolution_of_single_places(pool, end, is_end):
    network = Convolutional(pool, end)
    cut, outputs = last_layer(network, X)
    assert (cut, outputs) == (Cut("head", is_end), 3)
    assert_close(cut.backbone(network)(X), network.body(X.view(-1, 1, 2, 2)).mean((2, 3)))


class Ending(Net):
    """Weights of its own follow its last linear layer: a matrix, or a scale."""

    def __init__(self, shape):
        super().__init__()
        self.last = nn.Parameter(torch.full(shape, 2.0))

    def forward(self, x):
        values = super().forward(x)
        return values @ self.last if self.last.ndim > 1 else self.last * values


def test_trained_matrices_behind_the_last_layer_are_replaced_by_name_only():
    with pytest.raises(ValueError, match="'head' is followed by trained weights, last; pass layer='head' to replace"):
        last_layer(Ending((3, 3)), X)
    assert last_layer(Ending((3, 3)), X, "head")[0] == Cut("head", is_end=False)
    assert last_layer(Ending(()), X)[0] == Cut("head", is_end=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_features_in_half_precision_become_single(dtype):
    network, inputs = Net().to(dtype), X.to(dtype)
    cut, _ = last_layer(network, inputs)
    assert cut.in_single and cut.backbone(network)(inputs).dtype == torch.float32
    assert_close(cut.backbone(network)(inputs), network.hidden(inputs).float())
    assert not last_layer(network.double(), X.double())[0].in_single


def test_entries_of_a_dictionary_go_by_name_and_strangers_are_refused():
    inputs = {"values": X}
    assert_close(callable_with(Named(), inputs)(inputs).shape, torch.Size([6, 3]))
    with pytest.raises(ValueError, match="arguments by name, but Named has none called index; leave that out"):
        callable_with(Named(), inputs | {"index": torch.arange(6)})
    with pytest.raises(ValueError, match=r"fails on the first batch, \(6, 4\) of torch.float32, with: .*tuple"):
        callable_with(nn.Linear(4, 3), (X,))


def test_a_network_with_spectral_normalisation_is_not_changed():
    network = nn.Sequential(spectral_norm(nn.Linear(4, 8)), nn.ReLU(), spectral_norm(nn.Linear(8, 3)))
    before = copy.deepcopy(network.state_dict())
    cut, _ = last_layer(network, X)
    assert network.training and cut.layer == "2"
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert_close(cut.backbone(network)(X), network.eval()[:2](X))
