"""Many ranks train as one process: the same losses and weights, by as many bytes as the theory says."""

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.testing import assert_close

from degp import Checkpoints, batch_loss
from degp.methods import Kind
from degp.report import load_results
from degp.runtime.distributed import ALONE, Group, Mesh, StepSizes, current, loopback, start
from degp.tabular import read_table
from degp.tabular.model import predict_rows
from degp.tabular.saving import load_model
from degp.training.checkpoints import TENSORS
from tests.runtime import ranks

SCRIPT = str(Path(ranks.__file__))
PATIENCE = 240  # seconds; a machine may be busy


def environment(**more):
    paths = [*sys.path, os.environ.get("PYTHONPATH", "")]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)} | more


def free_port():
    """Below the ephemeral ports: a rank that connects before the first one listens could connect to itself."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return str(port)


def launch(world, programs, folder):
    """Runs programs of `ranks.py` on so many ranks."""
    command = [sys.executable, SCRIPT, str(world), ",".join(programs), str(folder)]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    finish(command, environment(**address))


def launched_once(world, programs, folder, prepare):
    """The results of each rank, by program. The first test worker runs them, the others wait."""
    done = folder / f"{world} ranks"
    with (folder / f"{world}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            prepare(folder)
            launch(world, programs, folder)
            done.touch()
    return {program: results_of(folder, program, world) for program in programs}


def finish(command, variables):
    """Waits for a command and its children, and kills them all after `PATIENCE` seconds."""
    started = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, errors = started.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    assert started.returncode == 0, errors


def results_of(folder, program, world):
    return [torch.load(folder / f"{program}-{world}-{rank}.pt", weights_only=False) for rank in range(world)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all test workers, which have folders of their own below a common one."""
    own = tmp_path_factory.getbasetemp()
    path = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "ranks"
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="module")
def two(folder):
    programs = ("members", "replicas", "write", "count", "gather", "differ", "refuse", "estimators", "images")
    return launched_once(2, programs, folder, prepare=write_table)


def write_table(folder):
    table = np.random.default_rng(0).normal(size=(40, 3))
    pd.DataFrame(table, columns=["a", "b", "y"]).to_csv(folder / "table.csv", index=False)


@pytest.fixture(scope="module")
def four(two, folder):
    """After two have written half a run, whose checkpoint within an epoch is resumed."""
    return launched_once(4, ("members", "replicas", "resume", "count", "gather"), folder, prepare=copy_checkpoint)


def copy_checkpoint(folder):
    within = "step-00000021-epoch-000004"
    for world in (1, 4):
        shutil.copytree(folder / "run" / within, folder / f"run-{world}" / within)


@cache
def alone(case):
    return ranks.train(case)


def assert_same(many, one, **tolerances):
    """Losses, weights, buffers and outputs, to 1e-6."""
    tolerances = {"rtol": 1e-6, "atol": 1e-6} | tolerances
    assert len(many["records"]) == len(one["records"])
    for own, other in zip(many["records"], one["records"], strict=True):
        assert_close(own, other, **tolerances)
    for part in ("ensemble", "method", "outputs"):
        assert_close(many[part], one[part], **tolerances)


@pytest.mark.parametrize("case", ranks.CASES, ids=" ".join)
def test_blocks_on_two_ranks_train_as_one_process(two, case):
    for rank in two["members"]:
        assert_same(rank[case], alone(case))


@pytest.mark.parametrize("case", ranks.CASES, ids=" ".join)
def test_blocks_on_four_ranks_train_as_one_process(four, case):
    for rank in four["members"]:
        assert_same(rank[case], alone(case))


def test_a_rank_that_sends_to_itself_trains_as_one_that_does_not():
    """All messages of blocks are sent, by a group of one: the same weights bit-for-bit."""
    case = ("mlp", "apart", Kind.DEGP)
    try:
        looped = ranks.train(case, loopback("cpu"))
    finally:
        dist.destroy_process_group()
    assert_same(looped, alone(case), rtol=0, atol=0)


def replica(d, of):
    group = Group()
    group.rank, group.size = d, of
    return Mesh(replicas=group)


