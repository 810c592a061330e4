"""Light members equal M whole networks with dense weights: outputs, gradients, statistics; and the base exists once."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing import assert_close

from degp import (
    Batch,
    Categorical,
    Checkpoints,
    Ensemble,
    Gaussian,
    Plan,
    fit,
    lora,
    methods,
    predict,
    priors,
    rank_one,
)
from degp.ensemble.layers import LowRank, RankOne
from degp.nets import mlp
from degp.runtime.execution import Loop, Recomputed, Vmap
from tests.ensemble.networks import NETS, POINTS, Tied, Transformer, cnn
from tests.fixtures import normal, seeded

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's advice on attention under vmap

M = 4
TOKENS = NETS["embedding and attention"][1]
IMAGES = NETS["cnn with batchnorm"][1]


def grouped():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2, padding=1, padding_mode="circular", bias=False), nn.ReLU(), cnn4()
    )


def cnn4():
    return nn.Sequential(nn.Conv2d(4, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2))


BASES = {
    "mlp": (lambda: mlp(3, [5, 4], 2), POINTS),
    "cnn": (cnn, IMAGES),
    "grouped convolution": (grouped, IMAGES),
    "transformer": (Transformer, TOKENS),
    "tied": (Tied, POINTS),
    "one layer": (lambda: nn.Linear(3, 2), POINTS),
}
KINDS = {"rank one": rank_one, "low rank": partial(lora, rank=2)}


def made(name, kind):
    torch.manual_seed(0)
    network = BASES[name][0]().double()
    ensemble = KINDS[kind](network, M, generator=seeded(1))
    ensemble.execution = Vmap()  # not by measurement: another strategy is equal up to rounding only
    return network, ensemble


def dense_states(ensemble, network):
    """Each member's tensors under the network's own names, dense and differentiable in the ensemble's parameters."""
    tensors = dict(ensemble.stacked.named_parameters(remove_duplicate=False)) | dict(ensemble.stacked.named_buffers())
    layers = dict(ensemble.stacked.named_modules())

    def one(m, name):
        full, place = tensors.get(name), name.rpartition(".")[0]
        layer = layers.get(place)
        if isinstance(layer, (RankOne, LowRank)):
            full = getattr(layer.base, name.rpartition(".")[2])
            name = f"{place}.base.{name.rpartition('.')[2]}" if place else f"base.{name}"
        value = full if name in ensemble._shared else full[m]
        if not name.endswith("base.weight"):
            return value
        if isinstance(layer, LowRank):
            return value + torch.einsum("kr,rd->kd", layer.up.weight[m], layer.down.weight[m])
        rows, columns = layer.output_factor[m], layer.input_factor[m]
        if value.shape[1] != len(columns):  # a grouped convolution: kernel k sees the channels of its group
            groups = len(columns) // value.shape[1]
            columns = columns.view(groups, -1)[torch.arange(len(rows)) * groups // len(rows)]
        scale = rows[:, None] * columns
        return value * scale.view(*scale.shape, *[1] * (value.ndim - 2))

    return [{name: one(m, name) for name in network.state_dict()} for m in range(M)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("strategy", [Vmap(), Loop(), Recomputed()], ids=lambda strategy: strategy.name)
def test_members_equal_networks_with_dense_weights(name, kind, strategy):
    network, ensemble = made(name, kind)
    ensemble.execution, inputs = strategy, BASES[name][1]
    ensemble.eval()
    network.eval()
    trained = {key: p for key, p in ensemble.named_parameters() if p.requires_grad}
    results = []
    for outputs in (
        ensemble(inputs),
        torch.stack(
            [functional_call(network, state, (inputs,), tie_weights=False) for state in dense_states(ensemble, network)]
        ),
    ):
        weighted = (outputs * normal(*outputs.shape, seed=3)).sum()
        gradients = torch.autograd.grad(weighted, list(trained.values()), allow_unused=True)
        results.append({"outputs": outputs, **{k: g for k, g in zip(trained, gradients, strict=True) if g is not None}})
    assert results[0]["outputs"].std(0).min() > 0
    assert_close(*results, rtol=0, atol=1e-10)
    assert_close(torch.stack([member(inputs) for member in ensemble.eval()]), results[0]["outputs"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BASES)
def test_single_members_are_plain_networks(name, kind):
    network, ensemble = made(name, kind)
    for member in ensemble:
        assert str(member) == str(network)
        member.load_state_dict(network.state_dict())


@pytest.mark.parametrize("strategy", [Vmap(), Loop()])
def test_rank_one_members_have_their_own_batch_statistics(strategy):
    network, ensemble = made("cnn", "rank one")
    members = ensemble.train().to_modules()
    ensemble.execution = strategy
    outputs = ensemble(IMAGES)
    assert_close(outputs, torch.stack([member.train()(IMAGES) for member in members]), rtol=0, atol=1e-10)
    assert_close(ensemble.stacked[1].running_mean, torch.stack([member[1].running_mean for member in members]))
    assert ensemble.stacked[1].running_mean.std(0).min() > 0
    assert not network[1].running_mean.any()  # the network was copied


@pytest.mark.parametrize("name", BASES)
def test_low_rank_members_leave_the_network_alone(name):
    torch.manual_seed(0)
    network, inputs = BASES[name][0]().double(), BASES[name][1]
    network.train()
    before = copy.deepcopy(network.state_dict())
    ensemble = lora(network, M, rank=1)
    data = Batch(inputs, torch.arange(len(inputs)) % 2)
    fit(ensemble, data, methods.de(Categorical()), epochs=3, batch_size=3, progress=False)
    assert_close(dict(network.state_dict()), dict(before), rtol=0, atol=0)
    assert all(part.training for part in network.modules())
    assert all(parameter.requires_grad for parameter in network.parameters())
    own = dict(ensemble.stacked.named_parameters(remove_duplicate=False))
    storages = {parameter.data_ptr() for parameter in network.parameters()}
    shared = [parameter for name, parameter in own.items() if name in ensemble._shared]
    assert storages == {parameter.data_ptr() for parameter in shared}  # stored once, without a copy


def test_two_hundred_members_cost_their_factors():
    network = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 10))
    size = sum(parameter.numel() for parameter in network.parameters())
    sizes = {
        kind: sum(parameter.numel() for parameter in make(network, 200).parameters()) for kind, make in KINDS.items()
    }
    factors = 100 + 400 + 400 + 10
    assert sizes["rank one"] == 100 * 400 + 400 * 10 + 200 * (factors + 400 + 10)
    assert sizes["low rank"] == size + 200 * 2 * factors


def test_the_base_runs_once_up_to_the_first_member():
    network = mlp(3, [5, 4], 2)
    ensemble = lora(network, M, layers="4")
    seen = []
    ensemble.stacked[0].register_forward_hook(lambda layer, given, result: seen.append(torch.func.debug_unwrap(result)))
    ensemble(POINTS.float())
    assert [tuple(value.shape) for value in seen[-1:]] == [(len(POINTS), 5)]


class Conv1D(nn.Module):
    """As in transformers: a linear layer with its weight transposed."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


def test_low_rank_updates_of_transposed_layers():
    ensemble = lora(nn.Sequential(Conv1D(5, 3), nn.Tanh(), Conv1D(2, 5)), M)
    outputs = ensemble(POINTS.float())
    assert_close(torch.stack([member(POINTS.float()) for member in ensemble]), outputs)
    assert outputs.std(0).min() > 0 and isinstance(ensemble[0][0], Conv1D)


def test_layers_are_chosen_by_pattern():
    def updated(**options):
        modules = lora(Transformer(), M, **options).stacked.named_modules()
        return {name for name, layer in modules if isinstance(layer, LowRank)}

    assert updated(layers=["query", "*.linear?"]) == {"query", "encoder.linear1", "encoder.linear2"}
    assert updated(layers="encoder*") == {"encoder.linear1", "encoder.linear2", "encoder.self_attn.out_proj"}
    assert updated(layers="*", own="encoder") == {"query", "key", "value", "head"}


def test_own_modules_are_trained_whole_by_each_member():
    ensemble = lora(mlp(3, [5], 2), M, layers="0", own="2")
    trained = {name: tuple(p.shape) for name, p in ensemble.named_parameters() if p.requires_grad}
    assert trained == {
        "stacked.0.down.weight": (M, 4, 3),
        "stacked.0.up.weight": (M, 5, 4),
        "stacked.2.weight": (M, 2, 5),
        "stacked.2.bias": (M, 2),
    }


def test_factors_on_a_frozen_network_are_all_that_trains():
    network = cnn().requires_grad_(False).double()
    network(IMAGES)
    ensemble = rank_one(network, M)
    before = copy.deepcopy(ensemble.state_dict())
    fit(ensemble, Batch(IMAGES, IMAGES[:, 0, 0, :2]), methods.de(Gaussian(0.1)), epochs=2, progress=False)
    after = ensemble.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {f"stacked.{layer}.{kind}_factor" for layer in (0, 5) for kind in ("input", "output")}


def test_start_is_near_the_network():
    network = mlp(3, [50], 2)
    x = POINTS.float()
    for make in KINDS.values():
        near = make(network, 50, spread=1e-4)(x)
        assert_close(near, network(x).expand_as(near), rtol=0, atol=0.01)


def test_an_update_is_as_large_as_asked():
    network = nn.Linear(64, 64)
    weights = torch.stack([m.weight for m in lora(network, 50, rank=4, spread=0.1, generator=seeded()).to_modules()])
    ratio = (weights - network.weight).std() / network.weight.std()
    assert_close(float(ratio.detach()), 0.1, rtol=0.05, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_fit_predict_and_resume(name, kind, tmp_path):
    inputs = BASES[name][1]
    data = Batch(inputs, torch.arange(len(inputs)) % 2)

    def run(folder, *epochs):
        torch.manual_seed(1)  # of dropout
        _, ensemble = made(name, kind)
        kernel = priors.KernelPrior(lambda a, b: torch.exp(-torch.cdist(*(v.flatten(1).double() for v in (a, b)))))
        method = methods.degp(Categorical(), kernel)
        for count in epochs:
            plan = Plan(count, 3, checkpoints=Checkpoints(tmp_path / folder), resume=True)
            fit(ensemble, data, method, plan, generator=seeded(), progress=False)
            _, fresh = made(name, kind)
            if count != epochs[-1]:
                ensemble = fresh
        return ensemble, predict(ensemble, inputs, method, generator=seeded()).probabilities

    (whole, expected), (resumed, probabilities) = run("whole", 4), run("resumed", 2, 4)
    assert_close(dict(resumed.state_dict()), dict(whole.state_dict()), rtol=0, atol=0)
    assert_close(probabilities, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_execution_strategy_is_found_for_convolutions(kind):
    _, ensemble = made("cnn", kind)
    expected = ensemble.eval()(IMAGES)
    choice = ensemble.train().choose_execution(IMAGES)
    assert set(choice.milliseconds) == {"vmap", "loop"} and set(choice.refused) == {"grouped"}
    assert_close(ensemble.eval()(IMAGES), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_weight_penalties_know_what_is_shared(kind):
    network, ensemble = made("mlp", kind)
    prior = priors.WeightPrior(2.0, 1.0)
    energy = float(priors.WeightPenalty(prior)(ensemble, 1))
    named = dict(ensemble.stacked.named_parameters())
    if kind == "rank one":  # a shared matrix belongs to each member
        expected = sum(M * p.square().sum() * p.shape[1] / 4 for name, p in named.items() if "base.weight" in name)
        expected += sum(p.square().sum() / 2 for name, p in named.items() if "bias" in name)
    else:  # the frozen network is no parameter; V and U have fan-ins of 3, 5 or 4 inputs and of the rank
        expected = sum(p.square().sum() * p.shape[2] / 4 for p in named.values() if p.requires_grad)
    assert_close(energy, float(expected))
    anchors = priors.draw_anchors(prior, ensemble, generator=seeded())
    drawn = {name for part in anchors for name in part}
    assert drawn == {name for name, p in named.items() if p.requires_grad and "factor" not in name}


def test_subsets_share_the_base_and_copy_it():
    _, ensemble = made("mlp", "low rank")
    part = ensemble[[2, 0]]
    assert_close(part(POINTS), ensemble(POINTS)[[2, 0]])
    assert part.stacked[0].base.weight.ndim == 2
    nn.init.zeros_(part.stacked[0].base.weight)
    assert ensemble.stacked[0].base.weight.abs().min() > 0


BAD = {
    "no members": (lambda: rank_one(nn.Linear(3, 2), 0), "needs at least one member, but members is 0"),
    "rank": (lambda: lora(nn.Linear(3, 2), 2, rank=0), "rank of an update must be at least 1, but it is 0"),
    "pattern": (
        lambda: lora(mlp(3, [4], 2), 2, layers="*attention*"),
        r"must match a linear layer, but '\*attention\*' matches none of 0, 2",
    ),
    "nothing to share": (
        lambda: rank_one(nn.Flatten(), 2),
        "differ in linear layers and convolutions, but .* has none",
    ),
    "parametrised": (
        lambda: lora(nn.Sequential(spectral_norm(nn.Linear(3, 2)), nn.Linear(2, 2)), 2),
        "layers with plain weights, but those of 0 are computed by a parametrisation; call torch.nn.utils",
    ),
    "lazy": (lambda: lora(nn.LazyLinear(3), 2), "but the network has weight, bias of a lazy layer without a shape"),
}


@pytest.mark.parametrize("work, message", BAD.values(), ids=BAD.keys())
def test_unsuitable_networks_are_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()


def test_light_members_are_an_ensemble():
    assert type(lora(nn.Linear(3, 2), 2)) is type(rank_one(nn.Linear(3, 2), 2)) is Ensemble


def test_members_without_factors_would_be_equal_and_are_refused():
    decoder = nn.Sequential(nn.ConvTranspose1d(1, 2, 3), nn.Flatten())
    with pytest.raises(ValueError, match=r"has none, or transposed ones only, .* members would be equal; train"):
        rank_one(decoder, M)


def test_compiled_networks_are_unwrapped():
    network = torch.compile(mlp(3, [5], 2))
    assert [name for name, layer in lora(network, M, layers="0").stacked.named_modules() if isinstance(layer, LowRank)]
    assert rank_one(network, M).stacked.state_dict().keys() == rank_one(mlp(3, [5], 2), M).stacked.state_dict().keys()
