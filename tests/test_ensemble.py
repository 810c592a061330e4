"""An ensemble is M separate networks: same outputs, gradients and statistics, however its members run."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.execution import Loop, Vmap
from degp.nets import mlp

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's advice on attention under vmap

M, N = 3, 6
POINTS = torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 8), nn.Linear(8, 2)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.attend(x, x, x, need_weights=False)[0].mean(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x).tanh()).tanh())


class ReplacedBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.register_buffer("center", torch.zeros(2))

    def forward(self, x):
        z = self.head(x)
        if self.training:
            self.center = 0.9 * self.center + 0.1 * z.detach().mean(0)
        return z - self.center


class ChangedBuffer(nn.Module):
    """Needs the statistics it has just changed for its gradient."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        z = self.head(x)
        if self.training:
            self.scale.mul_(0.9).add_(z.detach().abs().mean(0))
        return z / self.scale


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Branch(nn.Module):
    """A layer and whatever else: `act` is called, `number` multiplies."""

    def __init__(self, act=torch.tanh, number=1.0):
        super().__init__()
        self.head, self.act, self.number = nn.Linear(3, 2), act, number

    def forward(self, x):
        return self.act(self.head(x)) * torch.as_tensor(np.asarray(self.number).sum())


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )


def dropout_net():
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


NETS = {
    "mlp": (lambda: mlp(3, [5, 4], 2), POINTS),
    "cnn with batchnorm": (cnn, draw(N, 2, 5, 5)),
    "dropout": (dropout_net, POINTS),
    "embedding and attention": (Attention, torch.arange(N * 4).reshape(N, 4) % 7),
    "groupnorm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Tanh(), nn.Linear(4, 2)), POINTS),
    "tied weights": (Tied, POINTS),
    "replaced buffer": (ReplacedBuffer, POINTS),
    "changed buffer": (ChangedBuffer, POINTS),
    "buffers only in part": (lambda: nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)), POINTS),
    "lstm": (Recurrent, draw(N, 4, 3)),
}
CASES = [
    (name, way, training)
    for name in NETS
    for way in (Vmap(), Loop())
    for training in (True, False)
    if not (way == Vmap() and (name == "lstm" or (name == "dropout" and training)))  # vmap cannot; or draws otherwise
]


def separate(name):
    torch.manual_seed(0)
    return [NETS[name][0]().double() for _ in range(M)]


def loop(modules, inputs):
    return torch.stack([module(inputs) for module in modules])


def tensors_of(modules, listing):
    return {name: torch.stack([dict(listing(m))[name] for m in modules]) for name, _ in listing(modules[0])}


@pytest.mark.parametrize("name, way, training", CASES)
def test_trains_as_separate_networks_do(name, way, training):
    inputs, modules = NETS[name][1], separate(name)
    ensemble = Ensemble(modules, execution=way).train(training)
    for module in modules:
        module.train(training)
    equal = partial(assert_close, rtol=0, atol=0 if way == Loop() else 1e-12)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9) for m in (ensemble, *modules)]
    for _ in range(3):
        results = []
        for run in (ensemble, partial(loop, modules)):
            torch.manual_seed(1)  # the loop draws dropout in the same order
            results.append(run(inputs))
            results[-1].square().sum().backward()
        equal(*results)
        gradients = {
            k: torch.stack([m.get_parameter(k).grad for m in modules]) for k, _ in modules[0].named_parameters()
        }
        equal({k: p.grad for k, p in ensemble.stacked.named_parameters()}, gradients)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    equal(dict(ensemble.stacked.named_parameters()), tensors_of(modules, nn.Module.named_parameters))
    equal(dict(ensemble.stacked.named_buffers()), tensors_of(modules, nn.Module.named_buffers))


@pytest.mark.parametrize("way", [Vmap(), Loop()])
def test_dropout_differs_between_members(way):
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))
    ensemble = Ensemble([copy.deepcopy(net) for _ in range(M)], execution=way)
    masks = ensemble(POINTS.float()) == 0
    assert not any(torch.equal(masks[i], masks[j]) for i in range(M) for j in range(i))
    outputs = ensemble.eval()(POINTS.float())
    assert_close(outputs[0], outputs[1], rtol=0, atol=0)


