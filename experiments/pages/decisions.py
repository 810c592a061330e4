"""Bandits, Bayesian optimisation and active learning."""

import math
from statistics import median
from typing import Any

from experiments.pages.stored import cell, records, signed, table, values, where
from experiments.protocols.active_summary import labels_needed
from experiments.protocols.bandits_summary import PUBLISHED
from experiments.protocols.bo_summary import TITLES
from experiments.protocols.independent_runs import names

__all__ = ["bandit_lead", "bandits", "labels", "regret"]

OWN = "DE-GP"
GAMES = ("mushroom", "covertype")
LAST = 200  # labels of the random strategy that others are compared with


def bandits() -> str:
    """Relative regret by agent, and published values."""
    agents = names(list(records("bandits")), "agent")
    rows = [[agent, *(relative_regret(game, agent) for game in GAMES)] for agent in agents]
    rows += [[f"published: {method}", value, "–"] for method, value in PUBLISHED["mushroom"].items()]
    return table(["agent", *(game.capitalize() for game in GAMES)], rows)


def relative_regret(game: str, agent: str) -> str:
    """Mean ± standard error over trials; uniform choice has 100."""
    return cell(values(where(records("bandits"), environment=game, agent=agent), "relative_regret"), 1)


def bandit_lead(game: str, agent: str) -> str:
    """DE-GP's relative regret minus that of another agent, paired over trials."""
    here = where(records("bandits"), environment=game)
    own, other = ({r["trial"]: r["relative_regret"] for r in where(here, agent=name)} for name in (OWN, agent))
    return signed([own[trial] - other[trial] for trial in own], 1)


def regret() -> str:
    """Median simple regret after the last evaluation, by problem and method."""
    methods = names(list(records("bo")), "method")
    rows = []
    for problem in names(list(records("bo")), "problem"):
        by_method = last_regret(problem)
        rows.append(
            [
                f"{TITLES.get(problem, problem)}, {_evaluations(problem)}",
                *(f"{by_method[method]:.3g}" for method in methods),
            ]
        )
    return table(["problem, evaluations", *methods], rows)


def last_regret(problem: str) -> dict[str, float]:
    """Its median over seeds, by method."""
    rows = where(records("bo"), problem=problem, evaluations=_evaluations(problem))
    return {name: median(values(where(rows, method=name), "simple_regret")) for name in names(list(rows), "method")}


def labels() -> str:
    """Labels that each strategy needs for the error of 200 random ones."""
    rows = [dict(row) for row in records("active")]
    sets, strategies = names(rows, "dataset"), names(rows, "strategy")
    return table(["labels needed", *sets], [[s, *(_needed(rows, name, s) for name in sets)] for s in strategies])


def _needed(rows: list[dict[str, Any]], name: str, strategy: str) -> str:
    needed = labels_needed(rows, name, strategy, LAST)
    return f"{needed:.0f}" if math.isfinite(needed) else f"> {LAST}"


def _evaluations(problem: str) -> int:
    return max(row["evaluations"] for row in where(records("bo"), problem=problem))
