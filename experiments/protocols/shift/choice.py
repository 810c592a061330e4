"""The settings of DE-GP for the final runs, chosen on validation images by a rule that was fixed before these runs."""

from experiments.protocols.image_records import Facts, Records
from experiments.protocols.shift.summary import BASELINE

__all__ = ["HARMLESS", "SHIFTED", "preferred"]

CLEAN, SHIFTED = "nll_validation", "nll_cbar"
HARMLESS = 0.005  # nats: about one standard error of a paired difference over 5,000 images


def preferred(records: Records) -> Facts:
    """The DE-GP with the lowest NLL on CIFAR-10-C̄, of those whose NLL on clean images is no higher than rDE's.

    "No higher" allows `HARMLESS`. All have the same augmentation, and none of the images is reported.
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
    return min(harmless, key=lambda record: record[SHIFTED])