def test_statistics_alone_can_be_stacked():
    members = [nn.BatchNorm1d(3, affine=False).double().eval() for _ in range(M)]
    for index, member in enumerate(members):
        member.running_mean.fill_(index)
    for way in (Vmap(), Loop()):
        assert_close(Ensemble(members, execution=way)(POINTS), loop(members, POINTS))


def caught(work):
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = work()
    return result, [str(w.message) for w in raised if "performance drop" not in str(w.message)]


def test_lstm_runs_by_loop_and_says_why_once():
    inputs, modules = NETS["lstm"][1], separate("lstm")
    ensemble, silence = caught(lambda: Ensemble(modules))
    outputs, messages = caught(lambda: [ensemble(inputs), ensemble.eval()(inputs)])
    assert silence == [] and ensemble.execution == Loop()
    assert messages == [
        "members run one after the other, because vmap cannot: Batching rule not implemented for aten::lstm.input. "
        "We could not generate a fallback."
    ]
    assert_close(outputs[0], loop(modules, inputs), rtol=0, atol=0)


def test_what_vmap_cannot_do_in_training_only_runs_by_loop_then():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1.0 if not self.training else 1.0 + float(self.bias.sum().item()))

    ensemble = Ensemble(lambda: Noisy(3, 2), M)
    _, silence = caught(lambda: ensemble.eval()(POINTS.float()))
    _, messages = caught(lambda: [ensemble.train()(POINTS.float()), ensemble.eval()(POINTS.float()), ensemble.train()])
    assert silence == [] and len(messages) == 1 and "because vmap cannot" in messages[0]


@pytest.mark.parametrize(
    "members, reason",
    [
        ([mlp(3, [4], 2), mlp(3, [5], 2)], "member 1 is built differently from member 0"),
        ([nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)], r"member 1 has bias as \(2,\) torch.float32 and"),
        ([nn.Flatten(), nn.Flatten()], "they have no parameters to stack"),
    ],
    ids=["widths", "frozen", "nothing to stack"],
)
def test_mixed_members_run_by_loop_and_say_why(members, reason):
    with pytest.warns(UserWarning, match=f"^members run one after the other, because {reason}") as raised:
        ensemble = Ensemble(members)
    assert len(raised) == 1
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()), rtol=0, atol=0)
    trained = [parameter.requires_grad for member in members for parameter in member.parameters()]
    assert [parameter.requires_grad for parameter in ensemble.parameters()] == trained


def scaled_by(number):
    return lambda x: x * number


DIFFERENT = {
    "number": ({"number": 1.0}, {"number": 2.0}),
    "list": ({"number": [1.0, 2.0]}, {"number": [1.0, 3.0]}),
    "array": ({"number": np.ones(2)}, {"number": np.zeros(2)}),
    "tensor": ({"number": torch.ones(2)}, {"number": torch.zeros(2)}),
    "tuple of tensors": ({"number": (torch.ones(1), torch.ones(1))}, {"number": (torch.ones(1), torch.zeros(1))}),
    "function": ({"act": torch.tanh}, {"act": torch.sin}),
    "closure": ({"act": scaled_by(1)}, {"act": scaled_by(2)}),
    "default": ({"act": lambda x, k=1: x * k}, {"act": lambda x, k=2: x * k}),
    "partial": ({"act": partial(F.leaky_relu, negative_slope=0.1)}, {"act": partial(F.leaky_relu, negative_slope=0.2)}),
    "module": ({"act": nn.LeakyReLU(0.1)}, {"act": nn.LeakyReLU(0.2)}),
    "method": ({"act": partial(scaled_by(1).__call__)}, {"act": partial(scaled_by(2).__call__)}),
}


@pytest.mark.parametrize("one, other", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_members_that_differ_in_a_plain_attribute_are_kept_apart(one, other):
    members = [Branch(**one), Branch(**other)]
    with pytest.warns(
        UserWarning, match="because member 1 (has other settings than|is built differently from) member 0"
    ):
        ensemble = Ensemble(members)
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()), rtol=0, atol=0)


