"""Progress: honest totals under a time limit, lines without a terminal, nothing where nothing is asked for."""

import math

import pytest

from degp.runtime import progress
from degp.runtime.progress import duration, expected_total, progress_bar


@pytest.mark.parametrize(
    "done, steps, seconds, limit, expected",
    [
        (10, 10, 2.0, math.inf, 100),  # no limit
        (10, 10, 2.0, 60.0, 100),  # enough time for all
        (10, 10, 2.0, 4.0, 20),  # 5 per second for 4 seconds
        (30, 10, 2.0, 4.0, 40),  # resumed at 20: the time limit counts from there
        (10, 10, 5.0, 4.0, 10),  # over time: no more than what is done
        (20, 0, 0.0, 4.0, 100),  # nothing is known yet
    ],
)
def test_the_total_is_what_fits_into_the_time(done, steps, seconds, limit, expected):
    assert expected_total(100, done, steps, seconds, limit) == expected


@pytest.mark.parametrize(
    "seconds, text", [(0.4, "0 s"), (75.2, "1 min 15 s"), (3599.6, "1 h 0 min"), (7380.0, "2 h 3 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, as a list of one number that tests advance."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_lines_come_every_half_minute(clock, capsys):
    with progress_bar(100, "step", True, max_seconds=120.0) as bar:
        bar.set_postfix({"loss": "0.5"})
        for _ in range(9):
            clock[0] += 10.0
            bar.update(2)
    assert capsys.readouterr().err.splitlines() == [
        "step 6 of 24: 30 s elapsed, 1 min 30 s left at most, loss 0.5",
        "step 12 of 24: 1 min 0 s elapsed, 1 min 0 s left at most, loss 0.5",
        "step 18 of 24: 1 min 30 s elapsed, 30 s left at most, loss 0.5",
    ]


def test_an_unknown_total_is_left_out(clock, capsys):
    for limit in (None, 120.0):
        with progress_bar(None, "step", True, max_seconds=limit) as bar:
            clock[0] += 30.0
            bar.update(6)
    assert capsys.readouterr().err.splitlines() == [
        "step 6: 30 s elapsed",
        "step 6 of 24: 30 s elapsed, 1 min 30 s left at most",
    ]


@pytest.mark.parametrize("shown", [None, False])
def test_lines_are_printed_on_request_only(shown, clock, capsys):
    with progress_bar(100, "step", shown) as bar:
        clock[0] += 100.0
        bar.update()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_with_the_elapsed_and_the_remaining_time(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_is_interactive", lambda: True)
    with progress_bar(4, "step", True, done=1):
        pass
    assert "step 1 of 4, 00:00 elapsed, ? left" in capsys.readouterr().err
    with progress_bar(None, "step", True) as bar:
        bar.update()
    assert "of ?, 00:00 elapsed, ? left" in capsys.readouterr().err
