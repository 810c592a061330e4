"""Light members cost what they differ in: stored once, never copied per member in a pass, forward or backward."""

import pytest
import torch
from torch import nn

from degp import Ensemble, lora, rank_one
from degp.nets import mlp
from degp.runtime.execution import Vmap
from tests.ensemble.networks import VisionTransformer
from tests.fixtures import normal
from tests.memory import LargestTensor

M = 200


def stored_bytes(*modules):
    """Bytes of the storages of all parameters and buffers, each counted once."""
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def test_fifty_low_rank_members_of_a_vision_transformer_fit_beside_one():
    network = VisionTransformer()
    base = stored_bytes(network)
    ensemble = lora(network, 50, rank=4, layers="*.qkv", own="head")
    adapters = sum(4 * parameter.numel() for parameter in ensemble.parameters() if parameter.requires_grad)
    assert base == 4 * 5_525_962
    assert adapters == 4 * 50 * (12 * 4 * (192 + 3 * 192) + 10 * 193)
    head = stored_bytes(network.head)
    assert stored_bytes(ensemble) == base - head + adapters
    assert stored_bytes(ensemble, network) == base + adapters  # the base is the network's own, without a copy
    assert stored_bytes(ensemble) <= 1.5 * base + adapters


def convolutions():
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2)),
    )


ROWS, IMAGES = normal(4, 512, dtype=torch.float32), normal(2, 3, 4, 4, dtype=torch.float32)
KINDS = {
    "heads": (
        lambda: Ensemble(lambda: nn.Linear(512, 2), M, backbone=mlp(512, [512], 512), execution=Vmap()),
        ROWS,
        512 * 512,
    ),
    "rank one": (lambda: rank_one(mlp(512, [512], 2), M), ROWS, 512 * 512),
    "low rank": (lambda: lora(mlp(512, [512], 2), M, rank=2), ROWS, 512 * 512),
    "rank-one convolutions": (lambda: rank_one(convolutions(), M), IMAGES, 64 * 64 * 9),
    "low rank behind convolutions": (lambda: lora(convolutions(), M, rank=2), IMAGES, 64 * 64 * 9),
}


@pytest.mark.parametrize("name", KINDS)
def test_no_pass_copies_the_base_for_each_member(name):
    """The largest tensor is a parameter or an activation of all members, far below M copies of a layer's weight."""
    torch.manual_seed(0)
    make, inputs, weight = KINDS[name]
    ensemble = make()
    ensemble.execution = Vmap()
    with LargestTensor() as largest:
        ensemble(inputs).square().sum().backward()
    stored = max(parameter.numel() for parameter in ensemble.parameters())
    activation = M * len(inputs) * (512 if inputs.ndim == 2 else 64 * 16)
    assert largest.elements <= max(stored, activation, weight) < M * weight / 8