def test_members_that_differ_in_a_hook_are_kept_apart():
    members = [nn.Linear(3, 2), nn.Linear(3, 2)]
    members[1].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    with pytest.warns(UserWarning, match="member 1 has other settings than member 0 in its outermost module"):
        ensemble = Ensemble(members)
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()), rtol=0, atol=0)


ALIKE = {
    "closure": lambda: Branch(scaled_by(2)),
    "partial": lambda: Branch(partial(F.leaky_relu, negative_slope=0.1)),
    "list": lambda: Branch(number=[1.0, 2.0]),
    "array": lambda: Branch(number=np.ones(2)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
}


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE.keys())
def test_members_with_equal_attributes_are_stacked(make):
    members = [make() for _ in range(M)]
    ensemble, messages = caught(lambda: Ensemble(members, execution=Vmap()))
    assert messages == [] and ensemble.stacked is not None
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()))


def test_a_factory_makes_each_member_anew():
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(3, [4], 2), M)
    torch.manual_seed(0)
    assert_close(ensemble(POINTS.float()), loop([mlp(3, [4], 2) for _ in range(M)], POINTS.float()))


@pytest.mark.parametrize("name", NETS)
def test_modules_come_back_as_independent_copies(name):
    modules, inputs = separate(name), NETS[name][1]
    back = Ensemble.from_modules(modules).eval().to_modules()
    expected = [copy.deepcopy(m.state_dict()) for m in modules]
    assert_close([dict(m.state_dict()) for m in back], [dict(state) for state in expected], rtol=0, atol=0)
    assert_close(loop(back, inputs), loop([m.eval() for m in modules], inputs), rtol=0, atol=0)
    with torch.no_grad():
        for parameter in back[0].parameters():
            parameter.zero_()
    assert_close([dict(m.state_dict()) for m in modules], [dict(state) for state in expected], rtol=0, atol=0)


@pytest.mark.parametrize("backbone", [None, nn.Linear(3, 3)])
def test_choosing_members(backbone):
    ensemble = Ensemble(lambda: mlp(3, [4], 2), 4, backbone=backbone, execution=Loop()).eval()
    inputs = POINTS.float()
    outputs = ensemble(inputs)
    equal = partial(assert_close, rtol=0, atol=0)
    assert len(ensemble) == 4
    equal(ensemble[1](inputs), outputs[1])
    equal(ensemble[-1](inputs), outputs[3])
    equal(ensemble[:3](inputs), outputs[:3])
    equal(ensemble[:9](inputs), outputs)
    equal(ensemble[[0, 2]](inputs), outputs[[0, 2]])
    equal(loop(ensemble, inputs), outputs)
    assert ensemble[:2].execution == Loop() and not ensemble[:2].training
    with pytest.raises(IndexError):
        ensemble[4]


def test_chosen_members_are_copies():
    ensemble = Ensemble(lambda: nn.Linear(3, 2), M, backbone=nn.Linear(3, 3))
    before = ensemble(POINTS.float())
    for part in (ensemble[0], ensemble[:2]):
        nn.init.zeros_(next(part.parameters()))
    assert_close(ensemble(POINTS.float()), before, rtol=0, atol=0)


@pytest.mark.parametrize("way", [Vmap(), Loop()])
def test_backbone_runs_once_and_collects_the_members_gradients(way):
    trunk = mlp(3, [5], 4).double()
    ensemble = Ensemble(lambda: nn.Linear(4, 2), M, backbone=trunk, execution=way).double()
    whole, calls = ensemble.to_modules(), []
    trunk.register_forward_hook(lambda *_: calls.append(1))
    ensemble(POINTS).square().sum().backward()
    assert len(calls) == 1
    loop(whole, POINTS).square().sum().backward()
    for name, parameter in trunk.named_parameters():
        assert_close(parameter.grad, sum(m[0].get_parameter(name).grad for m in whole), rtol=0, atol=1e-12)


