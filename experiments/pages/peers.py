"""Tables against other libraries: ranks, their significance, coverage, and where DE-GP is behind."""

from functools import cache
from statistics import mean, median

from experiments.pages.stored import Records, cell, failures, listed, lowest, records, table, values, where
from experiments.protocols.independent_runs import names
from experiments.protocols.peers.cells import IID
from experiments.protocols.peers.ranks import Ranking, rank
from experiments.protocols.peers.summary import FULL_NAMES, GROUPS, TITLES, Group, barely_begun, compared, losses
from experiments.protocols.peers.summary import behind as tables_behind

__all__ = [
    "behind",
    "below",
    "census",
    "coverage",
    "extrapolation",
    "fit_seconds",
    "for_readme",
    "leaders",
    "lowest_ranks",
    "num_methods",
    "num_splits",
    "num_tables",
    "proven_leads",
    "ranks",
    "unranked",
]

OWN = "DE-GP"
NOT_RANKED = f"{OWN} is not ranked: less than half of its runs are done."
NO_INTERVALS = "an unknown share"
DAGGER = "†"  # marks significant differences
USED_NOW = ("DE-GP", "GP", "DE", "NGBoost", "Laplace")  # in README.md


def num_methods(group: str = "regression") -> str:
    """How many methods are ranked."""
    return str(len(_ranking(group, "nll").means))


def num_tables(group: str = "regression") -> str:
    """How many tables all of them have."""
    return str(len(_ranking(group, "nll").tables))


def num_splits(group: str = "regression") -> str:
    """Of how many random splits the scores are means."""
    mine = [record for record in _compared()[0] if _group(group).has(record)]
    splits = len({record["split"] for record in mine})
    return f"{splits} split{'s' * (splits != 1)}"


def leaders(group: str, *splits: str) -> str:
    """The three methods of the lowest mean ranks in each score, over these splits or over all."""
    found = []
    for score in _group(group).ranked:
        first = list(_ranking(group, score, splits).means.items())[:3]
        found.append(f"{TITLES.get(score, score)}: " + ", ".join(f"{_full(name)} {value:.2f}" for name, value in first))
    return "; ".join(found)


def means(group: str, score: str = "nll") -> dict[str, float]:
    """Mean ranks by method, the best first."""
    return _ranking(group, score).means


def fit_seconds(method: str) -> str:
    """CPU seconds of a fit, the median over random splits of the regression tables."""
    return _seconds("regression", method)


def for_readme() -> str:
    """The methods that readers use now: rank, time, and on how many tables they have the lower NLL."""
    ranking = _ranking("regression", "nll")
    if OWN not in ranking.means:
        return NOT_RANKED
    cells = []
    for method in [name for name in USED_NOW if name in ranking.means]:
        far = abs(ranking.means[method] - ranking.means[OWN]) > ranking.difference
        ahead = "" if method == OWN else below(method).removesuffix(" tables")
        cells.append([_full(method), f"{ranking.means[method]:.2f}{DAGGER * far}", fit_seconds(method), ahead])
    heads = ["", "rank", "fit, CPU s", f"NLL below {OWN}'s"]
    return f"{table(heads, cells)}\n\n{DAGGER} Differs significantly from {OWN} (Nemenyi, 5 %)."


def below(method: str, group: str = "regression") -> str:
    """On how many tables the NLL of a method is below DE-GP's."""
    scores, tables = losses(*_compared(), _group(group), "nll"), _ranking(group, "nll").tables
    if not {OWN, method} <= scores.keys():
        return "an unknown number of tables"
    better = sum(scores[method][name] < scores[OWN][name] for name in tables)
    return f"{better} of {len(tables)} tables"


def proven_leads(*methods: str, group: str = "regression") -> str:
    """Over which methods DE-GP's lead in NLL is significant, over which it is not, and which are ahead."""
    ranking = _ranking(group, "nll")
    if OWN not in ranking.means:
        return NOT_RANKED
    own, least = ranking.means[OWN], ranking.difference
    others = [name for name in ranking.means if name != OWN and name in (methods or ranking.means)]
    lead = {name: ranking.means[name] - own for name in others}
    sentences = {
        f"{OWN} has a significant lead over {{}}.": [name for name in others if lead[name] > least],
        "Its lead over {} is not significant.": [name for name in others if 0 < lead[name] <= least],
        "It shares its rank with {}.": [name for name in others if lead[name] == 0],
        "Ahead of it, though not significantly: {}.": [name for name in others if -least <= lead[name] < 0],
        "Significantly ahead of it: {}.": [name for name in others if lead[name] < -least],
    }
    found = [text.format(listed(list(map(_full, names)))) for text, names in sentences.items() if names]
    if not any(lead[name] > least for name in others):
        found.insert(0, f"{OWN} has no significant lead.")
    return " ".join([f"Mean ranks that differ by more than {least:.2f} differ significantly (Nemenyi, 5 %).", *found])


