"""Programs that several ranks run for `test_distributed.py`.

`torchrun … tests/runtime/ranks.py PROGRAMS FOLDER`, or `python tests/runtime/ranks.py WORLD PROGRAMS FOLDER`, which
starts faster. Each rank writes its result to FOLDER/PROGRAM-WORLD-RANK.pt; the test compares it with one process.
"""

import contextlib
import copy
import io
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn

from degp import BatchRegion, Categorical, Checkpoints, Ensemble, Gaussian, Plan, fit, lora, methods, rank_one
from degp.methods import Kind, Method
from degp.nets import mlp
from degp.prediction import evaluate
from degp.priors import NNGP, WeightPrior
from degp.runtime import progress
from degp.runtime.distributed import ALONE, RanksDiffer, start
from degp.runtime.execution import Vmap
from degp.training import Captured, TrainState
from degp.training.step import require_finite, train_step
from degp.typing import Batch
from experiments.protocols.deadline import Deadline, OutOfTime

M, N, SIZE, EPOCHS = 5, 25, 5, 10  # 50 steps; neither members nor points are a multiple of the ranks
INPUTS = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(N, 1, 6, 6, generator=torch.Generator().manual_seed(0))
WEIGHTS = WeightPrior(biases=0.01)


def normed(channels):
    """No bias before BatchNorm: its gradient is zero but for rounding, which Adam would take for a direction."""
    return nn.Sequential(nn.Conv2d(channels, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())


def cnn():
    return nn.Sequential(normed(1), nn.Flatten(), nn.Linear(64, 3))


def head():
    return nn.Sequential(normed(4), nn.Flatten(), nn.Linear(16, 3))


def rbf(x, y):
    return torch.exp(-0.05 * torch.cdist(x.flatten(1), y.flatten(1)).square())


@dataclass(frozen=True)
class Problem:
    """Data, networks and a likelihood; with and without a shared backbone."""

    data: Batch
    networks: dict
    likelihood: partial
    prior: object


PROBLEMS = {
    "mlp": Problem(
        Batch(INPUTS, INPUTS.sin().sum(1, keepdim=True), weights=torch.arange(N) / 12),
        {
            "apart": (partial(mlp, 3, [8], 1), lambda: None),
            "shared": (lambda: mlp(6, [5], 1), lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh())),
        },
        partial(Gaussian, 0.1, learned=True),
        NNGP(1, bias_variances=0.01),
    ),
    "cnn": Problem(
        Batch(IMAGES, (IMAGES.mean((1, 2, 3)) > 0).long()),
        {"apart": (cnn, lambda: None), "shared": (head, partial(normed, 1))},
        partial(Categorical, learned=True, num_draws=8),
        rbf,
    ),
}
LIGHT = {"rank one": rank_one, "low rank": partial(lora, rank=2)}
CASES = [
    *((problem, sharing, kind) for problem in PROBLEMS for sharing in ("apart", "shared") for kind in Kind),
    ("mlp", "rank one", Kind.DEGP),
    ("cnn", "low rank", Kind.RMS),  # factors before BatchNorm have no gradient but rounding
    ("mlp", "low rank", Kind.DEGP),
]


def method_for(problem: Problem, kind: Kind, ensemble: Ensemble) -> Method:
    likelihood = problem.likelihood()

    def functional() -> Method:
        region = BatchRegion(count=3)
        return methods.degp(likelihood, problem.prior, alpha=1.5, beta=0.1, measurement=region, weight_prior=WEIGHTS)

    seeded = torch.Generator().manual_seed(2)
    return kind.build(likelihood, ensemble, WEIGHTS, functional=functional, generator=seeded)


def setup(case, mesh=ALONE):
    """The ensemble, split over the mesh, with its data and its method."""
    name, sharing, kind = case
    problem = PROBLEMS[name]
    make, backbone = problem.networks["apart" if sharing in LIGHT else sharing]
    torch.manual_seed(1)
    if sharing in LIGHT:
        ensemble = LIGHT[sharing](make(), M)
        ensemble.execution = Vmap()
    else:
        ensemble = Ensemble(make, M, backbone=backbone(), execution=Vmap())
    ensemble = ensemble.split(mesh)
    return ensemble, problem.data, method_for(problem, kind, ensemble)


def optimizer_for(ensemble, method):
    parameters = [p for p in (*ensemble.parameters(), *method.parameters()) if p.requires_grad]
    return torch.optim.Adam(parameters, lr=1e-3)


def train(case, mesh=ALONE, *, epochs=EPOCHS, validation=None, **options):
    """The result of training, complete on every rank; options are the plan's."""
    ensemble, data, method = setup(case, mesh)
    history = fit(
        ensemble,
        data,
        method,
        Plan(epochs, SIZE, **options),
        optimizer=optimizer_for(ensemble, method),
        validation=validation,
        generator=torch.Generator().manual_seed(3),
        progress=False,
    )
    return {
        "records": [{k: v for k, v in r.items() if k != "seconds"} for r in history.records],
        "ensemble": dict(ensemble.whole().state_dict()),
        "method": dict(method.state_dict()),
        "outputs": evaluate(ensemble, data.inputs),
    }


