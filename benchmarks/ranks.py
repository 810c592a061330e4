"""Scaling over ranks: steps of eight MLPs on 1, 2 and 4 processes, and a model of ResNets on 8 to 1024 GPUs."""

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import torch

from benchmarks.timing import in_turns
from degp import Batch, Ensemble, Gaussian, methods
from degp.nets import mlp
from degp.priors import NNGP
from degp.runtime import distributed
from degp.runtime.cpu import tune_process
from degp.training import TrainState
from degp.training.step import require_finite, train_step

M, B, D, WIDTHS = 8, 128, 13, (512, 512)
RANKS, ROUNDS = (1, 2, 4), 3

# Assumptions of the model. Milliseconds are measured on one H200, in bf16 and captured (`images` in README.md): a
# member's step, the loss of ten members forward and backward, and, for the forward pass of ten prior networks, the
# whole difference between a step of DE-GP and one of DE. With several replicas steps are not captured, hence slower,
# and the share of replicated work is smaller than modelled.
NETWORKS = {"ResNet-20": (0.444, 270_000), "ResNet-56": (1.21, 850_000)}  # ms per member and step, weights
LOSS, PRIOR = 0.025, 0.83  # ms per member, since it grows with M; ms
CLASSES, IMAGES = 10, 128
SHAPES = ((64, 8, 1), (64, 64, 1), (64, 8, 8), (64, 8, 32), (64, 8, 128), (64, 64, 16))  # members, blocks, replicas
NODE = 8  # GPUs
WITHIN, ACROSS = 300e9, 40e9  # bytes per second and GPU: NVLink, and one 400 Gb/s card each
LATENCY, HOP = 20e-3, 5e-3  # ms per message, and per doubling of the nodes


def run() -> list[dict[str, Any]]:
    """Milliseconds per step, and parallel efficiency: 1 is R times as fast as one rank."""
    rounds = [{R: _launch(R) for R in RANKS} for _ in range(ROUNDS)]
    times = {R: statistics.median(one[R]["ms"] for one in rounds) for R in RANKS}
    work = {R: statistics.median(one[R]["CPU ms"] for one in rounds) for R in RANKS}
    modelled = [_modelled(name, *shape) for name in NETWORKS for shape in SHAPES]
    return [_measured(R, times, work) for R in RANKS] + modelled


def _measured(R: int, times: dict[int, float], work: dict[int, float]) -> dict[str, Any]:
    return {
        "step": f"{R} processes, measured",
        "members": M,
        "blocks × replicas": f"{R} × 1",
        "ms": times[R],
        "efficiency": times[1] / times[R] / R,
        "kB sent": _sizes().sent(blocks=R) / 1e3,
        "CPU ms per rank": work[R],
    }


def _modelled(network: str, members: int, blocks: int, replicas: int) -> dict[str, Any]:
    """Efficiency: the time of one GPU for the same members and images, divided by the ranks, over the time of a step.

    A step is its networks, the loss and the prior's networks, which every rank computes, and the messages, which wait
    for the networks and overlap with nothing.
    """
    own, weights = NETWORKS[network]
    sizes = distributed.StepSizes(members, IMAGES * replicas, CLASSES, weights, learned=1, terms=3)
    R, largest = blocks * replicas, -(-members // blocks)
    sent = sizes.sent(blocks=blocks, replicas=replicas)
    messages = 2 + 2 * (replicas > 1)  # outputs and the learned temperature; losses and gradients of the members
    nodes = -(-R // NODE)
    communication = messages * (LATENCY + HOP * (nodes - 1).bit_length()) + 1e3 * sent / (
        WITHIN if nodes == 1 else ACROSS
    )
    replicated = LOSS * members + PRIOR
    step = largest * own + replicated + communication
    return {
        "step": f"{R} GPUs, {network}, modelled",
        "members": members,
        "blocks × replicas": f"{blocks} × {replicas}",
        "ms": step,
        "efficiency": (members * own + replicated) * replicas / R / step,
        "kB sent": sent / 1e3,
    }


def _launch(ranks: int) -> dict[str, float]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run([*torchrun, "-m", "benchmarks.ranks"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _sizes() -> distributed.StepSizes:
    weights = sum(p.numel() for p in mlp(D, WIDTHS, 1).parameters())
    return distributed.StepSizes(M, B, 1, weights, terms=3)


def _rank() -> None:
    """One of the measured processes."""
    torch.set_num_threads(1)
    tune_process()
    mesh = distributed.start(device="cpu")
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(D, WIDTHS, 1), M).split(mesh)
    generator = torch.Generator().manual_seed(0)
    batch = Batch(torch.randn(B, D, generator=generator), torch.randn(B, 1, generator=generator))
    method = methods.degp(Gaussian(0.1), NNGP(len(WIDTHS)))
    state = TrainState(ensemble, method, [torch.optim.Adam(ensemble.parameters(), lr=1e-4)], [], generator)

    def step() -> None:
        prepared = method.prepare(batch.inputs, generator=generator)
        train_step(state, batch, prepared, generator=generator, inspect=require_finite)

    before, rounds = time.process_time(), 40
    milliseconds = in_turns({"step": step}, rounds=rounds, warm_up=0)["step"]
    if mesh.is_first:
        print(json.dumps({"ms": milliseconds, "CPU ms": 1e3 * (time.process_time() - before) / rounds}), flush=True)


if __name__ == "__main__":
    _rank()
