"""The results pages tell the truth: their numbers are those of the records, and so are the claims in their prose."""

from statistics import mean

import pytest

from benchmarks.__main__ import BENCHMARKS
from experiments.pages import decisions, images, overview, pretrained, timings, toy
from experiments.pages.command import PAGES, PROJECT, outdated, value
from experiments.pages.marks import filled
from experiments.pages.stored import records, values, where
from experiments.protocols.active_summary import labels_needed
from experiments.protocols.pretrained.summary import chosen

EXPERIMENTS = (PROJECT / "experiments" / "README.md").read_text(encoding="utf-8")


def test_pages_have_the_numbers_of_the_records():
    assert not outdated(), "run python -m experiments pages"


def test_pages_with_results_are_filled_in():
    marked = {
        page.relative_to(PROJECT).as_posix() for page in PAGES if "<!-- begin " in page.read_text(encoding="utf-8")
    }
    assert {"README.md", "experiments/README.md", "docs/research/temperatures.md"} <= marked


def test_cells_of_the_overview_are_short_and_its_statuses_known():
    rows = [row.strip("| ").split(" | ") for row in overview.artefacts().splitlines()[2:]]
    assert len(rows) > 15
    assert all(len(row) == len(overview.HEADS) and all(len(cell.split()) <= 10 for cell in row) for row in rows)
    assert {row[-1] for row in rows} <= {*overview.STATUSES, "–"}


# Benchmarks


