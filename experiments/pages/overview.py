"""One row per artefact: the paper's value beside ours, the best baseline, and what was run."""

import math
from collections.abc import Callable, Iterator, Mapping
from statistics import mean

from experiments.pages import decisions, images, peers, pretrained, published, shift, toy, uci
from experiments.pages.stored import cell, lowest, records, table, values, where
from experiments.protocols.active_summary import labels_needed
from experiments.protocols.independent_runs import names
from experiments.protocols.uci_summary import mean_ranks

__all__ = ["artefacts"]

REPRODUCED, PARTLY, SCALED, NOT_RUN = STATUSES = ("reproduced", "partly", "scaled down", "not run")
OWN = "DE-GP"
HEADS = ("artefact", "metric", "paper", "ours", "best baseline", "seeds, epochs", "status")
NO_NUMBER, NOT_IN_PAPER = "figure only", "–"


def artefacts() -> str:
    """All artefacts of the paper, then our own experiments."""
    return table(HEADS, [*_of_paper(), *_our_own()])


def _of_paper() -> Iterator[list[str]]:
    yield [
        "[Figures 1, 2: 1-D regression](#1-d-regression)",
        "error of log std",
        NO_NUMBER,
        toy.error_bars(OWN),
        f"DE {toy.error_bars('DE')}",
        "1 seed, 1000 steps",
        REPRODUCED,
    ]
    yield ["[Figure 3: UCI regression](#uci-regression)", *_uci("paper"), PARTLY]
    yield ["[Fashion-MNIST](#fashion-mnist)", *_accuracy("fmnist", "lenet", 24), REPRODUCED]
    yield ["[Table 1: ResNet-20](#cifar-10)", *_accuracy("cifar10", "resnet20", 200), PARTLY]
    yield ["[Table 1: ResNet-56](#cifar-10)", *_accuracy("cifar10", "resnet56", 20), SCALED]
    yield ["[ResNet-110](#cifar-10)", *_accuracy("cifar10", "resnet110", 20), SCALED]
    yield ["[Corruptions](#corruptions)", *_corruptions(), PARTLY]
    yield ["[Shared backbone](#shared-backbone)", *_accuracy("cifar10_sharing", "resnet20 trunk", 200), PARTLY]
    yield ["[Ablation of α](#ablations)", *_ablation("alpha", 0.005, published.ALPHAS[0.005]), SCALED]
    yield [
        "[Ablation of the prior](#ablations)",
        *_ablation("prior", "lite resnet56", published.PRIORS["lite resnet56"]),
        SCALED,
    ]
    paper = published.ACCURACY["cifar100", "resnet20"]
    yield ["[CIFAR-100](#cifar-100)", "accuracy, %", paper[OWN], "–", f"paper: rDE {paper['rDE']}", "–", NOT_RUN]
    for game, name in (("mushroom", "Mushroom"), ("covertype", "Covertype")):
        yield [f"[Bandits: {name}](#bandits)", "relative regret", NO_NUMBER, *_bandits(game), "5 trials", REPRODUCED]


def _our_own() -> Iterator[list[str]]:
    yield ["[UCI, our estimators](#uci-regression)", *_uci("ours"), "–"]
    yield ["[Intervals](#intervals)", *_intervals(), "–"]
    yield ["[Tables against other libraries](#tables-against-other-libraries)", *_peers(), "–"]
    yield ["[Pre-trained network](#light-members-on-a-pre-trained-network)", *_pretrained(4000), "–"]
    yield ["[Images under shift](#images-under-shift)", *_shift()]
    yield ["[Bayesian optimisation](#bayesian-optimisation)", *_optimisation("hartmann6"), "–"]
    yield ["[Active learning](#active-learning)", *_active("energy"), "–"]


def _uci(protocol: str) -> list[str]:
    means = mean_ranks(where(records("uci"), protocol=protocol), "nll")
    paper = NO_NUMBER if protocol == "paper" else NOT_IN_PAPER
    budget = "5 folds, 1000 epochs" if protocol == "paper" else "5 folds"
    return ["mean rank, NLL", paper, *_ranks(means), budget]


def _ranks(means: Mapping[str, float]) -> list[str]:
    """DE-GP's mean rank, and the lowest of the others; dashes for what is not ranked."""
    others = {name: rank for name, rank in means.items() if name != OWN}
    best = lowest(others) if others else None
    return [f"{means[OWN]:.2f}" if OWN in means else "–", f"{best} {others[best]:.2f}" if best else "–"]


