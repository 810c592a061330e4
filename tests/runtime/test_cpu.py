"""Denormal numbers are flushed within a block only, and tuning the process changes no number."""

import torch

from degp.runtime.cpu import no_denormals, tune_process


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
    before, threads = is_flushed(), torch.get_num_threads()
    tune_process()
    assert (is_flushed(), torch.get_num_threads()) == (before, threads)
