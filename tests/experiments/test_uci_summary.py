"""Summaries of UCI runs that are unfinished, or that have no exact process on large sets."""

import math

from experiments.protocols.uci_summary import METHODS, mean_ranks, paired_difference, write_summary


def records(*, without):
    """Scores on two sets, three folds; (set, method) pairs `without` have none."""
    return [
        {"dataset": name, "protocol": "ours", "method": method, "fold": fold, "alpha": 1.0}
        | {"nll": place + 0.1 * fold, "rmse": place + 0.2 * fold, "coverage90": 0.9}
        for name in ("small", "large")
        for place, method in enumerate(METHODS)
        for fold in range(3)
        if (name, method) not in without
    ]


def test_only_methods_on_all_sets_are_ranked():
    assert mean_ranks(records(without=set()), "nll") == {method: k + 1 for k, method in enumerate(METHODS)}
    assert mean_ranks(records(without={("large", "NN-GP")}), "nll") == {"DE": 1, "rDE": 2, "RMS": 3, "DE-GP": 4}


def test_differences_are_paired_by_fold():
    rows = [row for row in records(without=set()) if (row["method"], row["fold"]) != ("rDE", 0)]
    centre, half = paired_difference(rows, "small", "rDE", "nll")
    assert math.isclose(centre, 1.0) and half < 1e-9
    alone = [row for row in rows if row["fold"] == 2]
    assert all(map(math.isnan, paired_difference(alone, "small", "rDE", "nll")))


def test_an_unfinished_run_has_a_summary(tmp_path):
    rows = [row for row in records(without={("large", "NN-GP")}) if row["dataset"] == "small" or row["fold"] == 0]
    write_summary(rows, tmp_path)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| large | **0.000** | 1.000 | 2.000 | – | 4.000 |" in text
    assert (tmp_path / "figure3_ours.png").exists()
