"""Text embeddings of mails: spam and easy ham to learn from, hard ham as the shift."""

from functools import cache
from pathlib import Path

import torch

from degp.data import subset
from degp.features import cache_features
from degp.typing import Batch
from experiments.data.backbones import embed_texts
from experiments.data.mails import HARD_HAM, Mail, mails
from experiments.protocols.pretrained.sets import FeatureSets

__all__ = ["mail_sets", "split_mails"]

VALIDATION, TEST = 1000, 1500
SHIFT = "hard_ham"


@cache
def mail_sets(folder: Path, device: str) -> FeatureSets:
    """Embeddings of all distinct mails; the rest of spam and easy ham is to train on."""
    distinct = list(dict.fromkeys(mails()))
    path = folder / "mails.safetensors"
    embedded = cache_features(torch.nn.Identity(), _embedded(distinct, path), path=path).to(device=device)
    return split_mails(embedded, torch.tensor([mail.group == HARD_HAM for mail in distinct]))


def split_mails(
    embedded: Batch, is_hard: torch.Tensor, *, validation: int = VALIDATION, test: int = TEST
) -> FeatureSets:
    """Random validation and test mails among those that are not hard, the same for all runs."""
    usual, hard = (mask.nonzero().flatten().to(embedded.device) for mask in (~is_hard, is_hard))
    order = torch.randperm(len(usual), generator=torch.Generator().manual_seed(0)).to(embedded.device)
    parts = usual[order].split([validation, test, len(usual) - validation - test])
    held_out, tested, train = (subset(embedded, rows) for rows in parts)
    shifted = subset(embedded, hard)
    return FeatureSets(train, held_out, tested, {SHIFT: shifted.inputs}, shifted, SHIFT, 2)


def _embedded(distinct: list[Mail], path: Path) -> list[Batch]:
    if path.exists():
        return []
    labels = torch.tensor([int(mail.is_spam) for mail in distinct])
    return [Batch(embed_texts([mail.text for mail in distinct]), labels)]
