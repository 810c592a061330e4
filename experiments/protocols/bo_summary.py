"""The records of Bayesian optimisation as a table and a figure: `summary.md` and `regret.png`."""

from pathlib import Path
from typing import Any

import numpy as np

from degp.report.figures import legend_below, look, panels, plain_ticks, save_figure
from experiments.protocols.independent_runs import names

__all__ = ["TITLES", "final_table", "write_summary"]

Records = list[dict[str, Any]]
TITLES = {
    "branin": "Branin",
    "hartmann6": "Hartmann-6",
    "ackley10": "Ackley-10",
    "noisy-hartmann3": "Hartmann-3 with noise",
    "mixed-ackley8": "Ackley-8 with mixed variables",
}


def write_summary(records: Records, folder: Path) -> None:
    """Writes both."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.md").write_text(f"# Bayesian optimisation\n\n{final_table(records)}\n", encoding="utf-8")
    if records:
        save_figure(_figure(records), folder / "regret.png")


def final_table(records: Records) -> str:
    """Median and quartiles of the regret after the last evaluation, and the cost of a run."""
    lines = [
        "Simple regret after the last evaluation, median (quartiles) over seeds; median CPU seconds per run.",
        "",
        "| problem | method | regret | seeds | seconds |",
        "|---|---|---|---|---|",
    ]
    for problem in names(records, "problem"):
        for method in names(records, "method"):
            last = _last(records, problem, method)
            if last:
                low, middle, high = np.quantile([r["simple_regret"] for r in last], [0.25, 0.5, 0.75])
                seconds = np.median([r["cpu_seconds"] for r in last])
                cell = f"{middle:.3g} ({low:.3g} to {high:.3g})"
                lines.append(
                    f"| {problem}, {last[0]['evaluations']} | {method} | {cell} | {len(last)} | {seconds:.0f} |"
                )
    return "\n".join(lines)


def _figure(records: Records) -> Any:
    """One panel per problem, three in a row: median and quartiles of the regret over evaluations."""
    problems = names(records, "problem")
    columns = min(3, len(problems))
    figure, grid = panels(-(-len(problems) // columns), columns, width=3.2, height=2.7)
    for axes in grid.flat[len(problems) :]:
        axes.set_visible(False)
    for axes, problem in zip(grid.flat, problems, strict=False):
        for method in names(records, "method"):
            own = [r for r in records if (r["problem"], r["method"]) == (problem, method)]
            counts = sorted({r["evaluations"] for r in own})
            regrets = [[r["simple_regret"] for r in own if r["evaluations"] == count] for count in counts]
            if regrets:
                bands = np.array([np.quantile(values, [0.25, 0.5, 0.75]) for values in regrets]).T
                axes.fill_between(counts, bands[0], bands[2], color=look(method)["color"], alpha=0.15, linewidth=0)
                axes.plot(counts, bands[1], label=method, **look(method))
        axes.set(title=TITLES.get(problem, problem), xlabel="evaluations", yscale="log")
        plain_ticks(axes.yaxis)
    for axes in grid[:, 0]:
        axes.set_ylabel("simple regret")
    legend_below(figure, grid, "median over seeds; bands: quartiles")
    return figure


def _last(records: Records, problem: str, method: str) -> Records:
    own = [r for r in records if (r["problem"], r["method"]) == (problem, method)]
    return [r for r in own if r["evaluations"] == max(s["evaluations"] for s in own)]
