"""The settings of DE-GP for the final runs, chosen on validation images."""

from experiments.protocols.image_records import Facts, Records
from experiments.protocols.shift.summary import BASELINE

__all__ = ["CLEAN", "HARMLESS", "SHIFTED", "TIE", "preferred"]

CLEAN, SHIFTED = "nll_validation", "nll_cbar"
HARMLESS = 0.005  # nats: about one standard error of a paired difference over 5,000 images
TIE = 0.02  # relative: what the NLL under shift of two runs of one setting differs by


def preferred(records: Records) -> Facts:
    """The DE-GP that validation images prefer, of those with the usual augmentation and scores on CIFAR-10-C̄.

    Its NLL on clean images is the lowest of those within `TIE` of the lowest NLL on CIFAR-10-C̄. A setting whose NLL on
    clean images exceeds rDE's by more than `HARMLESS` is no candidate. No test image takes part.
    """
    comparable = [r for r in records if r.get(SHIFTED) is not None and r["augmentation"] is None]
    baselines = [r[CLEAN] for r in comparable if r["method"] == BASELINE and r["context"] is None]
    if not baselines:
        raise ValueError(f"the rule compares with {BASELINE}, but it has no record with {SHIFTED}; run --methods rde")
    harmless = [r for r in comparable if r["alpha"] is not None and r[CLEAN] <= min(baselines) + HARMLESS]
    if not harmless:
        raise ValueError(
            f"no setting of DE-GP has an NLL on clean validation images of at most {BASELINE}'s plus {HARMLESS}"
        )
    lowest = min(record[SHIFTED] for record in harmless)
    return min((r for r in harmless if r[SHIFTED] <= (1 + TIE) * lowest), key=lambda record: record[CLEAN])