def test_parts_hold_every_weight_once():
    ensemble = Ensemble(lambda: nn.Linear(4, 2), M, backbone=nn.Linear(3, 4))
    stacked, shared = ensemble.parts()
    assert (stacked.members, stacked.shared_by, shared.members, shared.shared_by) == (M, 1, None, M)
    assert [stacked.architecture.get_parameter(n).shape for n in stacked.parameters] == [(2, 4), (2,)]
    held = [id(p) for part in (stacked, shared) for p in part.parameters.values()]
    assert sorted(held) == sorted(id(p) for p in ensemble.parameters())


def test_parts_of_mixed_members_stand_alone():
    with pytest.warns(UserWarning, match="one after the other"):
        ensemble = Ensemble([mlp(3, [4], 2), mlp(3, [], 2)])
    assert [(part.members, part.shared_by, len(part.parameters)) for part in ensemble.parts()] == [
        (None, 1, 4),
        (None, 1, 2),
    ]


def test_moving_saving_and_copying_keep_the_outputs():
    make = partial(Ensemble, cnn, M, backbone=nn.Conv2d(2, 2, 1), execution=Loop())
    ensemble, inputs = make(), NETS["cnn with batchnorm"][1]
    ensemble.to(torch.float64)
    ensemble(inputs)  # moves the running statistics
    expected = ensemble.eval()(inputs)
    other = make(backbone=nn.Conv2d(2, 2, 1)).double().eval()
    other.load_state_dict(ensemble.state_dict())
    assert expected.dtype == torch.float64
    assert_close(other(inputs), expected, rtol=0, atol=0)
    duplicate = copy.deepcopy(ensemble)
    nn.init.zeros_(next(ensemble.parameters()))
    assert_close(duplicate(inputs), expected, rtol=0, atol=0)


def test_frozen_weights_stay_frozen():
    def make():
        net = mlp(3, [4], 2)
        net[0].requires_grad_(False)
        return net

    ensemble = Ensemble(make, M)
    trained = [name for name, parameter in ensemble.named_parameters() if parameter.requires_grad]
    assert trained == ["stacked.2.weight", "stacked.2.bias"]
    assert not any(member[0].weight.requires_grad for member in ensemble)


@pytest.mark.parametrize("way", [Vmap(), Loop()])
@pytest.mark.parametrize("name", ["cnn with batchnorm", "replaced buffer", "changed buffer"])
def test_peek_leaves_statistics_and_differentiates(name, way):
    inputs, modules = NETS[name][1], separate(name)
    ensemble = Ensemble(modules, execution=way)
    before = copy.deepcopy(dict(ensemble.named_buffers()))
    outputs = ensemble.peek(inputs)
    assert_close(dict(ensemble.named_buffers()), before, rtol=0, atol=0)
    outputs.square().sum().backward()
    loop(modules, inputs).square().sum().backward()
    for key, parameter in ensemble.stacked.named_parameters():
        assert_close(parameter.grad, torch.stack([m.get_parameter(key).grad for m in modules]), rtol=0, atol=1e-11)


def test_peek_leaves_statistics_of_backbone_and_mixed_members():
    members = [nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), nn.BatchNorm1d(3)]
    with pytest.warns(UserWarning, match="built differently"):
        ensemble = Ensemble(
            [members[0], nn.Sequential(members[1], nn.Linear(3, 2), nn.Tanh())], backbone=nn.BatchNorm1d(3)
        )
    before = copy.deepcopy(dict(ensemble.named_buffers()))
    ensemble.peek(POINTS.float())
    assert_close(dict(ensemble.named_buffers()), before, rtol=0, atol=0)
    with pytest.raises(RuntimeError):
        ensemble.peek(POINTS.float()[:, :2])
    ensemble(POINTS.float())
    assert all(int(buffer) == 1 for name, buffer in ensemble.named_buffers() if "tracked" in name)


