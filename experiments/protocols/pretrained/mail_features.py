"""Text embeddings of mails: spam and easy ham to learn from, hard ham as the shift."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from degp.data import subset
from degp.features import cache_features
from degp.typing import Batch
from experiments.data.backbones import embed_texts
from experiments.data.mails import GROUPS, HARD_HAM, Mail, mails
from experiments.protocols.pretrained.sets import FeatureSets

__all__ = ["mail_sets", "split_mails"]

VALIDATION, TEST = 1000, 1500
SHIFT = "hard_ham"


@cache
def mail_sets(folder: Path, device: str) -> FeatureSets:
    """Embeddings of all distinct mails; the rest of spam and easy ham is to train on."""
    path = folder / "mails.safetensors"
    embedded = cache_features(torch.nn.Identity(), [] if path.exists() else [_embedded()], path=path)
    return split_mails(embedded.to(device=device))


def split_mails(embedded: Batch, *, validation: int = VALIDATION, test: int = TEST) -> FeatureSets:
    """Random validation and test mails among those that are not hard, the same for all runs.

    Args:
        embedded: with the number of each mail's group in `GROUPS` as target.
    """
    is_hard = embedded.targets == GROUPS.index(HARD_HAM)
    is_spam = torch.tensor([Mail(group, "").is_spam for group in GROUPS], device=embedded.device)[embedded.targets]
    labelled = replace(embedded, targets=is_spam.long())
    usual, hard = (mask.nonzero().flatten() for mask in (~is_hard, is_hard))
    order = torch.randperm(len(usual), generator=torch.Generator().manual_seed(0)).to(embedded.device)
    parts = usual[order].split([validation, test, len(usual) - validation - test])
    held_out, tested, train = (subset(labelled, rows) for rows in parts)
    shifted = subset(labelled, hard)
    return FeatureSets(train, held_out, tested, {SHIFT: shifted.inputs}, shifted, SHIFT, 2)


def _embedded() -> Batch:
    distinct = list(dict.fromkeys(mails()))
    groups = torch.tensor([GROUPS.index(mail.group) for mail in distinct])
    return Batch(embed_texts([mail.text for mail in distinct]), groups)
