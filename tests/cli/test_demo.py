"""`degp demo`: a table, a figure, and an explanation."""

from tests.cli.commands import run


def test_demo_compares_two_ensembles_with_the_exact_posterior(tmp_path):
    done = run("demo", "--members", "3", "--steps", "20", "--out", tmp_path / "demo.svg")
    assert done.exit_code == 0, done.output
    for phrase in ("training DE: 3 networks, 20 steps", "training DE-GP: 3 networks", "error of std", "Figure: "):
        assert phrase in done.stdout
    assert (tmp_path / "demo.svg").read_text().startswith("<?xml")


def test_a_figure_of_an_unknown_format_is_rejected(tmp_path):
    assert run("demo", "--out", tmp_path / "demo.txt").exit_code == 2