def ranks(group: str) -> str:
    """Mean ranks of all methods, and the time of a fit."""
    by_score = {score: _ranking(group, score).means for score in _group(group).ranked}
    heads = ["method", *(f"rank, {TITLES.get(score, score)}" for score in by_score), "fit, CPU s"]
    rows = [
        [_full(method), *(f"{means[method]:.2f}" for means in by_score.values()), _seconds(group, method)]
        for method in by_score["nll"]
    ]
    return table(heads, rows)


def lowest_ranks() -> str:
    """Which method has the lowest mean rank in which score, by kind of tables."""
    lines = []
    for group in GROUPS:
        best: dict[str, list[str]] = {}
        for score in group.ranked:
            ranked = _ranking(group.slug, score).means
            if ranked:
                best.setdefault(lowest(ranked), []).append(TITLES.get(score, score))
        words = "; ".join(f"{_full(method)} in {listed(scores)}" for method, scores in best.items())
        lines += [f"- {group.title}: lowest mean rank of {words}."] if words else []
    return "\n".join(lines)


def coverage(group: str = "regression") -> str:
    """Mean coverage of DE-GP's 90 % intervals over tables, and the least."""
    by_table = _coverage(group, OWN)
    if not by_table:
        return NO_INTERVALS
    worst = lowest(by_table)
    return f"{100 * mean(by_table.values()):.1f} % on average, {100 * by_table[worst]:.1f} % at the least ({worst})"


def extrapolation() -> str:
    """Mean coverage of DE-GP's 90 % intervals when it extrapolates, and the least, beside the GP's there."""
    own = _coverage("extrapolation", OWN)
    if not own:
        return NO_INTERVALS
    worst = lowest(own)
    other = _coverage("extrapolation", "GP").get(worst)
    beside = "" if other is None else f"; {_full('GP')} {100 * other:.0f} %"
    least = f"{100 * own[worst]:.0f} % at the least ({worst}{beside})"
    return f"{100 * mean(own.values()):.0f} % on average, {least}"


def census() -> str:
    """NLL on the table with the most categories."""
    rows = where(_compared()[0], dataset="census", kind=IID)
    best = sorted(names(list(rows), "method"), key=lambda m: mean(values(where(rows, method=m), "nll")))
    shown = [name for name in best if name in (OWN, *best[:2])]
    return ", ".join(f"{_full(name)} {cell(values(where(rows, method=name), 'nll'))}" for name in shown) or "unknown"


def behind(group: str = "regression") -> str:
    """On how many tables another method has the lower NLL in every split, and on which."""
    found = [f"{name} ({_full(best)})" for name, best in tables_behind(_compared()[0], _group(group), "nll")]
    if OWN not in _ranking(group, "nll").means:
        return "an unknown number of tables"
    count = f"{len(found) or 'none'} of {num_tables(group)} tables"
    return f"{count}: {listed(found)}" if found else count


def unranked() -> str:
    """A sentence about methods whose runs are less than half done; nothing where there are none."""
    begun = barely_begun([*records("peers"), *failures("peers")])
    where_not = [f"{listed(begun[group.slug])} in {group.title.lower()}" for group in GROUPS if begun[group.slug]]
    return f" Not ranked, since less than half of the runs are done: {'; '.join(where_not)}." if where_not else ""


@cache
def _compared() -> tuple[Records, Records]:
    return compared(records("peers"), failures("peers"))


@cache
def _ranking(group: str, score: str, splits: tuple[str, ...] = ()) -> Ranking:
    rows, failed = ([r for r in each if not splits or str(r["split"]) in splits] for each in _compared())
    return rank(losses(rows, failed, _group(group), score))


def _group(slug: str) -> Group:
    return next(group for group in GROUPS if group.slug == slug)


def _records(group: str, method: str) -> Records:
    return [row for row in where(_compared()[0], method=method) if _group(group).has(row)]


def _coverage(group: str, method: str) -> dict[str, float]:
    """Of 90 % intervals, by table."""
    rows = _records(group, method)
    return {name: mean(values(where(rows, dataset=name), "coverage90")) for name in names(list(rows), "dataset")}


def _seconds(group: str, method: str) -> str:
    own = values(_records(group, method), "fit_seconds")
    return f"{median(own):.3g}" if own else "–"


def _full(method: str) -> str:
    return FULL_NAMES.get(method, method)
