"""Light members on a pre-trained network, for images and mails: scores by label count, differences and claims."""

import math
from collections.abc import Iterable, Mapping
from statistics import mean, stdev

from experiments.pages.stored import Records, cell, listed, records, signed, table, values, where
from experiments.protocols.pretrained.claims import claims as checked

__all__ = [
    "behind_on_mails",
    "detection",
    "failed_claims",
    "fine_tuning",
    "hard_ham_leads",
    "leads",
    "light_members",
    "mails",
    "mails_difference",
    "mails_on_part",
    "nll",
    "num_claims",
]

IMAGES, MAILS = "pretrained", "pretrained/mails"
OWN, MEMBERS = "DE-GP", 200
Facts = Mapping[str, object]


def _heads(method: str, alpha: float | None = None, members: int = MEMBERS) -> Facts:
    return {"method": method, "members": members, "alpha": alpha}


HEADS_OF_OURS = f"{OWN}, {MEMBERS} heads, α = 1"
RIVALS: dict[str, Facts] = {f"{name}, {MEMBERS} heads": _heads(name) for name in ("RMS", "rDE", "DE")}
WITHOUT_MEMBERS: dict[str, Facts] = {
    "exact GP": {"method": "exact GP"},
    "laplace-torch, full": {"method": "Laplace full"},
    "laplace-torch, KFAC": {"method": "Laplace KFAC"},
    "SNGP": {"method": "SNGP"},
}
LIGHT, FINE_TUNED = ("LoRA DE-GP", "LoRA DE", "rank-one DE-GP"), "fine-tuned"
INTO_IT: dict[str, Facts] = {name: {"method": name} for name in (*LIGHT, FINE_TUNED)}  # not the last layer alone
ATTACH: dict[str, Facts] = {"`attach`, 100 heads": {"method": "attach"}}
ROWS = {HEADS_OF_OURS: _heads(OWN, 1.0), **ATTACH, **RIVALS, **WITHOUT_MEMBERS, **INTO_IT}
MAIL_ROWS = {
    HEADS_OF_OURS: _heads(OWN, 1.0),
    f"{OWN}, {MEMBERS} heads, α = 0.1": _heads(OWN, 0.1),
    **ATTACH,
    **RIVALS,
    **WITHOUT_MEMBERS,
}
PART_ROWS = {
    f"{words}, {count} heads": _heads(method, 1.0, count)
    for words, method in (("whole batch", OWN), ("16 points", f"{OWN} on 16"))
    for count in (10, 50, MEMBERS)
}
OURS = (HEADS_OF_OURS, *ATTACH, "LoRA DE-GP", "rank-one DE-GP")
DETECTION = {
    "auroc_svhn_mi": "SVHN, MI",
    "auroc_svhn_entropy": "entropy",
    "auroc_fashion_mi": "Fashion-MNIST, MI",
    "auroc_fashion_entropy": "entropy",
    "nll_corrupted": "NLL, corrupted",
}
ON_MAILS = {"nll": "NLL", "nll_hard_ham": "hard ham NLL"}


def nll() -> str:
    """NLL on images by label count, mean ± standard error over label subsets."""
    return _by_labels(IMAGES, ROWS, {"nll": "NLL"})


def mails() -> str:
    """NLL on usual mails and on hard ham, by label count."""
    return _by_labels(MAILS, MAIL_ROWS, ON_MAILS)


def mails_on_part() -> str:
    """The same for a divergence on the whole batch, and on a part of it."""
    return _by_labels(MAILS, PART_ROWS, ON_MAILS)


def detection(labels: str) -> str:
    """AUROC on out-of-distribution images, and NLL under corruption."""
    rows = []
    for name, facts in ROWS.items():
        own = where(records(IMAGES), labels=int(labels), **facts)
        if own:
            rows.append([name, *(cell(values(own, score)) for score in DETECTION)])
    return table(["method", *DETECTION.values()], rows)


def leads(other: str) -> str:
    """Whose NLL is lower by more than two standard errors, DE-GP's or that of other heads, at which label counts."""
    lower, higher = [], []
    for labels in _sizes(IMAGES):
        paired = differences(IMAGES, labels, RIVALS[f"{other}, {MEMBERS} heads"], ROWS[HEADS_OF_OURS])
        error = stdev(paired) / math.sqrt(len(paired)) if len(paired) > 1 else math.inf
        if paired and abs(mean(paired)) > 2 * error:
            (lower if mean(paired) > 0 else higher).append(f"{labels:,}")
    ahead = [(name, counts) for name, counts in ((OWN, lower), (other, higher)) if counts]
    words = [f"{name}'s with {listed(counts)} labels" for name, counts in ahead]
    return ", and ".join(words) or "neither's, by two standard errors"


