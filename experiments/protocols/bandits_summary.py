"""The bandit records as tables and a figure: `summary.md` and `bandits.png`."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from degp.report import load_results
from degp.report.figures import legend_below, look, panels, save_figure
from degp.runtime.files import read_json
from experiments.protocols.independent_runs import names

__all__ = ["write_summary"]

Records = list[dict[str, Any]]

# Regret relative to uniform = 100, of Table 3 of the BatchEnsemble paper (30 trials).
PUBLISHED = {
    "mushroom": {
        "four networks": "13.44 ± 3.83",
        "BatchEnsemble, four members": "15.22 ± 5.21",
        "dropout": "15.05 ± 8.23",
        "multitask GP": "12.87 ± 4.70",
        "one network, greedy": "16.31 ± 6.13",
    }
}


def write_summary(folder: Path) -> None:
    """Writes both from the results in the folder."""
    records = load_results(folder)["records"]
    curves = read_json(folder / "curves.json")
    pages = [_page(records, name) for name in names(records, "environment")]
    (folder / "summary.md").write_text("# Contextual bandits\n\n" + "\n".join(pages), encoding="utf-8")
    save_figure(_figure(curves), folder / "bandits.png")


def _page(records: Records, environment: str) -> str:
    own = [record for record in records if record["environment"] == environment]
    lines = [
        f"## {environment.capitalize()}",
        "",
        f"{own[0]['rounds']} rounds; mean ± standard error over trials. Regret is in expected rewards, relative to "
        "uniform choice at 100.",
        "",
        "| agent | relative regret | cumulative reward | trials | seconds per trial |",
        "|---|---|---|---|---|",
    ]
    for agent in sorted(names(own, "agent"), key=lambda name: mean(_values(own, name, "relative_regret"))):
        regret, reward = _values(own, agent, "relative_regret"), _values(own, agent, "cumulative_reward")
        seconds = mean(_values(own, agent, "seconds"))
        lines.append(f"| {agent} | {_cell(regret, 2)} | {_cell(reward, 0)} | {len(regret)} | {seconds:.0f} |")
    for method, value in PUBLISHED.get(environment, {}).items():
        lines.append(f"| *published: {method}* | {value} | | 30 | |")
    return "\n".join([*lines, "", *_differences(own), ""])


def _differences(records: Records) -> list[str]:
    """DE-GP's relative regret minus each baseline's, paired over trials."""
    if "DE-GP" not in names(records, "agent"):
        return []
    lines = ["DE-GP minus, paired over trials:", ""]
    own = _by_trial(records, "DE-GP")
    for agent in names(records, "agent"):
        other = _by_trial(records, agent)
        differences = [own[trial] - other[trial] for trial in own if trial in other]
        if agent != "DE-GP" and differences:
            lines.append(f"- {agent}: {_cell(differences, 2, sign='+')}")
    return lines


def _by_trial(records: Records, agent: str) -> dict[int, float]:
    return {record["trial"]: record["relative_regret"] for record in records if record["agent"] == agent}


def _figure(curves: Records) -> Any:
    environments = names(curves, "environment")
    figure, grid = panels(2, len(environments), width=4.2, height=3.0)
    for column, environment in enumerate(environments):
        own = [curve for curve in curves if curve["environment"] == environment]
        for row, (quantity, title) in enumerate((("reward", "cumulative reward"), ("regret", "cumulative regret"))):
            axes = grid[row, column]
            for agent in names(own, "agent"):
                _draw(axes, [curve for curve in own if curve["agent"] == agent], quantity)
            if quantity == "regret":  # uniform choice would dominate the scale
                axes.set_ylim(0, 1.3 * max((max(c["regret"]) for c in own if c["agent"] != "uniform"), default=1.0))
            axes.set(title=environment.capitalize() if row == 0 else "", ylabel=title, xlabel="rounds" if row else "")
    legend_below(figure, grid, "mean over trials; bands: ± 1 standard deviation")
    return figure


def _draw(axes: Any, curves: Records, quantity: str) -> None:
    """Mean ± one standard deviation over trials."""
    agent, values = curves[0]["agent"], np.array([curve[quantity] for curve in curves])
    x = curves[0]["every"] * np.arange(1, values.shape[1] + 1)
    middle, spread = values.mean(0), values.std(0)
    axes.fill_between(x, middle - spread, middle + spread, color=look(agent)["color"], alpha=0.15, linewidth=0)
    axes.plot(x, middle, label=agent, **look(agent))


def _values(records: Records, agent: str, score: str) -> list[float]:
    own = sorted((record for record in records if record["agent"] == agent), key=lambda record: record["trial"])
    return [record[score] for record in own]


def _cell(values: Sequence[float], digits: int, sign: str = "") -> str:
    error = f" ± {stdev(values) / math.sqrt(len(values)):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.{digits}f}{error}"
