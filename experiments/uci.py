"""UCI regression: DE, rDE, RMS, NN-GP and DE-GP on seven tables, five folds (the paper's Figure 3).

Two protocols. "paper": the architecture, optimiser, noise and prior variances of the paper, α chosen on a validation
split of the training fold. On a GPU all folds, methods and values of α are trained together. Values of α are quoted as
in the paper, as weights of the divergence on a batch; α in units of Bayes' weight is N/B times that. "ours": the
estimator with its defaults for every method, α in units of Bayes' weight.
"""

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from degp import Batch, Ensemble, Gaussian, UniformBox, methods
from degp.calibration import first_within_one_error
from degp.data import hold_out_rows, kfold
from degp.methods import Kind, Method
from degp.nets import mlp, mlp_features
from degp.prediction import evaluate
from degp.priors import NNGP, ExactGP, MonteCarloNNGP, WeightPrior
from degp.report import environment, load_results, save_results
from degp.runtime.files import read_json, require_writable, write_json
from degp.sklearn import DEGPRegressor
from experiments.data import UCI_NAMES, uci
from experiments.protocols.deadline import Deadline
from experiments.protocols.folds import BATCH, Fold, Run, moment_scores, standardised_folds, train_together
from experiments.protocols.independent_runs import Jobs, finished
from experiments.protocols.options import DEVICE, Device, chosen
from experiments.protocols.uci_summary import write_summary

ALPHAS = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
MEMBERS, WIDTHS = 10, (256, 256)


@dataclass(frozen=True)
class Published:
    """A data set's noise variance and prior variances (times fan-in, biases alike) in standardised units."""

    noise: float
    first: float
    others: float


# Noise and first-layer variances are those of the anchored-ensembles code for ReLU networks, which the paper took over;
# energy has 1e-7 there for exact Gaussian processes and 1e-3 for networks: the latter here.
HYPER = {
    "boston": Published(0.06, 10, 1),
    "concrete": Published(0.05, 40, 1),
    "energy": Published(1e-3, 12, 1),
    "kin8nm": Published(0.02, 40, 1),
    "power": Published(0.05, 4, 2),
    "protein": Published(0.5, 50, 1),
    "wine-red": Published(0.5, 10, 2),
}


@dataclass(frozen=True)
class Config:
    """What all data sets share."""

    folds: int = 5
    seed: int = 0
    epochs: int = 1000
    search_steps: int = 15_000  # at most, for choosing α in the paper's protocol
    own_steps: int | None = None  # None is the estimator's own
    validation_fraction: float = 0.15
    device: str = "cpu"
    jobs: int = 1


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json.")] = Path("experiments/results/uci"),
    sets: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(UCI_NAMES),
    protocols: Annotated[str, typer.Option(help="paper, ours or both.")] = "paper,ours",
    epochs: int = 1000,
    seed: int = 0,
    together: Annotated[int, typer.Option(help="Folds trained together; the others follow.")] = 5,
    device: Device = DEVICE,
    jobs: Jobs = 1,
    smoke: Annotated[bool, typer.Option(help="Two epochs of two folds: does it run?")] = False,
) -> None:
    """All methods on all folds; what is in metrics.json already is not run again."""
    config = Config(seed=seed, epochs=epochs, device=device, jobs=jobs)
    if smoke:
        config = Config(folds=2, epochs=2, own_steps=4, device=device)
    names, asked = chosen(sets, UCI_NAMES, "--sets"), chosen(protocols, PROTOCOLS, "--protocols")
    require_writable(out)
    fields = ("dataset", "protocol", "fold")
    records = load_results(out, fields=fields)["records"] if (out / "metrics.json").exists() else []
    where = {key: environment()[key] for key in ("commit", "device")}
    for name in names:
        for protocol in asked:
            done = {r["fold"] for r in records if (r["dataset"], r["protocol"]) == (name, protocol)}
            open_folds = [fold for fold in range(config.folds) if fold not in done]
            for first in range(0, len(open_folds), together):
                folds = open_folds[first : first + together]
                start = time.perf_counter()
                new = PROTOCOLS[protocol](name, folds, config, out)
                records += [{"dataset": name, "protocol": protocol, **record, **where} for record in new]
                save_results(out, config=asdict(config) | {"alphas": ALPHAS, "hyper": _plain(HYPER)}, records=records)
                _say(name, protocol, new, time.perf_counter() - start)
    write_summary(records, out)


