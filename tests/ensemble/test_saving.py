"""A saved ensemble loads from its folder alone: same outputs, same training, nothing pickled."""

import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, fit, lora, methods, nets, rank_one
from degp.ensemble.architectures import build, describe
from degp.runtime.execution import Vmap
from tests.ensemble.networks import NETS, POINTS, Tied, Transformer, cnn
from tests.fixtures import seeded

IMAGES, TOKENS = NETS["cnn with batchnorm"][1], NETS["embedding and attention"][1]


def frozen_backbone():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double().requires_grad_(False)


def own(make):
    return Ensemble(make, 3, execution=Vmap())


DESCRIBED = {
    "mlp": (lambda: own(lambda: nets.mlp(3, [5], 2).double()), POINTS),
    "cnn": (lambda: own(lambda: cnn().double()), IMAGES),
    "heads": (lambda: Ensemble(lambda: nn.Linear(4, 2).double(), 3, backbone=frozen_backbone()), POINTS),
    "rank one": (lambda: rank_one(cnn().double(), 3), IMAGES),
    "low rank": (lambda: lora(nets.mlp(3, [5], 2).double(), 3, rank=2, layers="0", own="2"), POINTS),
    "half": (lambda: own(lambda: nets.mlp(3, [5], 2).bfloat16()), POINTS.bfloat16()),
}
GIVEN = {
    "transformer": (Transformer, lambda network: own(Transformer), TOKENS),
    "light transformer": (Transformer, lambda network: lora(network, 3, layers="query"), TOKENS),
    "tied": (Tied, lambda network: own(Tied), POINTS.float()),
}


@pytest.mark.parametrize("make, inputs", DESCRIBED.values(), ids=DESCRIBED.keys())
def test_a_folder_is_enough(make, inputs, tmp_path):
    torch.manual_seed(0)
    ensemble = make()
    ensemble(inputs)  # moves BatchNorm's statistics
    ensemble.save(tmp_path / "model")
    random = torch.get_rng_state()
    loaded = Ensemble.load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), random)
    assert_close(loaded(inputs), ensemble.eval()(inputs), rtol=0, atol=0)
    assert loaded.execution == ensemble.execution and len(loaded) == 3
    trained = [{name for name, p in e.named_parameters() if p.requires_grad} for e in (ensemble, loaded)]
    assert trained[0] == trained[1]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["ensemble.json", "ensemble.safetensors"]


@pytest.mark.parametrize("network, make, inputs", GIVEN.values(), ids=GIVEN.keys())
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_network_of_ones_own_is_passed(network, make, inputs, tmp_path):
    ensemble = make(network()).eval()
    expected = ensemble(inputs)
    ensemble.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"a network that is your own code, .*: Ensemble.load\(folder, network="):
        Ensemble.load(tmp_path / "model")
    assert_close(Ensemble.load(tmp_path / "model", network())(inputs), expected, rtol=0, atol=0)


def test_a_loaded_ensemble_trains_on(tmp_path):
    torch.manual_seed(0)
    ensemble, data = own(lambda: nets.mlp(3, [5], 1).double()), Batch(POINTS, POINTS[:, :1])
    ensemble.save(tmp_path / "model")
    outputs = []
    for trained in (ensemble, Ensemble.load(tmp_path / "model")):
        fit(trained, data, methods.de(Gaussian(0.1)), epochs=2, generator=seeded(), progress=False)
        outputs.append(trained(POINTS))
    assert_close(*outputs, rtol=0, atol=0)


def test_folders_that_do_not_fit_are_refused(tmp_path):
    ensemble = own(Tied)
    ensemble.save(tmp_path / "model")
    with pytest.raises(FileExistsError, match=r"saved to a new folder, but .*model exists; choose another"):
        ensemble.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"with the networks that it was saved with, but stacked\..* should be"):
        Ensemble.load(tmp_path / "model", nn.Linear(3, 2))
    form = json.loads((tmp_path / "model" / "ensemble.json").read_text())
    (tmp_path / "model" / "ensemble.json").write_text(json.dumps(form | {"schema": 9}))
    with pytest.raises(ValueError, match="has schema 9 and this version reads up to 1; update degp"):
        Ensemble.load(tmp_path / "model", Tied())


@pytest.mark.filterwarnings("ignore:members run one after the other")
def test_mixed_members_are_not_saved_together(tmp_path):
    with pytest.raises(ValueError, match=r"but these have several; save each of to_modules\(\)"):
        Ensemble([nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2))]).save(tmp_path / "model")


LAYERS = {
    "convolution": nn.Conv2d(4, 6, (3, 1), stride=2, padding="valid", groups=2, bias=False, padding_mode="circular"),
    "batch norm": nn.BatchNorm2d(3, eps=0.1, momentum=None, affine=False),
    "layer norm": nn.LayerNorm((3, 4), bias=False),
    "pooling": nn.AdaptiveAvgPool2d((None, 2)),
    "embedding": nn.Embedding(5, 3, padding_idx=1),
    "nested": nn.Sequential(nn.Sequential(nn.GELU("tanh")), nn.LeakyReLU(0.3), nn.Flatten(1, 2)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
def test_standard_layers_are_described(layer):
    rebuilt = build(json.loads(json.dumps(describe(layer))))
    assert str(rebuilt) == str(layer)
    shapes = [{name: value.shape for name, value in one.state_dict().items()} for one in (rebuilt, layer)]
    assert shapes[0] == shapes[1]


class Shouting(nn.Linear):
    def forward(self, x):
        return super().forward(x).exp()


def test_what_json_cannot_say_is_not_described():
    hooked = nn.Linear(3, 2)
    hooked.register_forward_hook(lambda *_: None)
    for network in (Shouting(3, 2), nn.Sequential(Transformer()), hooked):
        assert describe(network) is None
