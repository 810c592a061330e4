"""Programs that several ranks run for `test_distributed.py`.

`torchrun … tests/ranks.py PROGRAMS FOLDER`, or `python tests/ranks.py WORLD PROGRAMS FOLDER`, which starts quicker.
Each rank writes what it has to tell to FOLDER/PROGRAM-WORLD-RANK.pt. One process runs `train` to compare with.
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

import numpy as np
import torch
from torch import nn

from degp import BatchRegion, Categorical, Checkpoints, Ensemble, Gaussian, fit, imaging, objectives
from degp.distributed import ALONE, RanksDiffer, start
from degp.execution import Vmap
from degp.imaging import Deadline
from degp.nets import mlp
from degp.prediction import evaluate
from degp.priors import NNGP, WeightPrior
from degp.training import Captured, TrainState, step
from degp.typing import Batch

M, N, SIZE, EPOCHS = 5, 25, 5, 10  # 50 steps; neither members nor points are a multiple of the ranks
INPUTS = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(N, 1, 6, 6, generator=torch.Generator().manual_seed(0))
WEIGHTS = WeightPrior()


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
        Batch(INPUTS, INPUTS.sin().sum(1, keepdim=True)),
        {
            "apart": (partial(mlp, 3, [8], 1), lambda: None),
            "shared": (lambda: mlp(6, [5], 1), lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh())),
        },
        partial(Gaussian, 0.1, learned=True),
        NNGP(1),
    ),
    "cnn": Problem(
        Batch(IMAGES, (IMAGES.mean((1, 2, 3)) > 0).long()),
        {"apart": (cnn, lambda: None), "shared": (head, partial(normed, 1))},
        partial(Categorical, learned=True, num_draws=8),
        rbf,
    ),
}
METHODS = ("de", "rde", "rms", "degp")
CASES = [(problem, sharing, method) for problem in PROBLEMS for sharing in ("apart", "shared") for method in METHODS]


def objective_for(problem, method, ensemble):
    likelihood = problem.likelihood()
    if method == "rms":
        return objectives.rms(likelihood, ensemble, WEIGHTS, generator=torch.Generator().manual_seed(2))
    if method == "degp":
        region = BatchRegion(count=3)
        return objectives.degp(likelihood, problem.prior, alpha=0.3, beta=0.1, measurement=region)
    return objectives.rde(likelihood, WEIGHTS) if method == "rde" else objectives.de(likelihood)


def setup(case, mesh=ALONE):
    """The ensemble, split over the mesh, with its data and its objective."""
    name, sharing, method = case
    problem = PROBLEMS[name]
    make, backbone = problem.networks[sharing]
    torch.manual_seed(1)
    ensemble = Ensemble(make, M, backbone=backbone(), execution=Vmap()).split(mesh)
    return ensemble, problem.data, objective_for(problem, method, ensemble)


def optimizer_for(ensemble, objective):
    parameters = [p for p in (*ensemble.parameters(), *objective.parameters()) if p.requires_grad]
    return torch.optim.Adam(parameters, lr=1e-3)


def train(case, mesh=ALONE, **options):
    """What training leaves behind, all of it on every rank."""
    ensemble, data, objective = setup(case, mesh)
    options = {"epochs": EPOCHS, "batch_size": SIZE, "generator": torch.Generator().manual_seed(3)} | options
    history = fit(ensemble, data, objective, optimizer=optimizer_for(ensemble, objective), progress=False, **options)
    return {
        "records": [{k: v for k, v in r.items() if k != "seconds"} for r in history.records],
        "ensemble": dict(ensemble.whole().state_dict()),
        "objective": dict(objective.state_dict()),
        "outputs": evaluate(ensemble, data.inputs),
    }


FEWER = [("mlp", "apart", "de"), ("mlp", "shared", "degp"), ("cnn", "shared", "rms")]
CHECKPOINTED = ("cnn", "shared", "degp")
REPLICATED_ON_FOUR = ("mlp", "shared", "degp")


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
    """Bytes that a step sends, by the ranks' own counting."""
    meshes = {1: mesh, 2: start(replicas=2)}
    return {(case, D): bytes_of_a_step(case, meshes[D]) for case in FEWER for D in meshes}


def bytes_of_a_step(case, mesh):
    ensemble, data, objective = setup(case, mesh)
    optimizer = optimizer_for(ensemble, objective)
    state = TrainState(ensemble, objective, [optimizer], [], torch.Generator().manual_seed(3))
    before = mesh.sent
    step(state, data[mesh.part(torch.arange(SIZE))])
    return mesh.sent - before


def gather(folder, mesh):
    """Outputs of all from outputs of each, there and back."""
    own = torch.full((len(range(M)[mesh.block(M)]), 2, 1), float(mesh.members.rank), requires_grad=True)
    every = mesh.outputs(own, M)
    sent = mesh.sent
    (every * torch.arange(M)[:, None, None]).sum().backward()
    return {"outputs": every.detach(), "gradient": own.grad, "block": mesh.block(M), "sent backwards": mesh.sent - sent}


