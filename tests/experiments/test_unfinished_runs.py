"""The results pages can be written at any stage of the experiments: whichever runs are there, sentences stay true."""

import json
import re
import shutil

import pytest

from experiments.pages import overview, peers, shift, stored
from experiments.pages.command import outdated
from experiments.pages.marks import BLOCK, INLINE
from experiments.protocols.shift.runs import run_by_name

SCORES = dict.fromkeys((*shift.SCORES, *shift.LEADS, *shift.CHOICE), 0.5)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Replaces the records of experiments, in a copy of the results, by functions of them."""
    shutil.copytree(stored.RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("*.png"))
    monkeypatch.setattr(stored, "RESULTS", tmp_path / "results")

    def replace(**changes):
        for name, change in changes.items():
            path = tmp_path / "results" / name.replace("__", "/") / "metrics.json"
            path.parent.mkdir(exist_ok=True)
            found = json.loads(path.read_text()) if path.exists() else {"config": {}, "records": []}
            path.write_text(json.dumps(found | {"records": change(found["records"])}))
        _forget()

    _forget()
    yield replace
    _forget()


def _forget():
    for function in (stored.records, stored.failures, peers._compared, peers._ranking):
        function.cache_clear()


def without(**facts):
    return lambda rows: [row for row in rows if not _has(row, facts)]


def only(**facts):
    return lambda rows: [row for row in rows if _has(row, facts)]


def also(method, like, **facts):
    """As well as all records, those of one method under another name."""
    return lambda rows: [*rows, *({**row, "method": method, **facts} for row in rows if row["method"] == like)]


def changed(change, **facts):
    return lambda rows: [{**row, **change(row)} if _has(row, facts) else row for row in rows]


def none(rows):
    return []


def both(first, second):
    return lambda rows: second(first(rows))


def _has(row, facts):
    return all(row[key] in value if isinstance(value, tuple) else row[key] == value for key, value in facts.items())


def runs(*names, seeds=(0,), epochs=200, **scores):
    """Records of runs under shift."""
    made = [run_by_name(name, "resnet20", epochs, seed).facts for seed in seeds for name in names]
    return lambda rows: [*rows, *({**facts, **SCORES, **scores} for facts in made)]


def worse(row):
    return {"nll": row["nll"] + 10}


def nothing(rows):
    return []


LARGE = ("kin8nm", "power", "protein")
AS_NOW = changed(lambda row: {"alpha": 1.0}, protocol="ours", method="DE-GP")
STATES = {
    "no tables": {"peers": nothing},
    "a method that has not extrapolated": {
        "peers": both(
            without(method="TabM"), both(also("TabM", "RealMLP"), without(method="TabM", kind="extrapolation"))
        )
    },
    "no own method": {"peers": without(method="DE-GP")},
    "one split of the own method": {"peers": without(method="DE-GP", split=(1, 2))},
    "own method without extrapolation": {"peers": without(method="DE-GP", kind="extrapolation")},
    "no extrapolation": {"peers": without(kind="extrapolation")},
    "no Gaussian process": {"peers": without(method="GP")},
    "no census": {"peers": without(dataset="census")},
    "one split": {"peers": without(split=(1, 2))},
    "own method far behind": {"peers": changed(worse, method="DE-GP")},
    "no UCI": {"uci": nothing},
    "no sets of ours": {"uci": without(protocol="ours")},
    "sets of ours missing": {"uci": without(protocol="ours", dataset=("kin8nm", "protein"))},
    "no exact process of large sets": {"uci": both(AS_NOW, without(protocol="ours", dataset=LARGE, method="NN-GP"))},
    "one fold of ours": {"uci": without(protocol="ours", fold=(1, 2, 3, 4))},
    "DE-GP missing on a set": {"uci": without(protocol="ours", dataset="boston", method="DE-GP")},
    "no intervals": {"intervals": nothing},
    "intervals of unseen sets": {"intervals": only(dataset=("diabetes", "elevation"))},
    "intervals of one set": {"intervals": only(dataset="boston")},
    "no heads": {"pretrained": nothing, "pretrained__mails": nothing},
    "no 4,000 labels": {"pretrained": without(labels=4000)},
    "one subset": {"pretrained": only(seed=0), "pretrained__mails": only(seed=0)},
    "heads far behind": {"pretrained": changed(worse, method="DE-GP")},
    "all that reaches into the network": {
        "pretrained": both(
            both(also("attach", "SNGP", members=100, alpha=1.0), also("fine-tuned", "SNGP")),
            both(also("rank-one DE-GP", "SNGP", members=32, alpha=1.0), also("LoRA DE", "SNGP", members=32)),
        )
    },
    "two runs under shift": {"cifar10_shift": runs("rde", "chosen")},
    "chosen alone": {"cifar10_shift": runs("chosen")},
    "rDE alone": {"cifar10_shift": runs("rde")},
    "two seeds": {
        "cifar10_shift": both(runs("rde", "chosen", seeds=(0, 1)), runs("rde", "sngp", "laplace", epochs=20))
    },
    "scores missing": {"cifar10_shift": both(runs("rde", nll=None, auroc_svhn_mi=None), runs("chosen", nll=None))},
    "candidates of several lengths": {
        "cifar10_shift__selection": runs("rde", "chosen", "degp-a0.003-p8-s2-r16", epochs=60)
    },
    "no candidates": {"cifar10_shift__selection": nothing},
}


@pytest.mark.parametrize("state", STATES)
def test_pages_can_be_written_at_any_stage(state, write):
    write(**STATES[state])
    for text in outdated().values():
        generated = [mark["text"] for kind in (BLOCK, INLINE) for mark in kind.finditer(text)]
        assert not [found for found in generated if re.search(r"\bnan\b|\binf\b|\bNone\b", found)]
    rows = [row.strip("| ").split(" | ") for row in overview.artefacts().splitlines()[2:]]
    assert all(len(row) == len(overview.HEADS) and all(len(cell.split()) <= 10 for cell in row) for row in rows)


def test_findings_under_shift_name_what_is_ahead_and_behind(write):
    write(cifar10_shift=both(both(none, runs("rde")), runs("chosen", nll=0.4, accuracy_corrupted=0.4)))
    assert "is ahead of rDE in NLL, and behind in accuracy under corruption." in shift.findings()
    assert "**One seed.**" in shift.findings()


def test_findings_over_seeds_are_beyond_the_interval(write):
    better = both(runs("chosen", nll=0.4), runs("chosen", seeds=(1,), nll=0.41, nll_corrupted=0.1))
    write(cifar10_shift=both(both(none, runs("rde", seeds=(0, 1))), better))  # corrupted NLL differs in one seed only
    assert shift.findings().endswith("ahead of rDE in NLL, and behind in none, beyond the 95 % interval over 2 seeds.")


def test_methods_that_are_ahead_of_ours_are_named(write):
    write(peers=changed(worse, method="DE-GP"))
    assert "DE-GP has no significant lead." in peers.proven_leads()
    assert "Significantly ahead of it: scikit-learn GP and rDE." in peers.proven_leads("GP", "rDE")


def test_extrapolation_without_a_failure_is_described_by_its_numbers(write):
    write(peers=changed(lambda row: {"coverage90": 0.9}, method="DE-GP", kind="extrapolation"))
    assert peers.extrapolation().startswith("90 % on average, 90 % at the least")