def by_hand(case, D):
    """Σ_d (B_d / B) ℓ_d, each replica on its own part of every batch, in one process: equations (3) and (4)."""
    parts = [ranks.setup(case) for _ in range(D)]
    optimizers = [ranks.optimizer_for(ensemble, method) for ensemble, _, method in parts]
    data, generator, step, losses = parts[0][1], torch.Generator().manual_seed(3), 0, []
    for _ in range(ranks.EPOCHS // 2):
        totals = []
        for rows in torch.randperm(len(data), generator=generator).split(ranks.SIZE):
            own = [data[part] for part in rows.tensor_split(D)]
            total = torch.zeros((), dtype=torch.float64)
            for d, (ensemble, _, method) in enumerate(parts):
                draws = replica(d, D).draws(generator, step)
                loss = batch_loss(ensemble.train(), own[d], method, generator=draws)
                optimizers[d].zero_grad()
                share = len(own[d]) / len(rows)
                (share * loss.total).backward()
                total += share * loss.total.detach()
            weights = [[p for group in o.param_groups for p in group["params"]] for o in optimizers]
            for same in zip(*weights, strict=True):
                gradient = torch.stack([p.grad for p in same]).sum(0)
                for p in same:
                    p.grad = gradient.clone()
            for optimizer in optimizers:
                optimizer.step()
            totals.append(total)
            step += 1
        losses.append(float(torch.stack(totals).mean()))
    states = [ensemble.state_dict() for ensemble, _, _ in parts]
    means = {name: torch.stack([s[name].double() for s in states]).mean(0).to(states[0][name]) for name in states[0]}
    return losses, means, parts[0][2].state_dict()


@pytest.mark.parametrize("case", ranks.FEWER, ids=" ".join)
def test_replicas_train_by_the_stated_estimator(two, four, case):
    losses, weights, method = by_hand(case, 2)
    for rank in (*two["replicas"], *(four["replicas"] if case == ranks.REPLICATED_ON_FOUR else ())):
        assert_close([record["loss"] for record in rank[case]["records"]], losses, rtol=1e-6, atol=1e-6)
        assert_close(rank[case]["ensemble"], weights, rtol=1e-6, atol=1e-6)
        assert_close(rank[case]["method"], dict(method), rtol=1e-6, atol=1e-6)


def test_replicas_of_independent_members_train_as_one_process(two):
    case = ("mlp", "apart", Kind.DE)
    assert_same(two["replicas"][0][case], ranks.train(case, epochs=ranks.EPOCHS // 2))


def sizes(case):
    ensemble, data, method = ranks.setup(case)
    backbone = ensemble.backbone.parameters() if ensemble.backbone else ()
    numbers = [sum(p.numel() for p in own) for own in (ensemble.stacked.parameters(), backbone, method.parameters())]
    functional = case[2] is Kind.DEGP
    return StepSizes(
        members=ranks.M,
        batch=ranks.SIZE,
        outputs=3 if case[0] == "cnn" else 1,
        weights=numbers[0] // ranks.M,
        measurement=3 if functional else 0,
        shared=numbers[1],
        learned=numbers[2],
        terms=3 if functional else 2,
        penalised=case[2] is not Kind.DE,
    )


@pytest.mark.parametrize("case", ranks.FEWER, ids=" ".join)
def test_a_step_sends_as_many_bytes_as_the_formula_says(two, four, case):
    for world, results in ((2, two), (4, four)):
        for D in (1, 2):
            assert results["count"][0][case, D] == sizes(case).sent(replicas=D, blocks=world // D)


def test_a_world_of_one_sends_nothing():
    case = ("cnn", "shared", Kind.DEGP)
    assert ranks.bytes_per_step(case, ALONE) == sizes(case).sent() == 0


def test_outputs_are_gathered_and_their_gradient_needs_no_message(two, four):
    for gathered in (two["gather"], four["gather"]):
        for rank in gathered:
            owners = [k for k, other in enumerate(gathered) for _ in range(ranks.M)[other["block"]]]
            assert rank["outputs"][:, 0, 0].tolist() == owners
            assert rank["gradient"][:, 0, 0].tolist() == list(range(ranks.M))[rank["block"]]
            assert rank["sent backwards"] == 0


def test_blocks_cover_all_members_once():
    for M, K in ((5, 1), (5, 2), (5, 4), (5, 5), (12, 4), (7, 3)):
        owned = [range(M)[split_in(k, K).block(M)] for k in range(K)]
        assert [member for block in owned for member in block] == list(range(M))
        assert max(map(len, owned)) - min(map(len, owned)) <= 1


def split_in(k, K):
    group = Group()
    group.rank, group.size = k, K
    return Mesh(members=group)


def test_a_checkpoint_of_two_ranks_resumes_on_one_and_on_four(two, four, folder):
    one = alone(ranks.CHECKPOINTED)
    assert_same(ranks.resume(folder, ALONE), one)
    for rank in four["resume"]:
        assert_same(rank, one)


def test_a_checkpoint_is_written_once_and_is_that_of_one_process(two, folder, tmp_path):
    ranks.train(ranks.CHECKPOINTED, epochs=ranks.EPOCHS // 2, checkpoints=Checkpoints(tmp_path, every=7))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in (folder / "run").iterdir())
    for own in tmp_path.iterdir():
        forms = [
            {name: (value.shape, value.dtype) for name, value in load_file(path / TENSORS).items()}
            for path in (own, folder / "run" / own.name)
        ]
        assert forms[0] == forms[1]


DIFFERENCES = {
    "data": r"data\.inputs is .* checksum \w+ on rank 0 and .* checksum \w+ on rank 1;",
    "alpha": r"method\.alpha is 0\.3 on rank 0 and 0\.4 on rank 1;",
    "learning rate": r"optimizers\.0\.group 0\.lr is 0\.1 on rank 0 and 0\.2 on rank 1;",
    "batch size": r"batch_size is 5 on rank 0 and 6 on rank 1;",
    "seed": r"generator is a generator with checksum \w+ on rank 0 and .* on rank 1;",
    "weights": r"ensemble\.stacked\.0\.weight is .* on rank 0 and .* on rank 1;",
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_ranks_that_differ_stop_and_name_the_difference(two, difference):
    expected = rf"RanksDiffer: all ranks must be started alike, but {DIFFERENCES[difference]} give every rank the same"
    for rank in two["differ"]:
        assert re.match(expected, rank[difference]), rank[difference]


def test_ranks_that_are_alike_train(two):
    assert [rank["nothing"] for rank in two["differ"]] == ["no error", "no error"]


REFUSALS = {
    "fewer members than ranks": "every rank must own at least one member, but there are 1 members for 2 ranks",
    "one member": r"single members are taken from a whole ensemble, .* call whole\(\) on every rank first",
    "twice": "only a whole ensemble of one architecture can be split over ranks, but this one is split already",
    "optimiser": "whose state has the shapes of the weights, but Adafactor has row_var",
    "captured steps": r"a captured step needs a single replica, but there are 2; pass stepping=Eager\(\)",
    "batches of one": "every replica must have a point of each batch, but there are 2 replicas and batches of 1 points",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_unsupported_splits_are_refused(two, what):
    for rank in two["refuse"]:
        assert re.search(REFUSALS[what], rank[what]), rank[what]


def test_only_the_first_rank_prints(two):
    assert [rank["bar"] for rank in two["refuse"]] == [True, False]
    assert ["Saved:" in rank["printed"] for rank in two["estimators"]] == [True, False]


def test_copies_of_a_split_ensemble_are_on_the_same_ranks(two):
    assert all(rank["copy"] for rank in two["refuse"])


def test_estimators_on_two_ranks_are_those_of_one(two, folder):
    assert_close(two["estimators"][0]["predictions"], two["estimators"][1]["predictions"], rtol=0, atol=0)
    assert_close(two["estimators"][0]["predictions"], ranks.regressor(), rtol=1e-4, atol=1e-4)


def test_the_command_line_on_two_ranks_writes_the_model_of_one(two, folder):
    ranks.command_line(folder, 1)
    frame = read_table(folder / "table.csv")
    one, many = (predict_rows(load_model(folder / f"model-{world}"), frame) for world in (1, 2))
    pd.testing.assert_frame_equal(one, many, rtol=1e-4, atol=1e-4)
    assert not list(folder.glob("*.partial"))


@pytest.fixture(scope="module")
def records(two, folder):
    """The records and curves of an experiment on images, on one rank and on two."""
    one, many = (folder / f"images-{world}" for world in (1, 2))
    ranks.experiment(one)
    assert names_below(one) == names_below(many)
    read = [(load_results(out)["records"], json.loads((out / "curves.json").read_text())) for out in (one, many)]
    for record in (record for parts in read for part in parts for record in part):
        for key in ("seconds", "seconds_per_epoch"):
            record.pop(key, None)
    return read


def names_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_an_experiment_on_images_on_two_ranks_has_the_records_of_one(records):
    (one, curves), (many, others) = records
    assert len(one) == len(many) == 2
    assert_close(numbers_of(many), numbers_of(one), rtol=1e-3, atol=1e-3, equal_nan=True)  # saved in float16
    assert_close(numbers_of(others), numbers_of(curves), rtol=1e-3, atol=1e-3, equal_nan=True)


def numbers_of(records):
    """All numbers of nested records, in order; NaN for anything else."""
    if isinstance(records, dict | list):
        values = records.values() if isinstance(records, dict) else records
        return torch.cat([torch.zeros(0, dtype=torch.float64), *map(numbers_of, values)])
    return torch.tensor([records if isinstance(records, int | float) else torch.nan], dtype=torch.float64)


def test_an_experiment_on_two_ranks_prints_once(two):
    first, second = (rank["printed"] for rank in two["images"])
    assert "RMS, M = 3, tiny, seed 0: 2 epochs" in first and "| network | method |" in first
    assert second == ""


def test_an_image_run_interrupted_on_two_ranks_resumes_on_one(two, folder, tmp_path):
    assert {rank["interrupted"] for rank in two["images"]} == {"OutOfTime: the time was up after epoch 1 of 2"}
    assert_same(ranks.image_run(ALONE, folder / "interrupted"), ranks.image_run(ALONE, tmp_path))


@pytest.mark.distributed
def test_a_killed_rank_is_restarted_and_resumes(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--monitor-interval=0.1"]
    command = [*torchrun, *rendezvous, SCRIPT, "killed", str(tmp_path)]
    finish(command, environment())
    for rank in results_of(tmp_path, "killed", 2):
        assert (rank["attempt"], rank["epochs"]) == (1, ranks.EPOCHS - 2)  # 14 steps, in the third epoch, were saved
        assert_same(rank, alone(ranks.KILLED))


ENDING = """
import atexit, os, pathlib, sys
import torch
def count():
    return len(os.listdir("/proc/self/task"))
before = count()
atexit.register(lambda: pathlib.Path(sys.argv[1]).write_text(str(count() - before)))  # runs last
from degp.runtime.distributed import start
mesh = start(device="cpu")
mesh.members.gather(torch.zeros(3))
assert count() > before
"""


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads of a process as Linux lists them")
def test_a_rank_that_ends_has_no_thread_that_could_abort_it(tmp_path):
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    run = [sys.executable, "-c", ENDING]
    started = [subprocess.Popen([*run, str(tmp_path / r)], env=environment(RANK=r, **address)) for r in ("0", "1")]
    assert [process.wait(PATIENCE) for process in started] == [0, 0]
    assert [(tmp_path / rank).read_text() for rank in ("0", "1")] == ["0", "0"]


def test_start_without_torchrun_is_a_world_of_one():
    mesh = start(device="cpu")
    assert mesh is current()
    assert (mesh.world.size, mesh.is_first, mesh.sent, mesh.device.type) == (1, True, 0, "cpu")
    ensemble, _, _ = ranks.setup(("mlp", "apart", Kind.DE))
    assert ensemble.split(mesh) is ensemble is ensemble.whole()
    with pytest.raises(ValueError, match="1 ranks cannot be split into 2; choose a divisor of 1"):
        start(replicas=2)


def test_replicas_draw_numbers_of_their_own_and_one_replica_those_of_the_run():
    generator = torch.Generator().manual_seed(7)
    assert replica(0, 1).draws(generator, 0) is generator
    drawn = {torch.rand(1, generator=replica(d, 2).draws(generator, step)).item() for d in (0, 1) for step in (0, 1)}
    assert len(drawn) == 4
