"""Claims about DE-GP with context points that were stated before the runs, checked on the records.

All compare the mean over the seeds that both methods have; detection is by entropy, which on the validation images
detects other OOD images better than mutual information does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from experiments.protocols.claims import Claim
from experiments.protocols.image_records import agrees
from experiments.protocols.shift.runs import run_by_name

__all__ = ["claims"]

Records = Sequence[Mapping[str, Any]]
OWN, BASELINE, EXPOSED = "chosen", "rde", "rde-context-exposed"
CONTROLS = {
    EXPOSED: "outlier exposure",
    "rde-context-seen": "context images seen",
    "rde-logitnorm": "LogitNorm",
    "rde": "rDE",
}
DETECTION, LEAST_AUROC = "auroc_svhn_entropy", 0.95
LOST_ACCURACY, GAIN = 0.001, 0.10


def claims(records: Records, network: str = "resnet20", epochs: int = 200) -> list[Claim]:
    """All that the records of one network allow to check."""
    here = [record for record in records if (record["network"], record["epochs"]) == (network, epochs)]
    return list(_checked(here, network, epochs))


def _checked(here: Records, network: str, epochs: int) -> Iterator[Claim]:
    def compared(other: str, score: str, text: str, holds: Callable[[float, float], bool]) -> Iterator[Claim]:
        first, second = (_by_seed(here, name, score, network, epochs) for name in (OWN, other))
        shared = sorted(first.keys() & second.keys())
        if shared:
            x, y = (mean(scores[seed] for seed in shared) for scores in (first, second))
            yield Claim(text, f"{x:.4f}, {y:.4f}", holds(x, y))

    yield from compared(BASELINE, "nll", "NLL on clean images not above that of rDE", lambda x, y: x <= y)
    text = f"accuracy on clean images at most {100 * LOST_ACCURACY:g} points below that of rDE"
    yield from compared(BASELINE, "accuracy", text, lambda x, y: x >= y - LOST_ACCURACY)
    text = f"NLL under corruption at least {100 * GAIN:g} % below that of rDE"
    yield from compared(BASELINE, "nll_corrupted", text, lambda x, y: x <= (1 - GAIN) * y)
    text = "NLL under corruption not above that of outlier exposure"
    yield from compared(EXPOSED, "nll_corrupted", text, lambda x, y: x <= y)
    own = _by_seed(here, OWN, DETECTION, network, epochs)
    if own:
        found = mean(own.values())
        yield Claim(f"AUROC on SVHN at least {LEAST_AUROC:g}", f"{found:.4f}", found >= LEAST_AUROC)
    for name, words in CONTROLS.items():
        yield from compared(name, DETECTION, f"AUROC on SVHN not below that of {words}", lambda x, y: x >= y)


def _by_seed(here: Records, name: str, score: str, network: str, epochs: int) -> dict[int, float]:
    """A score of a method, by seed."""
    own = [r for r in here if agrees(r, run_by_name(name, network, epochs, r["seed"]).facts)]
    return {record["seed"]: record[score] for record in own if record.get(score) is not None}
