"""Figures: a method looks the same everywhere, and ticks are plain numbers."""

import re

import pytest

from degp.report.figures import COLOURS, LINES, legend_below, look, panels, plain_ticks

pytest.importorskip("matplotlib")

METHODS = ("DE", "rDE", "RMS", "DE-GP", "NN-GP")


def test_methods_differ_in_colour_and_in_line():
    assert len({COLOURS[name] for name in METHODS}) == len(METHODS)
    assert len({str(look(name)["linestyle"]) for name in METHODS}) == len(METHODS)
    assert set(LINES) <= set(COLOURS)


@pytest.mark.parametrize("variant", ["DE-GP β = 0", "DE-GP, α = 0.1", "DE-GP"])
def test_variants_look_like_their_method(variant):
    assert look(variant) == look("DE-GP")


@pytest.mark.parametrize("count", [1, 4, 12])
def test_a_legend_is_no_wider_than_its_figure(count):
    import matplotlib.pyplot as plt

    figure, grid = panels(1, 1)
    for number in range(count):
        grid[0, 0].plot([number], label=f"a method with a long name, {number}")
    legend_below(figure, grid, "lines: means")
    (legend,) = figure.legends
    assert len(legend.get_texts()) == count
    assert legend.get_window_extent().width < figure.bbox.width
    plt.close(figure)


@pytest.mark.parametrize("low, high", [(0.5, 3.0), (0.01, 4.0), (120.0, 900.0)])
def test_ticks_of_logarithmic_axes_are_plain_numbers(low, high):
    import matplotlib.pyplot as plt

    figure, grid = panels(1, 1)
    axes = grid[0, 0]
    axes.plot([low, high])
    axes.set_yscale("log")
    plain_ticks(axes.yaxis)
    figure.canvas.draw()
    shown = [label.get_text() for label in axes.get_yticklabels() if label.get_text()]
    plt.close(figure)
    assert len(shown) >= 2
    assert all(re.fullmatch(r"[\d.]+", text) for text in shown)