def test_choosing_the_execution_changes_nothing_else():
    torch.manual_seed(0)

    def head():
        return nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))

    ensemble = Ensemble(head, M, backbone=nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)))
    inputs = POINTS.float()
    before, random = copy.deepcopy(ensemble.state_dict()), torch.get_rng_state()
    choice = ensemble.choose_execution(inputs)
    assert torch.equal(torch.get_rng_state(), random)
    assert_close(dict(ensemble.state_dict()), dict(before), rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in ensemble.parameters())
    assert ensemble.execution == choice.execution in (Vmap(), Loop())
    assert set(choice.milliseconds) == {"vmap", "loop"} and str(choice).startswith(
        f"members run by {choice.execution.name}"
    )
    chosen = ensemble.eval()(inputs)
    for ensemble.execution in (Vmap(), Loop()):
        assert_close(ensemble(inputs), chosen)


def test_a_choice_between_one_way_is_no_choice():
    with pytest.warns(UserWarning, match="because vmap cannot"):
        choice = Ensemble(Recurrent, 2).choose_execution(NETS["lstm"][1].float())
    assert (choice.execution, dict(choice.milliseconds)) == (Loop(), {})


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.head, self.function = nn.Linear(3, 2), function

    def forward(self, x):
        return self.function(self.head(x))


NET = nn.Linear(3, 2)
BAD = {
    "no members": (lambda: Ensemble([]), ValueError, "needs at least one member, but the list of members is empty"),
    "no slice": (lambda: Ensemble([NET])[:0], ValueError, "needs at least one member"),
    "twice": (lambda: Ensemble([NET, NET]), ValueError, "one network stands in the list twice; deepcopy it"),
    "shared": (
        lambda: Ensemble(lambda: nn.Sequential(NET, nn.Linear(2, 2)), 2),
        ValueError,
        "weights of their own, but member 1 shares 0.weight with member 0; pass what is shared as backbone",
    ),
    "text": (
        lambda: Ensemble(iter([NET, "net"]).__next__, 2),
        TypeError,
        "every member must be a torch.nn.Module, but member 1 is a str",
    ),
    "one network": (lambda: Ensemble(NET), TypeError, "a function that makes one, but it is one network, a Linear"),
    "one sequential": (lambda: Ensemble(mlp(3, [4], 2), 5), TypeError, "but it is one network, a Sequential"),
    "no count": (lambda: Ensemble(lambda: NET), ValueError, r"needs how many: Ensemble\(make, 10\); count is None"),
    "count 0": (lambda: Ensemble(lambda: NET, 0), ValueError, "count is 0"),
    "count of a list": (lambda: Ensemble([NET], 5), ValueError, "count is for a function, but it is 5 for a list of 1"),
    "one-dimensional": (
        lambda: Ensemble(lambda: Returns(lambda z: z[:, 0]), 2)(POINTS.float()),
        ValueError,
        r"must map 6 points to \(6, C\) outputs, but one member's outputs have shape \(6,\); a single output is",
    ),
    "other points": (lambda: Ensemble(lambda: Returns(torch.t), 2)(POINTS.float()), ValueError, r"have shape \(2, 6\)"),
    "tuple": (
        lambda: Ensemble(lambda: Returns(lambda z: (z, z)), 2)(POINTS.float()),
        TypeError,
        r"each member must give one tensor \(N, C\), but it gives a tuple",
    ),
}


@pytest.mark.parametrize("work, kind, message", BAD.values(), ids=BAD.keys())
def test_bad_members_are_refused_in_words(work, kind, message):
    with pytest.raises(kind, match=message):
        work()


@pytest.mark.filterwarnings("ignore:members run one after the other")
def test_mixed_members_must_agree_on_the_outputs():
    ensemble = Ensemble([nn.Linear(3, 2), nn.Linear(3, 4)])
    with pytest.raises(ValueError, match=r"member 0 gives \(2,\) a point and member 1 \(4,\); change the last layer"):
        ensemble(POINTS.float())
    with pytest.raises(TypeError, match="but it gives a tuple"):
        Ensemble([Returns(lambda z: (z, z)), nn.Linear(3, 2)])(POINTS.float())


def test_a_fault_of_the_network_is_not_blamed_on_vmap():
    ensemble = Ensemble(lambda: nn.Linear(4, 2), M)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ensemble(POINTS.float())
    assert "not yet chosen" in repr(ensemble)
