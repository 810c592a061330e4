"""Models of transformers and timm, with random weights, are backbones, LoRA bases and networks to attach to."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset

from degp import Batch, Categorical, Ensemble, Unpacked, attach, cache_features, fit, lora, methods, predict
from degp.attached import Attached
from degp.graph import export_ensemble, run_onnx
from degp.points import take_points
from tests.fixtures import normal, seeded

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's advice on attention under vmap

N = 12
LABELS = torch.arange(N) % 3
IMAGES = normal(N, 3, 32, 32, dtype=torch.float32)
TOKENS = {
    "input_ids": torch.randint(1, 30, (N, 6), generator=seeded()),
    "attention_mask": (torch.arange(6) < 4 + torch.arange(N)[:, None] % 3).long(),
}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 3}


def bert(kind="BertForSequenceClassification"):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, **SIZES)
    return getattr(transformers, kind)(config)


def gpt2():
    """Reads its logits off the last token, after the linear layer; its other layers are `Conv1D`."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 30, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "num_labels": 3}
    tokens = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**sizes, **tokens))


def vit(kind="ViTForImageClassification"):
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, kind)(transformers.ViTConfig(image_size=32, patch_size=16, **SIZES))


def timm_model(name, **options):
    timm = pytest.importorskip("timm", exc_type=ImportError)  # it needs torchvision
    return timm.create_model(name, pretrained=False, **{"num_classes": 3} | options)


def timm_vit(**options):
    sizes = {"img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 2, "num_heads": 2}
    return timm_model("vit_tiny_patch16_224", **sizes, **options)


MODELS = {
    "BERT": (bert, TOKENS, "network.classifier", "*attention*"),
    "GPT-2": (gpt2, TOKENS, "network.score", "*attn.c_attn"),
    "ViT": (vit, IMAGES, "network.classifier", "*attention*"),
    "ViT by name": (vit, {"pixel_values": IMAGES}, "network.classifier", ["*attention*"]),
    "timm ViT": (timm_vit, IMAGES, "head", "*.qkv"),
    "timm ResNet": (lambda: timm_model("resnet10t"), IMAGES, "fc", "fc"),
    "timm MobileNet": (lambda: timm_model("mobilenetv3_small_050"), IMAGES, "classifier", "classifier"),
    "timm ConvNeXt": (
        lambda: timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)),
        IMAGES,
        "head.fc",
        "head.fc",
    ),
}


class Points(Dataset):
    """Dictionaries with labels, as data sets of tokenised text are."""

    def __init__(self, inputs):
        self.inputs = inputs if isinstance(inputs, dict) else None
        self.images = inputs

    def __len__(self):
        return N

    def __getitem__(self, row):
        if self.inputs is None:
            return self.images[row], LABELS[row]
        return {name: value[row] for name, value in self.inputs.items()} | {"labels": LABELS[row]}


def made(name):
    torch.manual_seed(0)
    make, inputs, layer, layers = MODELS[name]
    return make(), inputs, layer, layers


def callable_by_members(network, inputs):
    return network if type(network).__module__.startswith("timm") else Unpacked(network)


@pytest.mark.parametrize("name", MODELS)
def test_members_attach_in_one_line_and_load_from_one_folder(name, tmp_path):
    network, inputs, layer, _ = made(name)
    before = copy.deepcopy(network.state_dict())
    attached = attach(network, DataLoader(Points(inputs), 5), members=4, width=16, steps=2, progress=False)
    assert attached.layer == layer
    assert_close(dict(network.state_dict()), dict(before), rtol=0, atol=0)
    attached.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", made(name)[0])
    one, two = (each.predict(inputs, generator=seeded()).probabilities for each in (attached, loaded))
    assert_close(two, one)


@pytest.mark.parametrize("name", MODELS)
def test_low_rank_members_train_and_leave_the_model_alone(name):
    network, inputs, _, layers = made(name)
    before = copy.deepcopy(network.state_dict())
    ensemble, method = lora(callable_by_members(network, inputs), 3, rank=2, layers=layers), methods.de(Categorical())
    start = predict(ensemble, inputs, method).probabilities
    fit(ensemble, DataLoader(Points(inputs), 6), method, epochs=3, generator=seeded(), progress=False)
    assert not torch.allclose(predict(ensemble, inputs, method).probabilities, start)
    assert_close(dict(network.state_dict()), dict(before), rtol=0, atol=0)
    members = torch.stack([member.eval()(inputs) for member in ensemble])
    assert_close(ensemble.eval()(inputs), members, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "make, inputs, features",
    [
        (lambda: Unpacked(bert("BertModel"), "pooler_output"), TOKENS, 16),
        (lambda: Unpacked(vit("ViTModel"), "pooler_output"), IMAGES, 16),
        (lambda: timm_vit(num_classes=0), IMAGES, 24),
        (lambda: timm_model("resnet10t", num_classes=0), IMAGES, 512),
    ],
    ids=["BERT", "ViT", "timm ViT", "timm ResNet"],
)
def test_heads_on_a_frozen_model_train_on_cached_features(make, inputs, features):
    torch.manual_seed(0)
    heads = Ensemble(lambda: nn.Linear(features, 3), 5, backbone=make().requires_grad_(False))
    cached, method = cache_features(heads.backbone, Batch(inputs, LABELS), batch_size=5), methods.de(Categorical())
    history = fit(heads.on_features(), cached, method, epochs=20, generator=seeded(), progress=False)
    assert history.column("loss")[-1] < history.column("loss")[0]
    assert_close(heads.eval()(inputs), heads.on_features()(cached.inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BERT", "ViT", "timm ViT", "timm MobileNet"])
def test_low_rank_members_are_one_graph(name, tmp_path):
    pytest.importorskip("onnxruntime")
    network, inputs, _, layers = made(name)
    ensemble, method = lora(callable_by_members(network, inputs), 2, rank=2, layers=layers), methods.de(Categorical())
    path = export_ensemble(ensemble, method, inputs, tmp_path / "model.onnx")
    few = take_points(inputs, slice(5))
    arrays = {key: value.numpy() for key, value in few.items()} if isinstance(few, dict) else few.numpy()
    expected = predict(ensemble, few, method)
    assert_close(torch.tensor(run_onnx(path, arrays)["total"]), expected.total, rtol=1e-5, atol=1e-5)


def test_tokenisers_give_inputs():
    transformers = pytest.importorskip("transformers")
    attached = attach(bert(), DataLoader(Points(TOKENS), 5), members=4, width=16, steps=2, progress=False)
    encoded = transformers.BatchEncoding(dict(TOKENS))
    assert_close(
        attached.predict(encoded, generator=seeded()).total, attached.predict(TOKENS, generator=seeded()).total
    )