def message(call):
    try:
        call()
    except (RanksDiffer, ValueError, imaging.OutOfTime) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def differ(folder, mesh):
    """What ranks are told that were not started alike."""
    first = mesh.is_first
    case = ("mlp", "apart", "degp")

    def run(change=lambda *parts: {}):
        ensemble, data, objective = setup(case, mesh)
        options = change(ensemble, data, objective)
        data = options.pop("data", data)
        fit(ensemble, data, objective, **({"epochs": 1, "generator": torch.Generator().manual_seed(3)} | options))

    def other_data(ensemble, data, objective):
        return {} if first else {"data": Batch(data.inputs + 1, data.targets)}

    def other_alpha(ensemble, data, objective):
        objective.alpha = 0.3 if first else 0.4
        return {}

    def other_rate(ensemble, data, objective):
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
    """What cannot be done with a split ensemble, and what a rank says while it trains."""
    split, data, objective = setup(("mlp", "apart", "de"), mesh)
    small = Ensemble(partial(mlp, 3, [8], 1), mesh.members.size - 1)
    copied, _, _ = setup(("mlp", "apart", "de"), start(replicas=2))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        fit(split, data, objective, epochs=1, progress=True)
    return {
        "fewer members than ranks": message(lambda: small.split(mesh)),
        "one member": message(lambda: split[0]),
        "twice": message(lambda: split.split(start())),
        "optimiser": message(lambda: fit_with_factors(folder, *setup(("mlp", "apart", "de"), mesh))),
        "captured steps": message(lambda: fit(split, data, objective, epochs=1, stepping=Captured())),
        "batches of one": message(lambda: fit(copied, data, objective, epochs=1, batch_size=1)),
        "bar": "epoch" in said.getvalue(),
        "copy": copy.deepcopy(split).mesh is mesh,
    }


def fit_with_factors(folder, ensemble, data, objective):
    optimizer = torch.optim.Adafactor(ensemble.parameters())
    fit(ensemble, data, objective, epochs=1, optimizer=optimizer, checkpoints=Checkpoints(folder / "factors"))


def estimators(folder, mesh):
    """A table's regressor, its variants' members shared out; and the command line on the same ranks."""
    said = command_line(folder, mesh.world.size)
    return {"predictions": regressor(), "said": said}


def command_line(folder, world):
    from typer.testing import CliRunner

    from degp.cli import app

    command = ["fit", str(folder / "table.csv"), "--target", "y", "--out", str(folder / f"model-{world}")]
    done = CliRunner().invoke(app, [*command, "--members", "3", "--hidden", "8", "--max-epochs", "3"])
    assert done.exit_code == 0, done.output
    return done.stdout


def regressor():
    from degp.sklearn import DEGPRegressor

    table = np.random.default_rng(0).normal(size=(60, 3))
    model = DEGPRegressor(
        members=4, hidden_layers=(8,), alphas=(0.1, 1.0), max_epochs=60, batch_size=60, random_state=0
    )
    model.fit(table, np.sin(table).sum(1))
    return torch.tensor(np.stack(model.predict(table, return_std=True)))


def images(folder, mesh):
    """An experiment on images from its start to its records; and a run of it that is broken off after an epoch."""
    said = experiment(folder / f"images-{mesh.world.size}")
    return {"said": said, "broken off": message(lambda: image_run(mesh, folder / "broken off", AfterAnEpoch()))}


class AfterAnEpoch(Deadline):
    def allows(self, seconds=0.0):
        return seconds == 0.0  # asked before training; of an epoch it has the length


def experiment(out):
    """All that an experiment says while it runs."""
    from experiments.image_runs import do_runs, judged, made_up, write_summary

    with contextlib.redirect_stdout(io.StringIO()) as said:
        place = image_place(out)
        do_runs(place, image_runs(), made_up().to(place.device), judged)
        write_summary(place)
    return said.getvalue()


def image_place(out):
    from experiments.image_runs import Place

    return Place.open(out, None, "cpu", None, smoke=False)


def image_runs():
    """Two methods of `cifar10`, one of them with a trunk, in the form in which they are tried out."""
    from experiments import cifar10, cifar10_sharing

    shared = cifar10_sharing.planned("degp", "0", 200, smoke=True)
    return [*cifar10.planned("resnet20", "rms", "0", 200, smoke=True), *shared]


def image_run(mesh, folder, deadline=Deadline()):
    """The last of these runs by itself, with checkpoints; what it leaves behind, on every rank."""
    from experiments.image_runs import made_up

    run, data = image_runs()[-1], made_up().train
    options = {"checkpoints": Checkpoints(folder), "deadline": deadline, "progress": False, "execution": Vmap()}
    trained = imaging.train(run.recipe, data, seed=run.seed, mesh=mesh, **options)
    return {
        "records": [{k: v for k, v in r.items() if k != "seconds"} for r in trained.history.records],
        "ensemble": dict(trained.ensemble.whole().state_dict()),
        "objective": dict(trained.objective.state_dict()),
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


KILLED = ("mlp", "shared", "degp")


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
