"""AugMix on a batch of images, on their device: chains of random operations, mixed with the image itself.

x̃ = (1 − m) x + m Σᵢ wᵢ chainᵢ(x),   w ~ Dirichlet(1, 1, 1),  m ~ Beta(1, 1)        Hendrycks et al. (2020)

Three chains of one to three operations at severity 3. As published, no operation is one of the corruptions: contrast,
colour, brightness and sharpness are left out. Without the Jensen-Shannon term, as Wen et al. (2021) combine AugMix
with ensembles: every method then has the same loss as before.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from degp.vision.augmentation import CropAndFlip

TONES = ("autocontrast", "equalize", "posterize", "solarize")
MOVES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
LEVELS = 256
CROP_AND_FLIP = CropAndFlip()


@dataclass(frozen=True)
class AugMix:
    """Crops and flips, then AugMix; from images in uint8 to images in uint8.

    No value is read on the host, so that a CUDA graph can hold it.
    """

    crop: CropAndFlip = CROP_AND_FLIP
    width: int = 3
    depth: int = 3
    severity: int = 3

    def __call__(
        self, images: UInt8[Tensor, "B C H W"], generator: torch.Generator | None = None
    ) -> UInt8[Tensor, "B C H W"]:
        images = self.crop(images, generator)
        draw = {"generator": generator, "device": images.device}
        weights = -torch.rand(self.width, len(images), **draw).clamp_min(1e-12).log()  # Exp(1): normalised, Dirichlet
        weights = weights / weights.sum(0)
        mixed = torch.zeros(images.shape, device=images.device)
        for weight in weights:
            mixed = mixed + weight.view(-1, 1, 1, 1) * self._chain(images, generator)
        share = torch.rand(len(images), 1, 1, 1, **draw)
        return ((1 - share) * images + share * mixed).round().clamp(0, LEVELS - 1).to(torch.uint8)

    def _chain(self, images: Tensor, generator: torch.Generator | None) -> Float[Tensor, "B C H W"]:
        B, draw = len(images), {"generator": generator, "device": images.device}
        length = torch.randint(1, self.depth + 1, (B,), **draw)
        x = images.float()
        for position in range(self.depth):
            chosen = torch.randint(len(TONES) + len(MOVES), (B,), **draw)
            chosen = torch.where(position < length, chosen, len(TONES) + len(MOVES))  # none beyond the chain's end
            level = 0.1 + (self.severity - 0.1) * torch.rand(B, **draw)
            sign = 2.0 * torch.randint(2, (B,), **draw) - 1
            x = moved(toned(x, chosen, level), chosen - len(TONES), sign * level)
        return x


def toned(
    x: Float[Tensor, "B C H W"], chosen: Int64[Tensor, "B"], level: Float[Tensor, "B"]
) -> Float[Tensor, "B C H W"]:
    """Each image by the operation `TONES[chosen]`, at a level up to 10; unchanged where `chosen` is none of them."""
    pixels = x.round().clamp(0, LEVELS - 1).long().flatten(2)  # (B, C, HW)
    levels = torch.arange(LEVELS, device=x.device)
    tables = torch.stack(
        [
            _autocontrast(pixels, levels),
            _equalize(pixels, levels),
            _posterize(level, levels).expand(*pixels.shape[:2], LEVELS),
            _solarize(level, levels).expand(*pixels.shape[:2], LEVELS),
        ]
    )
    table = tables.gather(0, chosen.clamp_max(len(TONES) - 1).view(1, -1, 1, 1).expand(1, *tables.shape[1:]))[0]
    return torch.where((chosen < len(TONES)).view(-1, 1, 1, 1), table.gather(2, pixels).view_as(x), x)


def moved(
    x: Float[Tensor, "B C H W"], chosen: Int64[Tensor, "B"], level: Float[Tensor, "B"]
) -> Float[Tensor, "B C H W"]:
    """Each image by `MOVES[chosen]` at a signed level up to 10, bilinear, zero outside; unchanged for other numbers."""
    H, W = x.shape[2:]
    is_ = {name: (chosen == index).to(level) for index, name in enumerate(MOVES)}
    angle = torch.deg2rad((3 * level).trunc()) * is_["rotate"]  # at level 10: 30°, a shear of 0.3, a third of the image
    shear_x, shear_y = 0.03 * level * is_["shear_x"] * H / W, 0.03 * level * is_["shear_y"] * W / H
    shift_x, shift_y = (
        (level * size / 30).trunc() * 2 / size * is_[name] for size, name in ((W, MOVES[3]), (H, MOVES[4]))
    )
    # shears leave the corner in place
    across = torch.stack([angle.cos(), -angle.sin() + shear_x, shear_x + shift_x], -1)
    down = torch.stack([angle.sin() + shear_y, angle.cos(), shear_y + shift_y], -1)
    grid = F.affine_grid(torch.stack([across, down], 1), list(x.shape), align_corners=False)
    shifted = F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return torch.where(((chosen >= 0) & (chosen < len(MOVES))).view(-1, 1, 1, 1), shifted, x)


Table = Float[Tensor, "B C L"]


def _autocontrast(pixels: Int64[Tensor, "B C P"], levels: Tensor) -> Table:
    """Each channel stretched to the whole range."""
    low, high = pixels.amin(2, keepdim=True), pixels.amax(2, keepdim=True)
    stretched = ((levels - low) * (LEVELS - 1) / (high - low).clamp_min(1)).floor().clamp(0, LEVELS - 1)
    return torch.where(high > low, stretched, levels.float())


def _equalize(pixels: Int64[Tensor, "B C P"], levels: Tensor) -> Table:
    """Each channel with a flat histogram, as PIL's `equalize`: (½ step + Σ_{k < level} h_k) // step."""
    counts = torch.zeros(*pixels.shape[:2], LEVELS, device=pixels.device, dtype=torch.long)
    counts = counts.scatter_add(2, pixels, torch.ones_like(pixels))
    last = counts.gather(2, pixels.amax(2, keepdim=True))
    step = (counts.sum(2, keepdim=True) - last).div(LEVELS - 1, rounding_mode="floor")
    below = counts.cumsum(2) - counts
    flat = (step.div(2, rounding_mode="floor") + below).div(step.clamp_min(1), rounding_mode="floor")
    return torch.where(step > 0, flat.clamp_max(LEVELS - 1), levels).float()


def _posterize(level: Float[Tensor, "B"], levels: Tensor) -> Table:
    """4 − ⌊0.4 level⌋ bits."""
    dropped = 2.0 ** (4 + (0.4 * level).floor())
    return ((levels / dropped.view(-1, 1, 1)).floor() * dropped.view(-1, 1, 1)).float()


def _solarize(level: Float[Tensor, "B"], levels: Tensor) -> Table:
    """Inverted from a threshold of 256 − 25.6 level on."""
    threshold = LEVELS - (25.6 * level).floor().view(-1, 1, 1)
    return torch.where(levels < threshold, levels, LEVELS - 1 - levels).float()