def paper(name: str, chosen: Sequence[int], config: Config, out: Path) -> list[dict[str, Any]]:
    """The paper's protocol: fixed noise and prior, all epochs, α by validation NLL, then all on the whole fold."""
    search = _searched(name, config, out)
    folds = standardised_folds(uci(name), config.folds, config.seed, config.device)
    hyper = HYPER[name]
    runs = {
        (k, kind): _paper_run(folds[k], folds[k].train, None, hyper, kind, search["alphas"][k])
        for k in chosen
        for kind in Kind
    }
    start = time.perf_counter()
    train_together(list(runs.values()), config.epochs)
    trained = (time.perf_counter() - start) / len(runs)
    records = []
    for (k, kind), run in runs.items():
        record = _record(kind.label, k, None, _scores(run), trained) | {"epochs": config.epochs}
        if kind is Kind.DEGP:
            seconds = trained + search["seconds"] / len(folds)
            record |= {"alpha": search["alphas"][k], "search_epochs": search["epochs"], "seconds": seconds}
        records.append(record)
    return records + [_exact_record(folds[k], k, _nngp(hyper), hyper.noise) for k in chosen]


def _searched(name: str, config: Config, out: Path) -> dict[str, Any]:
    """The paper's α of each fold by validation NLL, with the epochs and seconds it took; saved in `alphas.json`."""
    path = out / "alphas.json"
    known = read_json(path) if path.exists() else {}
    if name not in known:
        known[name] = _search(name, config)
        write_json(path, known)
    return known[name]