def test_stored_benchmarks_exist_and_are_on_their_page():
    page = (PROJECT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    stored = {folder.name for folder in timings.RESULTS.iterdir()}
    assert stored == set(BENCHMARKS) - {"tables", "tiles"}
    for name in BENCHMARKS:
        assert f"### `{name}`" in page if name in stored else f"`{name}` (" in page


def ratios(name, *words):
    """DE-GP's times over DE's in records whose step has these words."""
    rows = timings.results(name)["records"]
    return [row["ratio to DE"] for row in rows if "DE-GP" in row["step"] and all(word in row["step"] for word in words)]


def test_costs_of_a_step():
    claimed(
        "A training step of DE-GP costs 1.1 to 2 times a step of the plain ensemble, and more for the smallest",
        (PROJECT / "docs" / "faq.md").read_text(encoding="utf-8"),
    )
    usual = ratios("steps") + ratios("images", "ResNet")
    assert 1.05 <= min(usual) and max(usual) < 2.05 < min(ratios("images", "MLPs"))


# Marks


def shown(name, arguments):
    return f"{name} of {arguments}"


def test_marks_are_filled_and_filled_again_alike():
    text = "a\n\n<!-- begin m.f -->\nold\n<!-- end m.f -->\n\nis <!--m.g(x, y z)-->old<!--/-->, <!-- a remark --> b\n"
    new = "a\n\n<!-- begin m.f -->\n\nm.f of []\n\n<!-- end m.f -->\n\n"
    new += "is <!--m.g(x, y z)-->m.g of ['x', 'y z']<!--/-->, <!-- a remark --> b\n"
    assert filled(text, shown) == filled(new, shown) == new


@pytest.mark.parametrize(
    "text, message",
    [
        ("<!-- begin m.f -->\nold\n<!-- end m.g -->\n", "2 marks must be in pairs, but 0 are"),
        ("a <!--m.f-->old\nb\n", "1 marks must be in pairs, but 0 are"),
        ("a\n<!--m.f-->1<!--/--> b\n", "must not begin it, but '<!--m.f-->1<!--/--> b' does"),
    ],
)
def test_broken_marks_are_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        filled(text, shown)


@pytest.mark.parametrize(
    "name, message",
    [("nothing.f", "must name a module of experiments/pages, but nothing.f"), ("toy.f", "must name one of distances")],
)
def test_marks_without_a_function_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        value(name, [])


# Claims in the prose


def scores(experiment, network, epochs, key):
    own = images.of_paper(experiment, network, epochs)
    return {name: mean(values(images.of_method(own, name), key)) for name in images.method_names(own)}


def claimed(text, page=EXPERIMENTS):
    assert text in " ".join(page.split()), f"the page no longer says {text!r}; remove its assertion"


def test_error_bars_in_one_dimension():
    claimed("DE and rDE are off by factors of two and more")
    assert float(toy.error_bars("DE-GP")) < 0.05 and min(float(toy.error_bars(name)) for name in ("DE", "rDE")) > 0.69


def test_fashion_mnist():
    claimed("It detects MNIST better than the other methods by every score")
    for key in ("auroc_mi", "auroc_entropy", "auroc_maxprob"):
        own = scores("fmnist", "lenet", 24, key)
        assert max(own, key=own.get) == "DE-GP"
    accuracy, nll = (scores("fmnist", "lenet", 24, key) for key in ("accuracy", "nll"))
    assert max(accuracy, key=accuracy.get) == "DE-GP"
    claimed("rDE's NLL is as low as DE-GP's with ten members")
    assert nll["rDE"] <= nll["DE-GP"]


def test_cifar10():
    claimed("rDE and DE-GP are ahead of DE, RMS and DE-GP without it. DE-GP without a penalty is ahead of DE.")
    accuracy = scores("cifar10", "resnet20", 200, "accuracy")
    assert min(accuracy["rDE"], accuracy["DE-GP"]) > max(accuracy["DE"], accuracy["RMS"], accuracy["DE-GP, β = 0"])
    assert accuracy["DE-GP, β = 0"] > accuracy["DE"]
    claimed("Among images of low uncertainty DE-GP has the smallest error")
    low = scores("cifar10", "resnet20", 200, "error_mi_10")
    assert min(low, key=low.get) == "DE-GP"
    claimed("By entropy, rDE detects SVHN better")
    entropy = scores("cifar10", "resnet20", 200, "auroc_entropy")
    assert max(entropy, key=entropy.get) == "rDE"


def test_corruptions():
    claimed("Without fitted temperatures, as in the paper, DE-GP has a lower NLL and a lower ECE than DE, rDE and RMS")
    rows = [
        r for r in where(records("cifar10_corruptions"), network="resnet20") if r["severity"] and images.is_usual(r)
    ]
    for key in ("nll_unfitted", "ece_unfitted"):
        own = {name: mean(values(images.of_method(rows, name), key)) for name in ("DE", "rDE", "RMS", "DE-GP")}
        assert min(own, key=own.get) == "DE-GP"
    claimed("DE-GP without a penalty has the lowest NLL")
    nll = {name: mean(values(images.of_method(rows, name), "nll")) for name in images.method_names(rows)}
    assert min(nll, key=nll.get) == "DE-GP, β = 0"


def test_shared_backbone():
    claimed("In accuracy and uncalibrated NLL the order is the authors': DE-GP, rDE, DE")
    accuracy, raw, nll = (
        scores("cifar10_sharing", "resnet20 trunk", 200, key) for key in ("accuracy", "nll_unfitted", "nll")
    )
    assert sorted(accuracy, key=accuracy.get, reverse=True) == sorted(raw, key=raw.get) == ["DE-GP", "rDE", "DE"]
    claimed("With a fitted temperature, rDE and DE have the lower NLL")
    assert max(nll, key=nll.get) == "DE-GP"


def test_smaller_alpha_and_shallower_prior_are_better_on_validation_images():
    page = (PROJECT / "docs" / "research" / "alpha_and_prior.md").read_text(encoding="utf-8")
    claimed("a smaller α and a prior of 8 layers are each better than the authors' values, and best together", page)
    rows = where([*records("cifar10_alpha"), *records("cifar10_prior")], epochs=200, seed=0)
    nll = {(row["alpha"], row["prior"]): row["nll_validation"] for row in rows}
    both, usual = (0.003, "lite resnet8"), (0.01, "lite resnet20")
    assert min(nll, key=nll.get) == both and max(nll, key=nll.get) == usual and len(nll) == 4


def mails(labels, key, alpha=1.0, members=200):
    """Means over label subsets by method; ensembles of so many heads, DE-GP at this α."""
    rows = [r for r in where(records("pretrained/mails"), labels=labels) if r["members"] in (members, None)]
    rows = [row for row in rows if row["alpha"] in (alpha, None) and row.get(key) is not None]
    return {name: mean(values(where(rows, method=name), key)) for name in {row["method"] for row in rows}}


def test_fine_tuning():
    claimed(
        "You can fine-tune the whole network: heads on frozen features have a higher NLL",
        (PROJECT / "README.md").read_text(encoding="utf-8"),
    )
    own, fine_tuned = (pretrained.ROWS[name] for name in (pretrained.HEADS_OF_OURS, pretrained.FINE_TUNED))
    assert all(min(pretrained.differences("pretrained", n, own, fine_tuned)) > 0 for n in (1000, 4000, 45000))


def test_mails():
    claimed("With 1,000 labels DE-GP at α = 1 has the lowest NLL on each subset")
    claimed("On hard ham it is ahead of the other ensembles")
    own = pretrained.MAIL_ROWS[pretrained.HEADS_OF_OURS]
    for other in (*pretrained.RIVALS.values(), *pretrained.WITHOUT_MEMBERS.values()):
        assert min(pretrained.differences("pretrained/mails", 1000, other, own)) > 0
    for labels, other in [(labels, other) for labels in (200, 1000) for other in pretrained.RIVALS.values()]:
        assert min(pretrained.differences("pretrained/mails", labels, other, own, "nll_hard_ham")) > 0
    claimed("With 200 labels RMS, rDE, laplace-torch and DE have the lower NLL")
    nll, shifted, milder = mails(200, "nll"), mails(200, "nll_hard_ham"), mails(200, "nll_hard_ham", alpha=0.1)
    ahead = {name for name in nll if nll[name] < nll["DE-GP"]} - {"DE-GP on 16"}
    assert ahead == {"RMS", "rDE", "DE", "Laplace full", "Laplace KFAC"}
    claimed("On hard ham SNGP is ahead, though far behind on usual mails")
    for labels in (200, 1000):
        usual, hard = mails(labels, "nll"), mails(labels, "nll_hard_ham")
        assert min(hard, key=hard.get) == "SNGP" and usual["SNGP"] > 1.3 * usual["DE-GP"]
    claimed("removes most of the gap, and about half of the lead on hard ham")
    closed = nll["DE-GP"] - mails(200, "nll", alpha=0.1)["DE-GP"]
    assert all(2 * closed > nll["DE-GP"] - nll[name] for name in ahead)
    lead, left = (scores["DE"] - scores["DE-GP"] for scores in (shifted, milder))
    assert 0.4 < left / lead < 0.6


def test_notes_about_mails():
    page = (PROJECT / "docs" / "research" / "pretrained.md").read_text(encoding="utf-8")
    claimed("NLL is lower with 200 labels, and higher with 1,000 and on hard ham, for any number of heads", page)
    for members in (10, 50, 200):
        for labels, key in [(200, "nll"), (1000, "nll"), (200, "nll_hard_ham"), (1000, "nll_hard_ham")]:
            scores = mails(labels, key, members=members)
            assert (scores["DE-GP on 16"] < scores["DE-GP"]) == ((labels, key) == (200, "nll"))
    claimed("Validation NLL prefers α = 0.1 with 200 labels and α = 1 with 1,000, on every subset", page)
    best = {(r["labels"], r["alpha_chosen"]) for r in chosen(records("pretrained/mails"))}
    assert best == {(200, 0.1), (1000, 1.0)}
    claimed("On hard ham α = 1 has the lower NLL at both sizes", page)
    assert all(mails(n, "nll_hard_ham")["DE-GP"] < mails(n, "nll_hard_ham", alpha=0.1)["DE-GP"] for n in (200, 1000))
    claimed("with 200 heads their AUROC differs by less than 0.015", page)
    claimed("have an AUROC of at most 0.54", page)
    claimed("on usual mails over 1.4 times as many errors as each ensemble", page)
    for labels in (200, 1000):
        detection, accuracy = mails(labels, "auroc_hard_ham_mi"), mails(labels, "accuracy")
        alike = [detection[name] for name in ("DE-GP", "DE", "RMS")]
        assert max(alike) - min(alike) < 0.015
        assert max(mails(labels, "auroc_hard_ham_score").values()) <= 0.54
        errors = [1 - accuracy[name] for name in ("DE", "rDE", "RMS", "DE-GP")]
        assert 1 - accuracy["SNGP"] > 1.4 * max(errors)


def test_bandits():
    claimed("DE-GP has the least regret in both problems")
    for game in decisions.GAMES:
        rows = where(records("bandits"), environment=game)
        regret = {a: mean(values(where(rows, agent=a), "relative_regret")) for a in {row["agent"] for row in rows}}
        assert min(regret, key=regret.get) == "DE-GP"


def test_bayesian_optimisation():
    claimed("As a Gaussian process the members have a lower regret than as samples, on every problem")
    claimed("DE-GP is behind the exact process on both Ackley functions")
    for problem in {row["problem"] for row in records("bo")}:
        regret = decisions.last_regret(problem)
        assert regret["DE-GP"] < regret["EnsembleModel"]
        assert "ackley" not in problem or regret["DE-GP"] > regret["SingleTaskGP"]


def test_active_learning():
    claimed("The aim was 150 labels on three of four sets; no strategy reaches it")
    claimed("On boston and energy, joint information needs fewer than 150 labels")
    rows = [dict(row) for row in records("active")]
    sets, strategies = ({row[key] for row in rows} for key in ("dataset", "strategy"))
    needed = {(name, s): labels_needed(rows, name, s, decisions.LAST) for name in sets for s in strategies}
    assert all(sum(needed[name, s] <= 150 for name in sets) < 3 for s in strategies)
    assert {name for name in sets if needed[name, "joint information"] < 150} == {"boston", "energy"}