def _accuracy(experiment: str, network: str, epochs: int) -> list[str]:
    own = images.of_paper(experiment, network, epochs)
    scores = {name: values(images.of_method(own, name), "accuracy") for name in images.method_names(own)}
    mine, best = _ours_and_best(scores, lambda numbers: -mean(numbers))
    paper = published.ACCURACY.get((experiment, network), {}).get(OWN, NO_NUMBER)
    return ["accuracy, %", paper, mine, best, f"{_counted(scores)}, {epochs} epochs"]


def _ours_and_best(scores: Mapping[str, list[float]], loss: Callable[[list[float]], float]) -> tuple[str, str]:
    """DE-GP's cell, and that of the best method that is not DE-GP; accuracies in %."""
    others = {name: loss(numbers) for name, numbers in scores.items() if not name.startswith(OWN)}
    best = lowest(others)
    return cell(scores[OWN], 2, 100), f"{best} {cell(scores[best], 2, 100)}"


def _counted(scores: Mapping[str, list[float]]) -> str:
    counts = sorted({len(numbers) for numbers in scores.values()})
    return f"{counts[0]} seed{'s' * (counts[0] > 1)}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]} seeds"


def _corruptions() -> list[str]:
    rows = [
        r for r in where(records("cifar10_corruptions"), network="resnet20") if r["severity"] and images.is_usual(r)
    ]
    by_method = {name: mean(values(images.of_method(rows, name), "nll_unfitted")) for name in images.method_names(rows)}
    best = lowest({name: value for name, value in by_method.items() if not name.startswith(OWN)})
    cells = [f"{by_method[OWN]:.3f}", f"{best} {by_method[best]:.3f}"]
    return ["NLL, uncalibrated", NO_NUMBER, *cells, "1 seed, 200 epochs"]


def _ablation(kind: str, value: object, paper: str) -> list[str]:
    own = where(records(f"cifar10_{kind}"), epochs=20, **{kind: value})
    usual = where(records("cifar10_alpha"), epochs=20, alpha=0.01)
    words = {"alpha": f"α = {value}", "prior": "56 layers"}[kind]
    reference = f"default {cell(values(usual, 'accuracy'), 2, 100)}"
    return [f"accuracy, %, {words}", paper, cell(values(own, "accuracy"), 2, 100), reference, "1 seed, 20 epochs"]


def _bandits(game: str) -> list[str]:
    rows = where(records("bandits"), environment=game)
    regret = {agent: mean(values(where(rows, agent=agent), "relative_regret")) for agent in names(list(rows), "agent")}
    best = lowest({agent: value for agent, value in regret.items() if agent != OWN})
    return [decisions.relative_regret(game, OWN), f"{best} {decisions.relative_regret(game, best)}"]


def _intervals() -> list[str]:
    return ["coverage of 90 %", NOT_IN_PAPER, uci.interval_coverage().partition(" on average")[0], "–", "5 folds"]


def _peers() -> list[str]:
    cells = _ranks(peers.means("regression"))
    return [
        f"mean rank, NLL, {peers.num_tables()} tables",
        NOT_IN_PAPER,
        *cells,
        peers.num_splits("regression"),
    ]


def _pretrained(labels: int) -> list[str]:
    by_row = pretrained.by_row(labels)
    mine = by_row.get(pretrained.HEADS_OF_OURS, [])
    others = {name: mean(numbers) for name, numbers in by_row.items() if name not in pretrained.OURS}
    best = lowest(others) if others else None
    beside = f"{best.partition(',')[0]} {cell(by_row[best])}" if best else "–"
    return [f"NLL, {labels:,} labels", NOT_IN_PAPER, cell(mine), beside, f"{len(mine)} subset{'s' * (len(mine) != 1)}"]


def _shift() -> list[str]:
    rows = records(shift.EXPERIMENT)
    if not rows:
        return ["NLL, corrupted", NOT_IN_PAPER, "–", "–", "–", NOT_RUN]
    return ["NLL, corrupted", NOT_IN_PAPER, *shift.best_rows(rows), "–"]


def _optimisation(problem: str) -> list[str]:
    by_method = decisions.last_regret(problem)
    best = lowest({name: value for name, value in by_method.items() if name != OWN})
    cells = [f"{by_method[OWN]:.3g}", f"{best} {by_method[best]:.3g}"]
    return ["median regret, Hartmann-6", NOT_IN_PAPER, *cells, "10 seeds"]


def _active(name: str) -> list[str]:
    rows = [dict(row) for row in records("active")]
    needed = {s: labels_needed(rows, name, s, decisions.LAST) for s in ("joint information", "DE, disagreement")}
    mine, other = (f"{value:.0f}" if math.isfinite(value) else f"> {decisions.LAST}" for value in needed.values())
    return [f"labels needed, {name}", NOT_IN_PAPER, mine, f"DE {other}, random {decisions.LAST}", "5 seeds"]
