"""Comparisons under shift: differences are paired, intervals cover, and both figures are drawn from records."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from degp.report import save_results
from experiments.cifar10_shift import main
from experiments.protocols.image_names import display, label
from experiments.protocols.image_records import DISTINCT, name_of
from experiments.protocols.image_runs import BY_IMAGE, Place, records_in
from experiments.protocols.shift.claims import claims
from experiments.protocols.shift.figures import PARETO, kind, pareto_figure, short
from experiments.protocols.shift.runs import run_by_name
from experiments.protocols.shift.summary import (
    baseline,
    differences,
    image_differences,
    interval,
    over_images,
    write_comparison,
)

OOD = ("mi", "entropy", "maxprob")
SCORES = ("accuracy", "nll", "accuracy_corrupted", "nll_corrupted", "auroc_svhn_mi", "auroc_svhn_entropy")
NAMES = {  # with seconds per epoch
    **{"rde": 1.5, "chosen": 2.1, "degp": 1.8, "rde-context-exposed": 1.9, "rde-logitnorm": 1.5, "rde-m1": 0.5},
    **{"laplace": 0.5, "sngp": 0.9, "dropout": 0.5, "rde-augmix": 1.6, "chosen-augmix": 2.2},
    **{f"rankone-m{M}": 0.5 + 0.03 * M for M in (16, 32, 64)},
    **{f"rankone_rde-m{M}": 0.4 + 0.03 * M for M in (16, 32, 64)},
    **{f"heads-m{M}": 0.5 + 0.004 * M for M in (16, 64)},
    **{f"heads_rde-m{M}": 0.45 + 0.004 * M for M in (16, 64)},
}


def record(name, seed, **scores):
    return {**run_by_name(name, "resnet20", 200, seed).facts, "seconds_per_epoch": NAMES[name], **scores}


def some_records(seeds=(0, 1, 2)):
    generator = torch.Generator().manual_seed(0)
    found = []
    for name in NAMES:
        centre = torch.rand(len(SCORES), generator=generator)
        for seed in seeds:
            values = (0.9 * centre + 0.05 * torch.rand(len(SCORES), generator=generator)).tolist()
            found.append(record(name, seed, **dict(zip(SCORES, values, strict=True))))
    return found


def test_claims_compare_means_over_shared_seeds():
    ours = {"nll": 0.16, "accuracy": 0.945, "nll_corrupted": 0.9, "auroc_svhn_entropy": 0.96}
    theirs = {"nll": 0.17, "accuracy": 0.9455, "nll_corrupted": 1.01, "auroc_svhn_entropy": 0.95}
    rows = [record("chosen", seed, **ours) for seed in (0, 1)] + [record("rde", 0, **theirs)]
    assert [claim.holds for claim in claims(rows)] == [True] * 5
    rows += [
        record(
            "rde", 1, **theirs | {"nll": 0.14, "accuracy": 0.9471, "nll_corrupted": 0.98, "auroc_svhn_entropy": 0.98}
        )
    ]
    failed = [claim.text for claim in claims(rows) if not claim.holds]
    assert len(failed) == 4 and not any("at least 0.95" in text for text in failed)
    rows += [record("rde-context-exposed", 0, nll_corrupted=0.89, auroc_svhn_entropy=0.9)]
    assert "NLL under corruption not above that of outlier exposure" in [c.text for c in claims(rows) if not c.holds]
    assert not claims([record("rde", 0, **theirs)])


def test_intervals_are_students():
    values = [0.1, 0.4, 0.7]
    centre, half = interval(values)
    assert centre == pytest.approx(0.4) and half == pytest.approx(4.303 * 0.3 / math.sqrt(3))
    assert math.isnan(interval([1.0])[1]) and math.isnan(interval([])[0])


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_over_seeds_cover_as_often_as_they_say(seeds):
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4000, seeds, generator=generator).tolist()
    covered = sum(abs(centre) <= half for centre, half in map(interval, draws)) / len(draws)
    assert covered == pytest.approx(0.95, abs=0.012)


def test_intervals_over_images_cover_as_often_as_they_say():
    differences = torch.rand(2000, 1000, generator=torch.Generator().manual_seed(0)) - 0.5
    covered = sum(abs(centre) <= half for centre, half in map(over_images, differences)) / len(differences)
    assert covered == pytest.approx(0.95, abs=0.015)


def test_differences_are_paired_by_seed():
    records = [record("rde", seed, nll=0.2 + seed) for seed in (0, 1)]
    records += [record("chosen", seed, nll=0.3 + seed) for seed in (0, 1, 2)]
    (cells,) = differences(records).values()
    assert cells[:2] == ["2", "+0.1000 ± 0.0000"]
    assert cells[2:] == ["–"] * 5  # scores that no record has


def test_a_baseline_has_the_same_seed_and_images_and_as_many_members_as_there_are():
    records = some_records()
    found = {(label(r), r["seed"]): baseline(r, records) for r in records if r["network"] == "resnet20"}
    for (method, seed), other in found.items():
        if method in ("rDE", "rDE, AugMix"):
            assert other is None
        else:
            assert (other["method"], other["members"], other["seed"]) == ("rDE", 10, seed)
            assert other["augmentation"] == ("AugMix" if "AugMix" in method else None)


def test_scores_that_are_not_finite_do_not_enter_differences():
    records = [record("rde", seed, nll=0.2) for seed in (0, 1)]
    records += [record("chosen", 0, nll=0.3), record("chosen", 1, nll=None)]
    assert differences(records)[label(records[-1])][1] == "+0.1000"


def test_differences_by_image_are_paired(tmp_path):
    records, noise = [record("rde", 0), record("chosen", 0)], torch.randn(400)
    for own, shift in zip(records, (0.0, 0.25), strict=True):
        values = {score: noise * count + shift for count, score in enumerate(SCORES[:4])}
        save_file(values, tmp_path / f"{name_of(own)}.safetensors")
    assert image_differences(records, tmp_path) == [[label(records[1]), "0", *["+0.2500 ± 0.0000"] * 4]]
    assert image_differences([*records, record("degp", 0)], tmp_path) == image_differences(records, tmp_path)


def test_records_of_different_methods_have_labels_and_files_of_their_own():
    for identify in (label, name_of):
        found = {(r["network"], identify({**r, "seed": 0})) for r in some_records((0,))}
        assert len(found) == len(NAMES)


def test_a_name_has_every_fact_of_a_run():
    run = run_by_name("chosen-augmix", "resnet20", 20, 3)
    assert run.facts.keys() == set(DISTINCT)
    assert (
        name_of(run.facts)
        == run.name
        == "_".join(
            (
                *("network-resnet20", "method-DE-GP", "alpha-0.003", "beta-0.1", "prior-lite-resnet8-S-5"),
                *("temperature_start-1.0", "members-10", "epochs-20", "seed-3"),
                *("context-32-context-images", "augmentation-AugMix"),
            )
        )
    )


def test_the_pareto_figure_has_a_point_per_method_and_size():
    figure = pareto_figure(some_records())
    labels = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert len(figure.axes) == len(PARETO) and labels == {"1", "10", "16", "32", "64"}
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {
        *("rDE, whole networks", "DE-GP, whole networks", "DE-GP, whole networks, context"),
        *("rDE, rank-one members", "DE-GP, rank-one members", "rDE, heads", "DE-GP, heads"),
    }
    assert {kind(r) for r in some_records()} == {"whole networks", "rank-one members", "heads"}


def test_short_labels_leave_out_what_is_usual():
    assert short(label(record("chosen", 0))) == "DE-GP α = 0.003, context"
    assert short(label(run_by_name("chosen-s2", "resnet20", 1, 0).facts)) != short(label(record("chosen", 0)))


def test_the_comparison_writes_differences_and_figures(tmp_path):
    save_results(tmp_path, config={}, records=some_records())
    for own in some_records((0,)):
        (tmp_path / BY_IMAGE).mkdir(exist_ok=True)
        scores = {score: torch.rand(50) for score in SCORES[:4]}
        save_file(scores, tmp_path / BY_IMAGE / f"{name_of(own)}.safetensors")
    write_comparison(Place.open(tmp_path, None, "cpu", None, smoke=False))
    page = (tmp_path / "differences.md").read_text(encoding="utf-8")
    for seeds_or_seed in (3, 0):
        assert f"| {display('resnet20')} | 200 | rDE + SNGP, M = 1 | {seeds_or_seed} |" in page
    drawn = {path.name for path in tmp_path.glob("*.png")}
    networks = ("resnet20", "resnet20_rank-one", "resnet20_trunk")
    assert drawn == {"pareto.png", *(f"shift_{network}_200.png" for network in networks)}


def test_every_record_has_what_comparisons_need(tmp_path):
    main(out=tmp_path, methods="rde,chosen", seeds="0", device="cpu", smoke=True)
    place = Place.open(tmp_path, None, "cpu", None, smoke=True)
    records = records_in(place)
    detection = (f"{kind}_{ood}_{score}" for kind in ("auroc", "fpr95") for ood in ("svhn", "noise") for score in OOD)
    needed = {"context", "augmentation", "seconds", "seconds_per_epoch", *SCORES[:4], *detection}
    assert [r["context"] for r in records] == [None, "32 context images"]
    for own in records:
        assert needed <= own.keys()
        images = load_file(place.out / BY_IMAGE / f"{name_of(own)}.safetensors")
        assert [images[score].mean().item() for score in SCORES[:4]] == pytest.approx([own[s] for s in SCORES[:4]])
    assert "| 0 |" in (place.out / "differences.md").read_text(encoding="utf-8")
