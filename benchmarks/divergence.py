"""Time and memory of the KL divergence, forward and backward, over points and outputs; ten members."""

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import in_turns
from degp import KroneckerGaussian, ensemble_posterior, kl_divergence
from degp.priors import NNGP
from degp.runtime.cpu import tune_process

M = 10
POINTS, OUTPUTS = (64, 128, 256, 512, 1024), (1, 10, 100, 1000)


def run() -> list[dict[str, Any]]:
    """Each size in a fresh process, for its own peak memory; then the growth exponents."""
    records = [{"N": N, "C": C, **_measured(N, C)} for N in POINTS for C in OUTPUTS]
    return [*records, *_exponents(records)]


def _measured(N: int, C: int) -> dict[str, float]:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.divergence", str(N), str(C)], capture_output=True, text=True, check=True
    ).stdout
    milliseconds, mebibytes = (float(word) for word in output.split())
    return {"ms": milliseconds, "MiB": mebibytes, "MiB of the deviations": M * N * C * 8 / 2**20}


def _exponents(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Slopes of log time: over the two largest N at C = 1 and the two largest C at N = 256."""
    times = {(r["N"], r["C"]): r["ms"] for r in records}
    by_points = math.log2(times[1024, 1] / times[512, 1])
    by_outputs = math.log10(times[256, 1000] / times[256, 100])
    return [
        {"N": "time ~ N^", "C": 1, "ms": by_points},
        {"N": 256, "C": "time ~ C^", "ms": by_outputs},
    ]


def _one(N: int, C: int) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(M, N, C, generator=generator, requires_grad=True)
    points = torch.randn(N, 8, generator=generator)
    p = KroneckerGaussian.from_gram(NNGP(2)(points, points), C, jitter=0.05)
    before = _peak_mebibytes()

    def forward_and_backward() -> None:
        kl_divergence(ensemble_posterior(outputs), p).backward()

    (milliseconds,) = in_turns({"kl": forward_and_backward}, rounds=5, warm_up=1).values()
    print(milliseconds, _peak_mebibytes() - before)


def _peak_mebibytes() -> float:
    """Of this process alone: `getrusage` would include the parent's memory at the start."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**10


if __name__ == "__main__":
    tune_process()
    _one(int(sys.argv[1]), int(sys.argv[2]))
