"""Light members on a pre-trained network: EfficientNet-lite0 on CIFAR-10 with few and many labels, and mails as text.

Features are computed once and cached in a folder; heads train on them. Baselines see the same features, the same
validation points and, where they are trained by gradients, the same budget. A run that is done is not repeated. Mails
have narrower heads, fewer steps and fewer α than images, for a CPU.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from degp.report import save_results
from experiments.protocols import options
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import Jobs, earlier_records, finished
from experiments.protocols.pretrained.heads import Budget
from experiments.protocols.pretrained.runs import (
    FIELDS,
    IMAGES,
    MAILS,
    MEMBERS,
    METHODS,
    SMOKE,
    Place,
    Run,
    Settings,
    describe,
    planned,
    run_one,
)
from experiments.protocols.pretrained.summary import write_summary

LABELS = {IMAGES: "1000,4000,45000", MAILS: "200,1000", SMOKE: "40,60"}
ALPHAS = {IMAGES: "1,0.3,0.1,0.03", MAILS: "1,0.1", SMOKE: "1,0.1"}
BUDGETS = {
    IMAGES: Budget(),
    MAILS: Budget(width=64, steps=500, batch_size=64, penalty=0.1),
    SMOKE: Budget(components=4, width=8, steps=4, batch_size=16),
}
WHOLE = ("LoRA DE-GP", "LoRA DE", "rank-one DE-GP", "fine-tuned")  # which need images
FEATURES = Path("data/features")


def main(
    out: options.Out = Path("experiments/results/pretrained"),
    data: Annotated[Literal["cifar10", "mails"], typer.Option(help="Images, or mails into OUT/mails.")] = IMAGES,
    features: Annotated[Path, typer.Option(help="Folder where features are cached.")] = FEATURES,
    methods: Annotated[str | None, typer.Option(help="Names, separated by commas; all by default.")] = None,
    labels: Annotated[str | None, typer.Option(help="Sizes of the label subsets, separated by commas.")] = None,
    members: Annotated[str, typer.Option(help="Sizes of the ensembles of heads.")] = ",".join(map(str, MEMBERS)),
    alphas: Annotated[str | None, typer.Option(help="α of DE-GP in units of Bayes' weight.")] = None,
    seeds: options.Seeds = "0,1,2",
    jobs: Jobs = 1,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """All methods on the features of a frozen network, and some that reach into it."""
    name = SMOKE if smoke else data
    settings = Settings(name, BUDGETS[name])
    known = [name for name in METHODS if settings.data == IMAGES or name not in WHOLE]
    names = options.chosen(methods if methods is not None else ",".join(known), known)
    sizes = options.whole_numbers(labels or LABELS[settings.data], "--labels")
    counts = [3, 5] if smoke else options.whole_numbers(members, "--members")
    out = out / settings.data if settings.data != IMAGES else out
    place = Place(features.absolute(), "cpu" if smoke else device)
    place.features.mkdir(parents=True, exist_ok=True)
    seeded = [0] if smoke else options.whole_numbers(seeds)
    runs = planned(
        names, sizes, seeded, counts, options.weights(alphas or ALPHAS[settings.data]), settings.lora_members
    )
    records = earlier_records(out, describe(settings), FIELDS)
    records = _do(runs, records, settings, place, out, jobs, Deadline(minutes))
    if records:
        typer.echo(write_summary(records, settings, out))


def _do(
    runs: list[Run],
    records: list[dict[str, Any]],
    settings: Settings,
    place: Place,
    out: Path,
    jobs: int,
    deadline: Deadline,
) -> list[dict[str, Any]]:
    """Runs what is missing, and saves after each."""
    done = {tuple(record[name] for name in FIELDS) for record in records}
    left = [run for run in runs if tuple(run.facts.values()) not in done]
    start = time.monotonic()
    tasks = [(run, settings, place) for run in left]
    with closing(finished(attempt, tasks, jobs=jobs, deadline=deadline)) as outcomes:
        for number, ((run, _, _), record) in enumerate(outcomes, 1):
            typer.echo(f"[{number}/{len(left)}, {time.monotonic() - start:.0f} s] {_line(run, record)}")
            if "error" not in record:
                records = sorted([*records, record], key=_place_in_file)
                save_results(out, config=describe(settings), records=records)
    return records


def attempt(run: Run, settings: Settings, place: Place) -> dict[str, Any]:
    """The record, or why there is none: one method that fails must not end the others."""
    try:
        return run_one(run, settings, place)
    except Exception as error:  # of any package
        if place.device == "cuda":
            torch.cuda.empty_cache()
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}


def _line(run: Run, record: dict[str, Any]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items() if value is not None)
    if "error" in record:
        return f"{facts}: failed, {record['error']}"
    shown = [f"{name} {record[name]:.4f}" for name in ("nll", "accuracy", "seconds") if name in record]
    shown += [f"{name} {value:.3f}" for name, value in record.items() if name.startswith("auroc") and value is not None]
    return f"{facts}: {', '.join(shown)}"


def _place_in_file(record: dict[str, Any]) -> tuple[Any, ...]:
    methods = list(METHODS)
    return (
        record["labels"],
        methods.index(record["method"]),
        record["members"] or 0,
        -(record["alpha"] or 0),
        record["seed"],
    )