def _search(name: str, config: Config) -> dict[str, Any]:
    hyper = HYPER[name]
    searches = []
    for fold in standardised_folds(uci(name), config.folds, config.seed, config.device):
        train, validation = hold_out_rows(fold.train, config.validation_fraction, generator=fold.generator)
        searches.append([_paper_run(fold, train, validation, hyper, Kind.DEGP, alpha) for alpha in ALPHAS])
    epochs = max(1, min(config.epochs, config.search_steps // searches[0][0].num_batches))
    start = time.perf_counter()
    train_together([run for runs in searches for run in runs], epochs)
    alphas = [_largest_within_one_error(torch.stack([run.nll() for run in runs])) for runs in searches]
    return {"alphas": alphas, "epochs": epochs, "seconds": time.perf_counter() - start}


def _largest_within_one_error(nll: Float[Tensor, "V N"]) -> float:
    """The largest α within one standard error of the best in mean NLL, by paired differences."""
    return ALPHAS[len(ALPHAS) - 1 - first_within_one_error(nll.flip(0))]


def ours(name: str, chosen: Sequence[int], config: Config, out: Path) -> list[dict[str, Any]]:
    """The estimator's defaults for every method; its exact process alone is NN-GP."""
    tasks = [(name, fold, kind, config) for fold in chosen for kind in Kind]
    with closing(finished(_estimated, tasks, jobs=config.jobs, deadline=Deadline(None))) as runs:
        return [record for _, records in runs for record in records]


def _estimated(name: str, fold: int, kind: Kind, config: Config) -> list[dict[str, Any]]:
    """One method on one fold, and the process that comes with DE-GP."""
    table = uci(name)
    train, test = kfold(len(table), config.folds, seed=config.seed)[fold]
    X, y = table.inputs.double().numpy(), table.targets.double().numpy()[:, 0]
    start = time.perf_counter()
    model = DEGPRegressor(method=kind.value, steps=config.own_steps, random_state=config.seed + 1000 * fold)
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - start
    alpha = model.alpha_ if kind is Kind.DEGP else None
    records = [_record(kind.label, fold, alpha, _test_scores(model, X[test], y[test]), seconds)]
    if model.process_ is not None:
        alone = copy.copy(model)
        alone.process_ = replace(model.process_, weight=1.0)
        records.append(_record("NN-GP", fold, None, _test_scores(alone, X[test], y[test]), seconds))
    return records


def _test_scores(model: DEGPRegressor, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    mean, std = (torch.tensor(values)[:, None] for values in model.predict(X, return_std=True))
    return moment_scores(mean, std.square(), torch.tensor(y)[:, None])


PROTOCOLS: dict[str, Callable[[str, Sequence[int], Config, Path], list[dict[str, Any]]]] = {
    "paper": paper,
    "ours": ours,
}


def _paper_run(fold: Fold, train: Batch, validation: Batch | None, hyper: Published, kind: Kind, alpha: float) -> Run:
    """Every method from the same initial weights; α is the paper's, of the divergence in a batch of B rows."""
    D, device = train.inputs.shape[1], train.inputs.device
    weights = _weight_prior(hyper)
    generator = torch.Generator(device).manual_seed(fold.generator.initial_seed())
    ensemble = Ensemble(
        lambda: weights.initialise(mlp(D, WIDTHS, 1, output_bias=False).to(device), generator=generator), MEMBERS
    )
    likelihood = Gaussian(hyper.noise)
    in_units_of_bayes = len(train) / (len(train) // max(1, round(len(train) / BATCH)))  # N/B

    def functional() -> Method:
        return methods.degp(
            likelihood,
            _prior(train, hyper),
            alpha=alpha * in_units_of_bayes,
            measurement=UniformBox.around(train.inputs, BATCH),
        )

    method = kind.build(likelihood, ensemble, weights, functional=functional, generator=generator).to(device)
    seed = fold.generator.initial_seed()
    return Run(fold, train, ensemble, method, learning_rate=0.01, seed=seed, validation=validation)


def _scores(run: Run) -> dict[str, float]:
    return run.fold.score(run.method.predictive(evaluate(run.ensemble, run.fold.test.inputs)))


def _prior(train: Batch, hyper: Published) -> MonteCarloNNGP:
    return MonteCarloNNGP(
        mlp_features(train.inputs.shape[1], WIDTHS),
        weight_prior=WeightPrior((hyper.first, hyper.others), (hyper.first, hyper.others)),
        readout_weight_variance=hyper.others,
        readout_bias_variance=0.0,
    ).to(train.inputs.device)


def _weight_prior(hyper: Published) -> WeightPrior:
    variances = (hyper.first, hyper.others, hyper.others)
    return WeightPrior(variances, variances)


def _nngp(hyper: Published) -> NNGP:
    return NNGP(2, (hyper.first, hyper.others, hyper.others), (hyper.first, hyper.others, 0.0))


def _exact_record(fold: Fold, index: int, prior: NNGP, noise: float) -> dict[str, Any]:
    start = time.perf_counter()
    exact = ExactGP.fit(prior, fold.train.inputs, fold.train.targets, noise_variance=noise)
    mean = exact.mean(fold.test.inputs)
    variance = (exact.variance(fold.test.inputs) + noise)[:, None]
    scores = fold.score_moments(mean, variance)
    del exact
    return _record("NN-GP", index, None, scores, time.perf_counter() - start) | {"epochs": 0}


def _record(method: str, fold: int, alpha: float | None, scores: dict[str, float], seconds: float) -> dict[str, Any]:
    return {"method": method, "fold": fold, "alpha": alpha, **scores, "seconds": seconds}


def _plain(hyper: dict[str, Published]) -> dict[str, Any]:
    return {name: asdict(values) for name, values in hyper.items()}


def _say(name: str, protocol: str, records: list[dict[str, Any]], seconds: float) -> None:
    lines = []
    for method in (*(kind.label for kind in Kind), "NN-GP"):
        own = [r for r in records if r["method"] == method]
        if not own:  # no exact process on large tables
            continue
        means = {key: sum(r[key] for r in own) / len(own) for key in ("rmse", "nll", "coverage90")}
        alphas = [r["alpha"] for r in own] if method == "DE-GP" else ""
        scores = "  ".join(f"{key} {value:.4f}" for key, value in means.items())
        lines.append(f"  {method:6} {scores} {alphas}")
    Console().print(f"{name} ({protocol}, {seconds:.0f} s)\n" + "\n".join(lines), highlight=False)
