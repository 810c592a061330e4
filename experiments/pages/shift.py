"""Images under shift: context points, controls and peers, and the choice among them on validation images."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from statistics import mean
from typing import Any

from experiments.pages import stored
from experiments.pages.stored import Records, cell, listed, lowest, records, table, values, where
from experiments.protocols.image_figures import short_names
from experiments.protocols.image_names import display, label
from experiments.protocols.independent_runs import names
from experiments.protocols.shift import choice
from experiments.protocols.shift.claims import claims
from experiments.protocols.shift.runs import run_by_name
from experiments.protocols.shift.summary import baseline, interval

__all__ = [
    "candidates",
    "cheaper_divergence",
    "figures",
    "findings",
    "leads",
    "methods",
    "not_run",
    "preferred",
    "verdict",
]

Facts = Mapping[str, Any]
EXPERIMENT = "cifar10_shift"
NOT_RUN = "Not run yet."
FIGURES = {"shift": "Corrupted NLL and OOD detection", "pareto": "Scores by training time"}
SCORES = {
    "nll": "NLL",
    "accuracy_corrupted": "accuracy, corrupted",
    "nll_corrupted": "NLL, corrupted",
    "nll_cbar": "NLL, C̄",
    "auroc_svhn_entropy": "AUROC SVHN, entropy",
    "auroc_cifar100_entropy": "CIFAR-100",
    "auroc_fashion_mnist_entropy": "Fashion-MNIST",
}
STANDING = {
    "nll": "NLL",
    "accuracy_corrupted": "accuracy under corruption",
    "nll_corrupted": "NLL under corruption",
    **{
        f"auroc_{name}_entropy": f"AUROC on {words}"
        for name, words in {"svhn": "SVHN", "cifar100": "CIFAR-100", "fashion_mnist": "Fashion-MNIST"}.items()
    },
}
LEADS = ("nll", "nll_corrupted", "auroc_svhn_mi", "auroc_svhn_entropy")
SELECTION = f"{EXPERIMENT}/selection"
CONTROLS = {
    "rDE with outlier exposure": "rde-context-exposed",
    "rDE that sees the context images": "rde-context-seen",
    "MC dropout": "dropout",
    "SNGP": "sngp",
    "laplace-torch": "laplace",
    "rank-one members": "rankone",
    "heads": "heads",
}
SETTINGS = {
    "α": "α =",
    "networks of the prior": "per step",
    "their input": "pixels",
    "divergence": "of the batch",
    "context": "context",
}
CHEAPER = ("pixels", "of the batch")  # in the names of priors whose divergence is cheaper
CHOICE = {
    "nll_validation": "NLL",
    "nll_shifted": "NLL, shifted",
    "nll_cbar": "NLL, C̄",
    "auroc_validation_kmnist_mi": "AUROC KMNIST, MI",
    "auroc_validation_kmnist_entropy": "entropy",
}


def verdict() -> str:
    """How many of the claims hold that were stated before the runs, and which do not."""
    rows = records(EXPERIMENT)
    found = claims(rows)
    if not found:
        return NOT_RUN
    failed = [f"{claim.text} ({claim.found})" for claim in found if not claim.holds]
    seeds = len({row["seed"] for row in rows})
    counted = f"{sum(claim.holds for claim in found)} of {len(found)} claims that can be checked so far hold"
    return f"With {seeds} seed{'s' * (seeds > 1)}, {counted}.{f' Not: {listed(failed)}.' if failed else ''}"


def methods() -> str:
    """Scores on test images, by network and number of epochs."""
    return _table(EXPERIMENT, SCORES) or NOT_RUN


def leads() -> str:
    """Differences from rDE, paired over seeds, with intervals where there are two or more."""
    rows = []
    for title, own in _groups(records(EXPERIMENT)):
        short, _ = short_names([_by_label(own)])
        for method, pairs in _pairs(own).items():
            rows.append([title, short[method], str(len(pairs)), *(_lead(pairs, score) for score in LEADS)])
    return table(["network", "method", "seeds", *map(display, LEADS)], rows) if rows else NOT_RUN


def findings() -> str:
    """In which scores each method is ahead of rDE, and in which behind; of the group with the most epochs."""
    _, own = _longest(records(EXPERIMENT))
    short, _ = short_names([_by_label(own)])
    lines = [f"- **{short[method]}** {_standing(pairs)}." for method, pairs in _pairs(own).items()]
    if lines and len({row["seed"] for row in own}) == 1:
        lines.append("- **One seed.** Differences of a few thousandths are noise.")
    return "\n".join(lines)


def not_run() -> str:
    """A sentence about controls, peers and light members without test scores; nothing where all have been run."""
    run = {(row["method"], row["network"]) for row in records(EXPERIMENT)}
    networks = {row["network"].split()[0] for row in records(EXPERIMENT)} or {"resnet20"}
    missing = [
        words
        for words, name in CONTROLS.items()
        if not any(_identity(name, network) in run for network in sorted(networks))
    ]
    return f" Not run yet: {listed(missing)}." if missing else ""


def figures() -> str:
    """The figures that are there."""
    found = [path for name in FIGURES for path in sorted((stored.RESULTS / EXPERIMENT).glob(f"{name}*.png"))]
    return "\n\n".join(f"![{FIGURES[p.stem.split('_')[0]]}](results/{EXPERIMENT}/{p.name})" for p in found)


def candidates() -> str:
    """Scores on validation images, by which methods are chosen."""
    return _table(SELECTION, CHOICE) or NOT_RUN


def preferred() -> str:
    """The settings that the rule of `choice` prefers, and among how many; of each group with scores on CIFAR-10-C̄."""
    found = []
    for title, own in _groups([row for row in records(SELECTION) if row.get(choice.SHIFTED) is not None]):
        by_label = _by_label(own)
        best = short_names([by_label])[0][display(label(choice.preferred(list(own))))]
        settings = sum(rows[0]["alpha"] is not None for rows in by_label.values())
        found.append(f"of {settings} settings of DE-GP ({title}), {best}")
    return f"The rule prefers, {listed(found)}." if found else NOT_RUN


def cheaper_divergence() -> str:
    """Validation NLL with a prior at a lower resolution or a divergence on a part of the batch, and by default."""
    default = run_by_name("chosen", "resnet20", 1, 0).facts
    like = where(records(SELECTION), **{key: default[key] for key in ("alpha", "beta", "context", "augmentation")})
    found = []
    for title, own in _groups(like):
        by_prior = {name: cell(values(where(own, prior=name), "nll_validation")) for name in names(list(own), "prior")}
        cheaper = [
            f"{nll} with {display(name.removeprefix(default['prior'] + ', '))}"
            for name, nll in by_prior.items()
            if any(w in name for w in CHEAPER)
        ]
        usual = [f"{by_prior[name]} with the defaults" for name in by_prior if name == default["prior"]]
        found += [f"{'; '.join([*usual, *cheaper])} ({title})"] if cheaper else []
    if not found:
        return "Whether they cost quality has not been tested on CIFAR-10 yet."
    return f"NLL on validation images of CIFAR-10 is {'; '.join(found)}."


def best_rows(rows: Records) -> list[str]:
    """The lowest corrupted NLL of DE-GP and of the others, and what was run; of the group with the most epochs."""
    _, own = _longest(rows)
    seeds = len({row["seed"] for row in own})
    run = f"{seeds} seed{'s' * (seeds > 1)}, {own[0]['epochs']} epochs"
    return [_best(own, functional=True).removeprefix("DE-GP "), _best(own, functional=False), run]


def _longest(rows: Records) -> tuple[str, Records]:
    """The group with the most epochs, and of these the largest."""
    return max(_groups(rows), key=lambda group: (group[1][0]["epochs"], len(group[1])), default=("", ()))


def _best(rows: Records, *, functional: bool) -> str:
    """The method with the lowest mean corrupted NLL among those that are DE-GP, or are not."""
    kind = [row for row in rows if (row["alpha"] is not None) == functional and row.get("nll_corrupted") is not None]
    by_label = _by_label(kind)
    if not by_label:
        return "–"
    best = lowest({method: mean(values(own, "nll_corrupted")) for method, own in by_label.items()})
    return f"{by_label[best][0]['method']} {cell(values(by_label[best], 'nll_corrupted'))}"


def _table(name: str, scores: dict[str, str]) -> str:
    """One row per network and method; what all rows share is said once, above them."""
    groups = [(title, _by_label(own)) for title, own in _groups(records(name))]
    short, shared = short_names(by_label for _, by_label in groups)
    rows = [
        [title, _seeds(mine), *_by_setting(short[method]), *(cell(values(mine, score)) for score in scores)]
        for title, by_label in groups
        for method, mine in by_label.items()
    ]
    if not rows:
        return ""
    columns = ["network", "seeds", "method", *SETTINGS, *scores.values()]
    varies = [head in ("method", *scores.values()) or len(set(column)) > 1 for head, column in _columns(columns, rows)]
    alike = [fact for fact, changes in zip(rows[0], varies, strict=True) if fact and not changes]
    heads, *cells = (list(compress(row, varies)) for row in (columns, *rows))
    above = "; ".join([*alike, *shared])
    return "\n\n".join([*([f"{above}:"] if above else []), table(heads, cells)])


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    return zip(heads, zip(*rows, strict=True), strict=True)


def _by_setting(name: str) -> list[str]:
    """The method of a name, and its settings by column."""
    pieces = {piece: next((s for s, mark in SETTINGS.items() if mark in piece), "method") for piece in name.split(", ")}
    return [
        ", ".join(piece.removeprefix("α = ") for piece, of in pieces.items() if of == column)
        for column in ("method", *SETTINGS)
    ]


def _seeds(own: Records) -> str:
    return f"{len(own)} seed{'s' * (len(own) > 1)}"


def _groups(rows: Records) -> Iterator[tuple[str, Records]]:
    for network in names(list(rows), "network"):
        for epochs in names(list(where(rows, network=network)), "epochs"):
            yield f"{display(network)}, {epochs} epochs", where(rows, network=network, epochs=epochs)


def _pairs(own: Records) -> dict[str, list[tuple[Facts, Facts]]]:
    """Each method's records beside those of rDE with the same seed, where there are any."""
    found = {
        method: [(row, other) for row in mine if (other := baseline(row, list(own))) is not None]
        for method, mine in _by_label(own).items()
    }
    return {method: pairs for method, pairs in found.items() if pairs}