def light_members() -> str:
    """NLL of light members within the network, minus that of DE-GP's heads, by label count."""
    sizes = _sizes(IMAGES)
    gaps = {name: _beside_heads(name) for name in LIGHT}
    rows = [[name, *(signed(own[labels]) for labels in sizes)] for name, own in gaps.items()]
    return table(["minus DE-GP's heads, NLL", *(f"{labels:,} labels" for labels in sizes)], rows)


def fine_tuning() -> str:
    """A sentence with the NLL of the fine-tuned network minus that of DE-GP's heads; nothing where it has not run."""
    found = [f"{signed(gaps)} with {labels:,} labels" for labels, gaps in _beside_heads(FINE_TUNED).items() if gaps]
    return f" The NLL of a fine-tuned network minus that of DE-GP's heads is {listed(found)}." if found else ""


def _beside_heads(name: str) -> dict[int, list[float]]:
    """NLL minus that of DE-GP's heads, paired over label subsets, by label count."""
    return {labels: differences(IMAGES, labels, ROWS[name], ROWS[HEADS_OF_OURS]) for labels in _sizes(IMAGES)}


def mails_difference(other: str, labels: str) -> str:
    """NLL of other heads on mails minus that of DE-GP at α = 1, paired over label subsets."""
    found = differences(MAILS, int(labels), RIVALS[f"{other}, {MEMBERS} heads"], MAIL_ROWS[HEADS_OF_OURS])
    return cell(found, 4)


def behind_on_mails(labels: str) -> str:
    """By how much DE-GP at α = 1 is behind the methods with a lower mean NLL, the least and the most."""
    own, others = MAIL_ROWS[HEADS_OF_OURS], {**RIVALS, **WITHOUT_MEMBERS}.values()
    found = (differences(MAILS, int(labels), own, facts) for facts in others)
    return _range((gap for paired in found if paired and (gap := mean(paired)) > 0), 3)


def hard_ham_leads() -> str:
    """By how much other ensembles of heads are behind DE-GP at α = 1 on hard ham, the least and the most."""
    own = MAIL_ROWS[HEADS_OF_OURS]
    pairs = [(labels, facts) for labels in _sizes(MAILS) for facts in RIVALS.values()]
    found = (differences(MAILS, labels, facts, own, "nll_hard_ham") for labels, facts in pairs)
    return _range((mean(paired) for paired in found if paired), 2)


def num_claims(data: str = IMAGES) -> str:
    """How many claims hold, of how many."""
    found = checked(records(data))
    return f"{sum(claim.holds for claim in found)} of {len(found)}"


def failed_claims(data: str = IMAGES) -> str:
    """A sentence with those that do not; nothing where all hold."""
    failed = [claim.text for claim in checked(records(data)) if not claim.holds]
    return f" Not: {'; '.join(failed)}." if failed else ""


def by_row(labels: int) -> dict[str, list[float]]:
    """NLL per label subset of images, by method."""
    found = {name: values(where(records(IMAGES), labels=labels, **facts), "nll") for name, facts in ROWS.items()}
    return {name: numbers for name, numbers in found.items() if numbers}


def differences(data: str, labels: int, method: Facts, other: Facts, score: str = "nll") -> list[float]:
    """A method's score minus that of another, paired over label subsets."""
    here = where(records(data), labels=labels)
    first, second = (
        {row["seed"]: row[score] for row in where(here, **facts) if row.get(score) is not None}
        for facts in (method, other)
    )
    return [first[seed] - second[seed] for seed in first if seed in second]


def _by_labels(data: str, rows: Mapping[str, Facts], scores: Mapping[str, str]) -> str:
    """Scores by label count of the methods that have run."""
    columns = [(score, labels) for score in scores for labels in _sizes(data)]
    several = len(scores) > 1
    heads = [f"{scores[score]}, {labels:,} labels" if several else f"{labels:,} labels" for score, labels in columns]
    own = {name: where(records(data), **facts) for name, facts in rows.items()}
    cells = ([name, *(_cell(mine, labels, score) for score, labels in columns)] for name, mine in own.items() if mine)
    return table(["method" if several else next(iter(scores.values())), *heads], cells)


def _cell(rows: Records, labels: int, score: str) -> str:
    return cell(values(where(rows, labels=labels), score))


def _range(gaps: Iterable[float], digits: int) -> str:
    found = sorted(gaps)
    return f"{found[0]:.{digits}f} to {found[-1]:.{digits}f}" if found else "–"


def _sizes(data: str) -> list[int]:
    return sorted({row["labels"] for row in records(data)})
