"""Threads, denormals and the allocator: what helps is chosen by measurement, and is as before after its block."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from degp.runtime import cpu
from degp.runtime.cpu import HOPELESS, SHORT, TRIALS, ThreadTrial, measured_threads, no_denormals, threads, tune_process


def is_flushed():
    return float(torch.tensor(1e-39) * 1) == 0.0


def test_denormals_are_flushed_within_the_block_only():
    before = is_flushed()
    with no_denormals():
        assert is_flushed()
        with no_denormals():
            pass
        assert is_flushed()  # an inner block restores the outer one
    assert is_flushed() == before


def test_tuning_the_process_leaves_the_calling_thread_unchanged():
    before, count = is_flushed(), torch.get_num_threads()
    tune_process()
    assert (is_flushed(), torch.get_num_threads()) == (before, count)


@pytest.fixture
def three():
    """A process of three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def in_a_new_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_threads_are_as_before_after_nested_blocks_and_errors(three):
    with pytest.raises(KeyError), threads(2) as outside:
        assert (outside, torch.get_num_threads()) == (3, 2)
        with threads(1) as outside:
            assert (outside, torch.get_num_threads()) == (2, 1)
        assert torch.get_num_threads() == 2
        raise KeyError
    assert torch.get_num_threads() == in_a_new_thread(torch.get_num_threads) == 3


def test_blocks_in_several_threads_leave_the_process_as_it_was(three):
    """They open while others are open, and close in the order they opened, so that each finds what another set."""
    count = 4
    opened, closed = threading.Barrier(count), [threading.Event() for _ in range(count + 1)]
    closed[0].set()

    def block(i):
        with threads(1) as outside:
            opened.wait(timeout=30)
            assert closed[i].wait(timeout=30)
            within = torch.get_num_threads()
        closed[i + 1].set()
        return outside, within, torch.get_num_threads()

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(block, range(count))) == [(3, 1, 3)] * count
    assert torch.get_num_threads() == in_a_new_thread(torch.get_num_threads) == 3


class Clock:
    """A clock that work advances by the seconds it takes with the current number of threads."""

    def __init__(self, seconds):
        self.now, self.seconds, self.counts = 0.0, seconds, []

    def perf_counter(self):
        return self.now

    def work(self):
        self.counts.append(torch.get_num_threads())
        self.now += self.seconds[self.counts[-1]]
        return len(self.counts)


@pytest.mark.parametrize(
    "seconds, tried, chosen",
    [
        ({1: 0.10, 3: 0.05}, TRIALS, 3),
        ({1: 0.10, 3: 0.099}, TRIALS, 1),  # no gain to speak of
        ({1: 0.10, 3: 0.20}, TRIALS, 1),
        ({1: 0.10, 3: 0.11 * HOPELESS}, 1, 1),  # a busy machine: one trial is enough
        ({1: 0.9 * SHORT, 3: 0.1 * SHORT}, 0, 1),
    ],
    ids=["faster", "hardly faster", "slower", "hopeless", "short"],
)
def test_more_threads_are_kept_where_they_are_faster(three, monkeypatch, seconds, tried, chosen):
    clock = Clock(seconds)
    monkeypatch.setattr(cpu, "time", clock)
    with measured_threads() as trial:
        assert [trial(clock.work) for _ in range(20)] == list(range(1, 21))
        assert torch.get_num_threads() == chosen  # also for what is not called through the trial
    assert clock.counts == [1] * TRIALS + [3] * tried + [chosen] * (20 - TRIALS - tried)
    assert torch.get_num_threads() == 3


def test_where_there_is_one_thread_nothing_is_tried(monkeypatch):
    clock = Clock({1: 1.0})
    monkeypatch.setattr(cpu, "time", clock)
    with threads(1):
        trial = ThreadTrial(1)
        for _ in range(10):
            trial(clock.work)
    assert clock.counts == [1] * 10


def test_an_error_within_a_trial_leaves_the_threads_as_they_were(three):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), measured_threads() as trial:
        trial(fail)
    assert torch.get_num_threads() == 3
