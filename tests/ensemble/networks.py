"""Networks that are hard to stack: attention, tied weights, buffers that change, recurrence; and M of each."""

import torch
from torch import nn

from degp.nets import mlp
from tests.fixtures import normal

M, N = 3, 6
POINTS = normal(N, 3)


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


class Transformer(nn.Module):
    """Tokens with an attention layer whose projections are called, and one whose projections are not."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(7, 8), nn.LayerNorm(8), nn.Linear(8, 2)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + nn.functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
        return self.head(self.encoder(self.norm(x)).mean(1))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )


def dropout_net():
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))


NETS = {
    "mlp": (lambda: mlp(3, [5, 4], 2), POINTS),
    "cnn with batchnorm": (cnn, normal(N, 2, 5, 5, seed=1)),
    "dropout": (dropout_net, POINTS),
    "embedding and attention": (Attention, torch.arange(N * 4).reshape(N, 4) % 7),
    "groupnorm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Tanh(), nn.Linear(4, 2)), POINTS),
    "tied weights": (Tied, POINTS),
    "replaced buffer": (ReplacedBuffer, POINTS),
    "changed buffer": (ChangedBuffer, POINTS),
    "buffers only in part": (lambda: nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)), POINTS),
    "lstm": (Recurrent, normal(N, 4, 3, seed=1)),
}


def separate(name):
    """M networks of that name, seeded, in float64."""
    torch.manual_seed(0)
    return [NETS[name][0]().double() for _ in range(M)]


def loop(modules, inputs):
    """The outputs (M, N, C) of separate modules."""
    return torch.stack([module(inputs) for module in modules])


class Block(nn.Module):
    """A pre-norm Transformer block whose projections are linear layers, as in vision Transformers."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """ViT-tiny by default: 5.5 million parameters."""

    def __init__(self, width=192, depth=12, heads=3, size=224, outputs=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(torch.zeros(1, (size // 16) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))
