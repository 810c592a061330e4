"""UCI regression, and the coverage of the default estimator's intervals on the same tables."""

from statistics import mean

from experiments.intervals import UNSEEN
from experiments.pages.stored import Records, cell, listed, lowest, records, table, values, where
from experiments.protocols.independent_runs import names
from experiments.protocols.uci_summary import METHODS, mean_ranks, paired_difference

__all__ = [
    "against_de",
    "best_on",
    "coverage",
    "interval_coverage",
    "interval_table",
    "leader",
    "nll_beside_rms",
    "own_protocol",
    "ranks",
    "unfinished",
]

PROTOCOLS = ("paper", "ours")
OWN = "DE-GP"
NOT_RUN = "not run yet"


def ranks() -> str:
    """Mean ranks of the methods by protocol and score."""
    rows = []
    for protocol in PROTOCOLS:
        for score, title in (("nll", "NLL"), ("rmse", "RMSE")):
            means = mean_ranks(_records(protocol), score)
            cells = (f"{means[method]:.2f}" if method in means else "–" for method in METHODS)
            rows.append([f"{protocol}, {title}", *cells])
    return table(["protocol, mean rank in", *METHODS], rows)


def leader(protocol: str) -> str:
    """The lowest mean rank of the other methods beside DE-GP's, and how many sets DE-GP is best on."""
    rows = _records(protocol)
    means = mean_ranks(rows, "nll")
    others = {name: rank for name, rank in means.items() if name != OWN}
    if OWN not in means or not others:
        return NOT_RUN
    best = lowest(others)
    count = f"{len(_best_sets(rows)) or 'none'} of {len(_sets(rows))} sets"
    return f"it is best on {count}, and its mean rank is {means[OWN]:.2f}, that of {best} {means[best]:.2f}"


def best_on(protocol: str) -> str:
    """Sets on which DE-GP has the lowest mean NLL."""
    return listed(_best_sets(_records(protocol)), "no set")


def unfinished() -> str:
    """A sentence about sets without protocol "ours"; nothing where it has run on all."""
    run = _sets(_records("ours"))
    missing = [name for name in _sets(_records("paper")) if name not in run]
    return f' Protocol "ours" has not been run on {listed(missing)} yet.' if missing else ""


def own_protocol() -> str:
    """What protocol "ours" was when its records were made: before version 0.2, epochs were counted and α was chosen."""
    rows = where(_records("ours"), method=OWN)
    earlier = _sets([row for row in rows if "epochs" in row])
    old = "the estimator of version 0.1 for every method, with α chosen on 15 % of the training fold"
    new = "the defaults of `DEGPRegressor` for every method; NN-GP is its exact process, where it has one"
    if len(earlier) == len(_sets(rows)) > 0:
        return old
    return f"{new}. On {listed(earlier)} it is {old}" if earlier else new


def against_de(protocol: str) -> str:
    """Sets on which DE-GP's NLL differs from DE's by more than the 95 % interval of the paired difference."""
    rows = _records(protocol)
    found: dict[bool, list[str]] = {True: [], False: []}
    for name in _sets(rows):
        centre, half = paired_difference(rows, name, OWN, "nll")
        if abs(centre) > half:
            found[centre < 0].append(name)
    return f"lower on {listed(found[True])}, higher on {listed(found[False])}"


def nll_beside_rms(protocol: str, name: str) -> str:
    """NLL of DE-GP and of RMS on a set."""
    rows = where(_records(protocol), dataset=name)
    return " and ".join(f"{method} {cell(values(where(rows, method=method), 'nll'), 2)}" for method in (OWN, "RMS"))


def coverage(protocol: str) -> str:
    """Mean coverage of DE-GP's 90 % intervals over sets, and the least."""
    return _coverage(where(_records(protocol), method=OWN))


def interval_table() -> str:
    """The default estimator, by data set: means over folds."""
    rows = []
    for name in names(list(records("intervals")), "dataset"):
        own = where(records("intervals"), dataset=name)
        scores = (cell(values(own, score)) for score in ("coverage90", "nll", "rmse"))
        rows.append([name, str(len(own)), f"{own[0]['rows']:,}", *scores])
    return table(["data set", "folds", "rows", "coverage", "NLL", "RMSE"], rows)


def interval_coverage() -> str:
    """Mean coverage over the UCI sets, and the least."""
    return _coverage([row for row in records("intervals") if row["dataset"] not in UNSEEN])


def _coverage(rows: Records) -> str:
    by_set = {name: mean(values(where(rows, dataset=name), "coverage90")) for name in _sets(rows)}
    if not by_set:
        return "an unknown share"
    worst = lowest(by_set)
    return f"{100 * mean(by_set.values()):.1f} % on average, {100 * by_set[worst]:.1f} % at the least ({worst})"


def _records(protocol: str) -> Records:
    return where(records("uci"), protocol=protocol)


def _best_sets(rows: Records) -> list[str]:
    return [name for name in _sets(rows) if lowest(_means(where(rows, dataset=name))) == OWN]


def _sets(rows: Records) -> list[str]:
    return names(list(rows), "dataset")


def _means(rows: Records) -> dict[str, float]:
    return {method: mean(values(where(rows, method=method), "nll")) for method in names(list(rows), "method")}
