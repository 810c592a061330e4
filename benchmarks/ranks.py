"""What ranks gain: steps of eight MLPs on 1, 2 and 4 processes, and a model of ResNets on 8 to 1024 GPUs."""

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import torch

from benchmarks.timing import in_turns
from degp import Batch, Ensemble, Gaussian, distributed, objectives
from degp.nets import mlp
from degp.priors import NNGP
from degp.training import TrainState, step

M, B, D, WIDTHS = 8, 128, 13, (512, 512)
RANKS, ROUNDS = (1, 2, 4), 3

# Assumptions of the model. Milliseconds are measured on one H200, in bf16 and captured (`images` in README.md): a
# member's step, the objective of ten members forward and backward, and, for the forward pass of ten prior networks, all
# that a step of DE-GP takes more than one of DE. On many ranks steps are not captured, hence slower, and the share of
# what is not the networks' own is smaller than modelled.
NETWORKS = {"ResNet-20": (0.444, 270_000), "ResNet-56": (1.21, 850_000)}  # ms a member and step, weights
OBJECTIVE, PRIOR = 0.025, 0.83  # ms a member, since it grows with M; ms
CLASSES, IMAGES = 10, 128
SHAPES = ((64, 8, 1), (64, 64, 1), (64, 8, 8), (64, 8, 32), (64, 8, 128), (64, 64, 16))  # members, blocks, replicas
NODE = 8  # GPUs
WITHIN, ACROSS = 300e9, 40e9  # bytes a second and GPU: NVLink, and a 400 Gb/s card each
LATENCY, HOP = 20e-3, 5e-3  # ms a message, and for each doubling of the nodes


def run() -> list[dict[str, Any]]:
    """Milliseconds a step, and how much of what the ranks could do they do: 1 is R times as fast as one of them."""
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
        "CPU ms of a rank": work[R],
    }


def _modelled(network: str, members: int, blocks: int, replicas: int) -> dict[str, Any]:
    """Efficiency: the time of one GPU for the same members and images, shared out evenly, over the time of a step.

    A step is its networks, the objective and the prior's networks, which every rank computes, and the messages, which
    wait for the networks and overlap with nothing.
    """
    own, weights = NETWORKS[network]
    sizes = distributed.StepSizes(members, IMAGES * replicas, CLASSES, weights, learned=1, terms=3)
    R, largest = blocks * replicas, -(-members // blocks)
    sent = sizes.sent(blocks=blocks, replicas=replicas)
    messages = 2 + 2 * (replicas > 1)  # outputs and the learned temperature; losses and gradients of the members
    nodes = -(-R // NODE)
    talk = messages * (LATENCY + HOP * (nodes - 1).bit_length()) + 1e3 * sent / (WITHIN if nodes == 1 else ACROSS)
    joint = OBJECTIVE * members + PRIOR
    together = largest * own + joint + talk
    return {
        "step": f"{R} GPUs, {network}, modelled",
        "members": members,
        "blocks × replicas": f"{blocks} × {replicas}",
        "ms": together,
        "efficiency": (members * own + joint) * replicas / R / together,
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
    """One of the processes that are measured."""
    torch.set_num_threads(1)
    mesh = distributed.start(device="cpu")
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(D, WIDTHS, 1), M).split(mesh)
    generator = torch.Generator().manual_seed(0)
    batch = Batch(torch.randn(B, D, generator=generator), torch.randn(B, 1, generator=generator))
    objective = objectives.degp(Gaussian(0.1), NNGP(len(WIDTHS)))
    state = TrainState(ensemble, objective, [torch.optim.Adam(ensemble.parameters(), lr=1e-4)], [], generator)
    before, rounds = time.process_time(), 40
    milliseconds = in_turns({"step": lambda: step(state, batch)}, rounds=rounds, warm_up=0)["step"]
    if mesh.is_first:
        print(json.dumps({"ms": milliseconds, "CPU ms": 1e3 * (time.process_time() - before) / rounds}), flush=True)


if __name__ == "__main__":
    _rank()
