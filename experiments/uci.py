"""UCI regression: DE, rDE, RMS, NN-GP and DE-GP on seven tables, five folds (the paper's Figure 3).

Two protocols. "paper": the architecture, optimiser, noise and prior variances of the paper, α chosen on a validation
split of the training fold. "ours": the library's defaults, with learned noise and every method stopped and calibrated
on the same validation split. Folds run side by side on a GPU, and so do the methods and values of α within a fold.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from degp import Ensemble, Gaussian, UniformBox, objectives
from degp.data import UCI_NAMES, hold_out_rows, uci
from degp.files import read_json, require_writable, write_json
from degp.nets import mlp, mlp_features
from degp.prediction import evaluate
from degp.priors import NNGP, ExactGP, MonteCarloNNGP, WeightPrior
from degp.report import environment, load_results, save_results
from degp.selection import Contest, calibrate, largest_within_one_error, predictive_of
from degp.side_by_side import Variant
from degp.tabular import Recipe, contest_for
from degp.typing import Batch
from experiments.folds import Fold, FoldRun, standardised_folds, train_together
from experiments.options import DEVICE, Device, chosen
from experiments.uci_summary import write_summary

ALPHAS = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
METHODS = ("DE", "rDE", "RMS", "DE-GP")
BATCH, MEMBERS, WIDTHS = 256, 10, (256, 256)


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
    own_steps: int = 12_000  # at most, in our protocol
    validation_fraction: float = 0.15
    device: str = "cpu"


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json.")] = Path("experiments/results/uci"),
    sets: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(UCI_NAMES),
    protocols: Annotated[str, typer.Option(help="paper, ours or both.")] = "paper,ours",
    epochs: int = 1000,
    seed: int = 0,
    together: Annotated[int, typer.Option(help="Folds trained side by side; the others follow.")] = 5,
    device: Device = DEVICE,
    smoke: Annotated[bool, typer.Option(help="Two epochs of two folds: does it run?")] = False,
) -> None:
    """All methods on all folds; what is in metrics.json already is not run again."""
    config = Config(seed=seed, epochs=epochs, device=device)
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
        k: _paper_run(folds[k], folds[k].train, folds[k].train, hyper, partial(_final_variants, hyper=hyper, alpha=a))
        for k, a in enumerate(search["alphas"])
        if k in chosen
    }
    start = time.perf_counter()
    train_together(list(runs.values()), config.epochs)
    trained = (time.perf_counter() - start) / len(METHODS) / len(runs)
    records = []
    for index, run in runs.items():
        for v, method in enumerate(METHODS):
            variant = run.contest.race.variants[v]
            members = run.ensemble[run.contest.race.rows(v)]
            scores = run.fold.score(predictive_of(variant, evaluate(members, run.fold.test.inputs), variant.likelihood))
            record = _record(method, index, None, scores, trained) | {"epochs": config.epochs}
            if method == "DE-GP":
                seconds = trained + search["seconds"] / len(folds)
                record |= {"alpha": search["alphas"][index], "search_epochs": search["epochs"], "seconds": seconds}
            records.append(record)
        records.append(_exact_record(run.fold, index, _nngp(hyper), hyper.noise))
    return records


def _searched(name: str, config: Config, out: Path) -> dict[str, Any]:
    """α of each fold by validation NLL, with the epochs and seconds that it took; kept in `alphas.json`."""
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
        searches.append(_paper_run(fold, train, validation, hyper, partial(_search_variants, hyper=hyper)))
    epochs = max(1, min(config.epochs, config.search_steps // searches[0].num_batches))
    start = time.perf_counter()
    train_together(searches, epochs)
    alphas = []
    for run in searches:
        run.contest.judge(run.ensemble)
        alphas.append(ALPHAS[largest_within_one_error(run.contest.nll, ALPHAS)])
    return {"alphas": alphas, "epochs": epochs, "seconds": time.perf_counter() - start}


def ours(name: str, chosen: Sequence[int], config: Config, out: Path) -> list[dict[str, Any]]:
    """The library's defaults for every method, on the same split, stopped and calibrated alike."""
    every = standardised_folds(uci(name), config.folds, config.seed, config.device)
    folds = [every[k] for k in chosen]
    runs, grids = [], []
    start = time.perf_counter()
    for fold in folds:
        train, validation = hold_out_rows(fold.train, config.validation_fraction, generator=fold.generator)
        contest, ensemble, grid, scales = contest_for(
            train, validation, None, Recipe(), methods=("de", "rde", "rms", "degp"), generator=fold.generator
        )
        runs.append(FoldRun(fold, train, ensemble, contest, learning_rate=Recipe().budget.learning_rate))
        grids.append((grid, scales))
    epochs = _epochs_for(config.own_steps, len(runs[0].data))
    train_together(runs, epochs, judge_every=max(1, epochs // 100), patience=Recipe().budget.patience)
    seconds = (time.perf_counter() - start) / len(folds) / len(METHODS)
    records = []
    for index, fold, run, (grid, scales) in zip(chosen, folds, runs, grids, strict=True):
        for method, name_of in zip(METHODS, ("de", "rde", "rms", "degp"), strict=True):
            rows = [v for v, (kind, _) in enumerate(grid) if kind == name_of]
            alphas = [grid[v][1] or 0.0 for v in rows]
            best = rows[largest_within_one_error(run.contest.nll[rows], alphas)]
            members, likelihood = run.contest.winner(best, run.ensemble), run.contest.best_likelihoods[best]
            variant = run.contest.race.variants[best]
            validation = run.contest.validation
            calibrate(likelihood, variant, evaluate(members, validation.inputs), validation.targets)
            scores = fold.score(predictive_of(variant, evaluate(members, fold.test.inputs), likelihood))
            records.append(_record(method, index, grid[best][1], scores, seconds) | {"epochs": epochs})
        records.append(_exact_record(fold, index, scales.nngp(), scales.noise_variance))
    return records


PROTOCOLS: dict[str, Callable[[str, Sequence[int], Config, Path], list[dict[str, Any]]]] = {
    "paper": paper,
    "ours": ours,
}


def _paper_run(
    fold: Fold, train: Batch, validation: Batch, hyper: Published, variants: Callable[[Batch], Sequence[Variant]]
) -> FoldRun:
    D, device = train.inputs.shape[1], train.inputs.device
    weights = _weight_prior(hyper)
    start = [
        weights.initialise(mlp(D, WIDTHS, 1, output_bias=False).to(device), generator=fold.generator)
        for _ in range(MEMBERS)
    ]
    chosen = variants(train)
    ensemble = Ensemble([copy.deepcopy(network) for _ in chosen for network in start])
    return FoldRun(fold, train, ensemble, Contest(chosen, MEMBERS, ensemble, validation).to(device), 0.01)


def _search_variants(train: Batch, hyper: Published) -> list[Variant]:
    shared = _prior(train, hyper), UniformBox.around(train.inputs, BATCH)
    return [_degp(hyper, alpha, *shared) for alpha in ALPHAS]


def _final_variants(train: Batch, hyper: Published, alpha: float) -> list[Variant]:
    weights = _weight_prior(hyper)
    D, device = train.inputs.shape[1], train.inputs.device
    members = Ensemble(lambda: mlp(D, WIDTHS, 1, output_bias=False), MEMBERS).to(device)
    generator = torch.Generator(device).manual_seed(1)
    return [
        objectives.de(Gaussian(hyper.noise)),
        objectives.rde(Gaussian(hyper.noise), weights),
        objectives.rms(Gaussian(hyper.noise), members, weights, generator=generator),
        _degp(hyper, alpha, _prior(train, hyper), UniformBox.around(train.inputs, BATCH)),
    ]


def _degp(hyper: Published, alpha: float, prior: MonteCarloNNGP, measurement: UniformBox) -> Variant:
    return objectives.degp(Gaussian(hyper.noise), prior, alpha=alpha, measurement=measurement)


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


def _epochs_for(steps: int, rows: int) -> int:
    return max(1, min(Recipe().budget.epochs, steps // max(1, rows // BATCH)))


def _plain(hyper: dict[str, Published]) -> dict[str, Any]:
    return {name: asdict(values) for name, values in hyper.items()}


def _say(name: str, protocol: str, records: list[dict[str, Any]], seconds: float) -> None:
    lines = []
    for method in (*METHODS, "NN-GP"):
        own = [r for r in records if r["method"] == method]
        means = {key: sum(r[key] for r in own) / len(own) for key in ("rmse", "nll", "coverage90")}
        alphas = [r["alpha"] for r in own] if method == "DE-GP" else ""
        scores = "  ".join(f"{key} {value:.4f}" for key, value in means.items())
        lines.append(f"  {method:6} {scores} {alphas}")
    Console().print(f"{name} ({protocol}, {seconds:.0f} s)\n" + "\n".join(lines), highlight=False)