def _differences(pairs: Sequence[tuple[Facts, Facts]], score: str) -> list[float]:
    both = [(row.get(score), other.get(score)) for row, other in pairs]
    return [own - other for own, other in both if own is not None and other is not None]


def _lead(pairs: Sequence[tuple[Facts, Facts]], score: str) -> str:
    found = _differences(pairs, score)
    if not found:
        return "–"
    centre, half = interval(found)
    error = f" ± {half:.4f}" if len(found) > 1 else ""
    return f"{centre:+.4f}{error}".replace("-", "−")


def _standing(pairs: Sequence[tuple[Facts, Facts]]) -> str:
    """The scores in which a method is ahead of rDE, and behind: beyond the interval where there are several seeds."""
    ahead, behind = [], []
    for score, title in STANDING.items():
        found = _differences(pairs, score)
        centre, half = interval(found)
        if found and abs(centre) > (half if len(found) > 1 else 0):
            (ahead if (centre < 0) == score.startswith("nll") else behind).append(title)
    sure = "" if len(pairs) == 1 else f", beyond the 95 % interval over {len(pairs)} seeds"
    return f"is ahead of rDE in {listed(ahead, 'no score')}, and behind in {listed(behind, 'none')}{sure}"


def _identity(name: str, network: str) -> tuple[str, str]:
    """What tells the records of a control: its method, and its network with the kind of members."""
    facts = run_by_name(name, network, 1, 0).facts
    return facts["method"], facts["network"]


def _by_label(rows: Records) -> dict[str, Records]:
    return {name: [row for row in rows if display(label(row)) == name] for name in _labels(rows)}


def _labels(rows: Records) -> list[str]:
    return list(dict.fromkeys(display(label(row)) for row in rows))