FEWER = [("mlp", "apart", Kind.DE), ("mlp", "shared", Kind.DEGP), ("cnn", "shared", Kind.RMS)]
CHECKPOINTED = ("cnn", "shared", Kind.DEGP)
REPLICATED_ON_FOUR = ("mlp", "shared", Kind.DEGP)


def members(folder, mesh):
    """Every rank with a block of the members."""
    return {case: train(case, mesh) for case in CASES}


def replicas(folder, mesh):
    """The batches split between two replicas; half as many of them."""
    mesh = start(replicas=2)
    cases = FEWER if mesh.world.size == 2 else [REPLICATED_ON_FOUR]
    return {case: train(case, mesh, epochs=EPOCHS // 2) for case in cases}


def write(folder, mesh):
    """Half a run, with checkpoints."""
    return train(CHECKPOINTED, mesh, epochs=EPOCHS // 2, checkpoints=Checkpoints(folder / "run", every=7))


def resume(folder, mesh):
    """The other half."""
    return train(CHECKPOINTED, mesh, checkpoints=Checkpoints(folder / f"run-{mesh.world.size}"), resume=True)


def count(folder, mesh):
    """Bytes sent per step, as the ranks count them."""
    meshes = {1: mesh, 2: start(replicas=2)}
    return {(case, D): bytes_per_step(case, meshes[D]) for case in FEWER for D in meshes}


def bytes_per_step(case, mesh):
    ensemble, data, method = setup(case, mesh)
    optimizer = optimizer_for(ensemble, method)
    state = TrainState(ensemble, method, [optimizer], [], torch.Generator().manual_seed(3))
    batch, draws = data[mesh.part(torch.arange(SIZE))], state.draws()
    before = mesh.sent
    prepared = method.prepare(batch.inputs, generator=draws)
    train_step(state, batch, prepared, generator=draws, inspect=require_finite)
    return mesh.sent - before


def gather(folder, mesh):
    """The outputs of all members from those of each block, forward and backward."""
    own = torch.full((len(range(M)[mesh.block(M)]), 2, 1), float(mesh.members.rank), requires_grad=True)
    every = mesh.outputs(own, M)
    sent = mesh.sent
    (every * torch.arange(M)[:, None, None]).sum().backward()
    return {"outputs": every.detach(), "gradient": own.grad, "block": mesh.block(M), "sent backwards": mesh.sent - sent}


def message(call):
    try:
        call()
    except (RanksDiffer, ValueError, OutOfTime) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def differ(folder, mesh):
    """The errors of ranks that were not started alike."""
    first = mesh.is_first
    case = ("mlp", "apart", Kind.DEGP)

    def run(change=lambda *parts: {}):
        ensemble, data, method = setup(case, mesh)
        options = change(ensemble, data, method)
        data = options.pop("data", data)
        fit(ensemble, data, method, **({"epochs": 1, "generator": torch.Generator().manual_seed(3)} | options))

    def other_data(ensemble, data, method):
        return {} if first else {"data": Batch(data.inputs + 1, data.targets)}

    def other_alpha(ensemble, data, method):
        method.alpha = 0.3 if first else 0.4
        return {}

    def other_rate(ensemble, data, method):
        return {"optimizer": torch.optim.SGD(ensemble.parameters(), lr=0.1 if first else 0.2)}

    def other_weights():
        torch.manual_seed(mesh.world.rank)
        Ensemble(partial(mlp, 3, [8], 1), M).split(mesh)

    return {
        "data": message(partial(run, other_data)),
        "alpha": message(partial(run, other_alpha)),
        "learning rate": message(partial(run, other_rate)),
        "batch size": message(partial(run, lambda *parts: {"batch_size": 5 if first else 6})),
        "seed": message(partial(run, lambda *parts: {"generator": torch.Generator().manual_seed(mesh.world.rank)})),
        "weights": message(other_weights),
        "nothing": message(run),
    }


def refuse(folder, mesh):
    """The errors of a split ensemble, and what a rank prints while it trains."""
    split, data, method = setup(("mlp", "apart", Kind.DE), mesh)
    small = Ensemble(partial(mlp, 3, [8], 1), mesh.members.size - 1)
    copied, _, _ = setup(("mlp", "apart", Kind.DE), start(replicas=2))
    with contextlib.redirect_stderr(io.StringIO()) as printed, mock.patch.object(progress, "LINE_SECONDS", 0.0):
        fit(split, data, method, epochs=1, progress=True)
    return {
        "fewer members than ranks": message(lambda: small.split(mesh)),
        "one member": message(lambda: split[0]),
        "twice": message(lambda: split.split(start())),
        "optimiser": message(lambda: fit_with_factors(folder, *setup(("mlp", "apart", Kind.DE), mesh))),
        "captured steps": message(lambda: fit(copied, data, method, Plan(1, stepping=Captured()))),
        "batches of one": message(lambda: fit(copied, data, method, epochs=1, batch_size=1)),
        "bar": "step 1 of 1:" in printed.getvalue(),
        "copy": copy.deepcopy(split).mesh is mesh,
    }


def fit_with_factors(folder, ensemble, data, method):
    optimizer = torch.optim.Adafactor(ensemble.parameters())
    fit(ensemble, data, method, Plan(1, checkpoints=Checkpoints(folder / "factors")), optimizer=optimizer)


def estimators(folder, mesh):
    """A table's regressor, its members distributed across the ranks; and the command line on the same ranks."""
    printed = command_line(folder, mesh.world.size)
    return {"predictions": regressor(), "printed": printed}


def command_line(folder, world):
    from typer.testing import CliRunner

    from degp.cli import app

    command = ["fit", str(folder / "table.csv"), "--target", "y", "--out", str(folder / f"model-{world}")]
    done = CliRunner().invoke(app, [*command, "--members", "3", "--hidden", "8", "--steps", "3"])
    assert done.exit_code == 0, done.output
    return done.stdout


def regressor():
    from degp.sklearn import DEGPRegressor

    table = np.random.default_rng(0).normal(size=(60, 3))
    model = DEGPRegressor(members=4, hidden_layers=(8,), alpha=1.0, steps=60, batch_size=60, random_state=0)
    model.fit(table, np.sin(table).sum(1))
    return torch.tensor(np.stack(model.predict(table, return_std=True)))


def images(folder, mesh):
    """An experiment on images from its start to its records; and one of its runs, interrupted after an epoch."""
    printed = experiment(folder / f"images-{mesh.world.size}")
    stopped = message(lambda: image_run(mesh, folder / "interrupted", AfterAnEpoch()))
    return {"printed": printed, "interrupted": stopped}


class AfterAnEpoch(Deadline):
    def allows(self, seconds=0.0):
        return seconds == 0.0  # before training; after an epoch, seconds is its length


def experiment(out):
    """Everything that an experiment prints."""
    from experiments.protocols.image_runs import do_runs, write_summary
    from experiments.protocols.image_smoke import synthetic_sets

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        place = image_place(out)
        do_runs(place, image_runs(), synthetic_sets().to(place.device))
        write_summary(place)
    return printed.getvalue()


def image_place(out):
    from experiments.protocols.image_runs import Place

    return Place.open(out, None, "cpu", None, smoke=False)


def image_runs():
    """Two methods of `cifar10`, one of them with a backbone, as smoke runs."""
    from experiments import cifar10, cifar10_sharing

    shared = cifar10_sharing.planned("degp", "0", 200, smoke=True)
    return [*cifar10.planned("resnet20", "rms", "0", 200, smoke=True), *shared]


def image_run(mesh, folder, deadline=Deadline()):
    """The last of these runs, with checkpoints; its result on every rank."""
    from experiments.protocols.image_runs import train_in_time
    from experiments.protocols.image_smoke import synthetic_sets

    run, data = image_runs()[-1], synthetic_sets().train
    options = {"checkpoints": Checkpoints(folder), "progress": False, "execution": Vmap()}
    trained = train_in_time(run, data, deadline, mesh=mesh, **options)
    return {
        "records": [{k: v for k, v in r.items() if k != "seconds"} for r in trained.history.records],
        "ensemble": dict(trained.ensemble.whole().state_dict()),
        "method": dict(trained.method.state_dict()),
        "outputs": trained.outputs(data.inputs),
    }


def killed(folder, mesh):
    """A run whose last rank dies once, in the middle."""
    attempt, epochs = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), []

    def validation(ensemble):
        epochs.append(len(epochs))
        if attempt == 0 and mesh.world.rank == 1 and len(epochs) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    checkpoints = Checkpoints(folder / "killed", every=7)
    trained = train(KILLED, mesh, validation=validation, checkpoints=checkpoints, resume=True)
    return trained | {"attempt": attempt, "epochs": len(epochs)}


KILLED = ("mlp", "shared", Kind.DEGP)


PROGRAMS = (members, replicas, write, resume, count, gather, differ, refuse, estimators, images, killed)


def main(names, folder):
    mesh = start()
    for program in PROGRAMS:
        if program.__name__ in names.split(","):
            result = program(Path(folder), mesh)
            torch.save(result, Path(folder) / f"{program.__name__}-{mesh.world.size}-{mesh.world.rank}.pt")


def fork(world, names, folder):
    """Ranks that share what has been imported; 1 where one of them failed."""
    children = []
    for rank in range(world):
        children.append(os.fork())
        if children[-1] == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
            try:
                main(names, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if "RANK" in os.environ else fork(int(sys.argv[1]), *sys.argv[2:]))
