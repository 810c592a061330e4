"""An ensemble is M separate networks: same outputs, gradients and statistics, whatever the execution strategy."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, BatchRegion, Ensemble, Gaussian, fit, methods, no_points, priors
from degp.nets import mlp
from degp.runtime.execution import Loop, Vmap
from tests.ensemble.networks import NETS, POINTS, M, cnn, loop, separate

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's advice on attention under vmap

CASES = [
    (name, strategy, training)
    for name in NETS
    for strategy in (Vmap(), Loop())
    for training in (True, False)
    if not (
        strategy == Vmap() and (name == "lstm" or (name == "dropout" and training))
    )  # vmap cannot, or draws in another order
]


def tensors_of(modules, listing):
    return {name: torch.stack([dict(listing(m))[name] for m in modules]) for name, _ in listing(modules[0])}


@pytest.mark.parametrize("name, strategy, training", CASES)
def test_trains_as_separate_networks_do(name, strategy, training):
    inputs, modules = NETS[name][1], separate(name)
    ensemble = Ensemble(modules, execution=strategy).train(training)
    for module in modules:
        module.train(training)
    equal = partial(assert_close, rtol=0, atol=0 if strategy == Loop() else 1e-12)
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


@pytest.mark.parametrize("strategy", [Vmap(), Loop()])
def test_dropout_differs_between_members(strategy):
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))
    ensemble = Ensemble([copy.deepcopy(net) for _ in range(M)], execution=strategy)
    masks = ensemble(POINTS.float()) == 0
    assert not any(torch.equal(masks[i], masks[j]) for i in range(M) for j in range(i))
    outputs = ensemble.eval()(POINTS.float())
    assert_close(outputs[0], outputs[1], rtol=0, atol=0)


def caught(work):
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = work()
    return result, [str(w.message) for w in raised if "performance drop" not in str(w.message)]


def test_lstm_runs_in_a_loop_with_one_warning():
    inputs, modules = NETS["lstm"][1], separate("lstm")
    ensemble, silence = caught(lambda: Ensemble(modules))
    outputs, messages = caught(lambda: [ensemble(inputs), ensemble.eval()(inputs)])
    assert silence == [] and ensemble.execution == Loop()
    assert messages == [
        "members run one after the other, because vmap cannot: Batching rule not implemented for aten::lstm.input. "
        "We could not generate a fallback."
    ]
    assert_close(outputs[0], loop(modules, inputs), rtol=0, atol=0)


def test_a_network_that_vmap_supports_in_evaluation_only_trains_in_a_loop():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1.0 if not self.training else 1.0 + float(self.bias.sum().item()))

    ensemble = Ensemble(lambda: Noisy(3, 2), M)
    _, silence = caught(lambda: ensemble.eval()(POINTS.float()))
    _, messages = caught(lambda: [ensemble.train()(POINTS.float()), ensemble.eval()(POINTS.float()), ensemble.train()])
    assert silence == [] and len(messages) == 1 and "because vmap cannot" in messages[0]


def test_a_factory_is_called_once_per_member():
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(3, [4], 2), M)
    torch.manual_seed(0)
    assert_close(ensemble(POINTS.float()), loop([mlp(3, [4], 2) for _ in range(M)], POINTS.float()))


@pytest.mark.parametrize("backbone", [None, nn.Linear(3, 3)])
def test_indexing_selects_members(backbone):
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


def test_selected_members_are_copies():
    ensemble = Ensemble(lambda: nn.Linear(3, 2), M, backbone=nn.Linear(3, 3))
    before = ensemble(POINTS.float())
    for part in (ensemble[0], ensemble[:2]):
        for parameter in part.parameters():
            nn.init.zeros_(parameter)
    assert_close(ensemble(POINTS.float()), before, rtol=0, atol=0)


@pytest.mark.parametrize("strategy", [Vmap(), Loop()])
def test_backbone_runs_once_and_sums_the_members_gradients(strategy):
    backbone = mlp(3, [5], 4).double()
    ensemble = Ensemble(lambda: nn.Linear(4, 2), M, backbone=backbone, execution=strategy).double()
    whole, calls = ensemble.to_modules(), []
    backbone.register_forward_hook(lambda *_: calls.append(1))
    ensemble(POINTS).square().sum().backward()
    assert len(calls) == 1
    loop(whole, POINTS).square().sum().backward()
    for name, parameter in backbone.named_parameters():
        assert_close(parameter.grad, sum(m[0].get_parameter(name).grad for m in whole), rtol=0, atol=1e-12)


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


def normalised():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).double()


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("region", [no_points, BatchRegion(3)], ids=["batch", "measurement"])
def test_a_frozen_backbone_is_left_as_it_was(mode, region):
    backbone = normalised().requires_grad_(False).train(mode)
    backbone[1].train(not mode)  # parts may have modes of their own
    before, modes = copy.deepcopy(backbone.state_dict()), [part.training for part in backbone.modules()]
    ensemble = Ensemble(lambda: nn.Linear(4, 2).double(), M, backbone=backbone)
    features = copy.deepcopy(backbone).eval()(POINTS)
    kernel = priors.KernelPrior(lambda a, b: torch.exp(-torch.cdist(a, b)))
    fit(
        ensemble,
        Batch(POINTS, POINTS[:, :2]),
        methods.degp(Gaussian(0.1), kernel, measurement=region),
        epochs=2,
        batch_size=3,
        progress=False,
    )
    for switch in (ensemble.train, ensemble.eval):
        switch()
        assert_close(ensemble(POINTS), torch.stack([member[1](features) for member in ensemble]))
    assert_close(dict(backbone.state_dict()), dict(before), rtol=0, atol=0)
    assert [part.training for part in backbone.modules()] == modes


def test_a_backbone_that_trains_is_switched_with_the_ensemble():
    backbone = normalised()
    ensemble = Ensemble(lambda: nn.Linear(4, 2).double(), M, backbone=backbone)
    assert not ensemble.eval().backbone[1].training and ensemble.train().backbone[1].training
    ensemble(POINTS)
    assert int(backbone[1].num_batches_tracked) == 1


def test_measurement_points_and_batch_pass_at_once_with_the_statistics_of_both():
    """Running statistics then are those of the mixture of both, as in equation (2) of theory/context.md."""
    ensemble = Ensemble([nn.Sequential(nn.BatchNorm1d(3, momentum=1.0), nn.Linear(3, 2)).double() for _ in range(M)])
    others = 3 * torch.randn(4, *POINTS.shape[1:]).double() + 1
    joint = torch.cat([POINTS, others])
    expected = ensemble(joint)
    outputs = ensemble.joint_outputs(POINTS, others)
    assert_close(outputs, expected, rtol=0, atol=0)
    B, K = len(POINTS), len(others)
    parts = [(part.mean(0), part.var(0, correction=0)) for part in (POINTS, others)]
    mean = (B * parts[0][0] + K * parts[1][0]) / (B + K)
    between = (B * (parts[0][0] - mean) ** 2 + K * (parts[1][0] - mean) ** 2) / (B + K)
    variance = (B * parts[0][1] + K * parts[1][1]) / (B + K) + between
    norm = ensemble.stacked[0]
    assert_close(norm.running_mean, mean.expand(M, -1))
    assert_close(norm.running_var, (variance * (B + K) / (B + K - 1)).expand(M, -1))


@pytest.mark.parametrize("strategy", [Vmap(), Loop()])
@pytest.mark.parametrize("name", ["cnn with batchnorm", "replaced buffer", "changed buffer"])
def test_peek_leaves_statistics_and_differentiates(name, strategy):
    inputs, modules = NETS[name][1], separate(name)
    ensemble = Ensemble(modules, execution=strategy)
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
    "twice": (lambda: Ensemble([NET, NET]), ValueError, "one network is in the list twice; deepcopy it"),
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
    "no count": (
        lambda: Ensemble(lambda: NET),
        ValueError,
        r"needs a count, as in Ensemble\(make, 10\), but it is None",
    ),
    "count 0": (lambda: Ensemble(lambda: NET, 0), ValueError, "needs a count, .* but it is 0"),
    "count of a list": (lambda: Ensemble([NET], 5), ValueError, "count is for a function, but it is 5 for a list of 1"),
    "one-dimensional": (
        lambda: Ensemble(lambda: Returns(lambda z: z[:, 0]), 2)(POINTS.float()),
        ValueError,
        r"must map 6 points to \(6, C\) outputs, but one member's outputs have shape \(6,\); a single output is",
    ),
    "other points": (lambda: Ensemble(lambda: Returns(torch.t), 2)(POINTS.float()), ValueError, r"have shape \(2, 6\)"),
    "lazy": (
        lambda: Ensemble(lambda: nn.Sequential(nn.LazyLinear(3)), 2),
        ValueError,
        "weights must be initialised .*, but member 0 has 0.weight, 0.bias of a lazy layer without a shape; call the",
    ),
    "lazy backbone": (
        lambda: Ensemble(lambda: nn.Linear(3, 2), 2, backbone=nn.LazyBatchNorm1d()),
        ValueError,
        "but the backbone has weight, bias, running_mean, running_var of a lazy layer",
    ),
    "tuple": (
        lambda: Ensemble(lambda: Returns(lambda z: (z, z)), 2)(POINTS.float()),
        TypeError,
        r"a network must return one tensor, but it returns a tuple; wrap it as degp.Unpacked",
    ),
}


@pytest.mark.parametrize("work, kind, message", BAD.values(), ids=BAD.keys())
def test_invalid_members_are_refused_with_the_reason(work, kind, message):
    with pytest.raises(kind, match=message):
        work()


@pytest.mark.filterwarnings("ignore:members run one after the other")
def test_mixed_members_must_agree_on_the_outputs():
    ensemble = Ensemble([nn.Linear(3, 2), nn.Linear(3, 4)])
    with pytest.raises(ValueError, match=r"member 0 has \(2,\) per point and member 1 \(4,\); change the last layer"):
        ensemble(POINTS.float())
    with pytest.raises(TypeError, match="but it returns a tuple"):
        Ensemble([Returns(lambda z: (z, z)), nn.Linear(3, 2)])(POINTS.float())


def test_a_fault_of_the_network_is_not_blamed_on_vmap():
    ensemble = Ensemble(lambda: nn.Linear(4, 2), M)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ensemble(POINTS.float())
    assert "not yet chosen" in repr(ensemble)


def test_compiled_members_are_the_networks_themselves(tmp_path):
    networks = [mlp(3, [5], 2) for _ in range(3)]
    wrapped = [*map(torch.compile, networks[:2]), networks[2]]
    inputs = POINTS.float()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that they run one after the other
        ensemble = Ensemble(wrapped)
    assert_close(ensemble(inputs), torch.stack([network(inputs) for network in networks]))
    ensemble.save(tmp_path / "model")
    assert_close(Ensemble.load(tmp_path / "model")(inputs), ensemble(inputs))
