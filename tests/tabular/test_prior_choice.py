"""The prior of a table: embedded numbers where leave-one-out asks for them, and every candidate on the same rows."""

from dataclasses import replace

import pytest
import torch

from degp.methods import Kind
from degp.sklearn import DEGPRegressor
from degp.tabular.embedding import Embedding
from degp.tabular.fitting import TableConfig
from degp.tabular.prior_choice import choose_prior, choose_units
from degp.tabular.prior_search import PriorSearch
from degp.tabular.units import Units
from degp.transforms import Identity, Log
from degp.typing import Batch
from tests.fixtures import normal, seeded

ROWS = 150
CONFIG = TableConfig(hidden_layers=(8, 8))


def search(rows, groups, *, num_features=2, num_classes=None, depth=2, generator=None):
    generator = generator or seeded()
    return PriorSearch.of(rows, num_features, num_classes, depth=depth, groups=groups, generator=generator)


def embedded(function, rows=ROWS):
    x = torch.rand(rows, 2, dtype=torch.float64, generator=seeded()) * 2 - 1
    embedding = Embedding.fit(x)
    y = function(x)[:, None] + 0.05 * normal(rows, 1, seed=1)
    return Batch(embedding.apply(x), y / y.std()), embedding.groups([0, 1])


def thresholds(x):
    return (x[:, 0] > 0.3).double() * 2 - (x[:, 0] > -0.4).double() + (x[:, 1] > 0.1).double()


def smooth(x):
    return torch.sin(2 * x[:, 0]) + x[:, 1]


@pytest.mark.parametrize("function, inputs", [(thresholds, 2 + 2 * 16), (smooth, 2)])
def test_numbers_are_embedded_where_the_target_has_thresholds(function, inputs):
    rows, groups = embedded(function)
    choice = choose_prior(search(rows, groups), CONFIG)
    assert len(choice.scales.relevance) == len(choice.process.scales.relevance) == inputs


def kinks(x):
    return (x[:, 0] - 0.2).abs() + (x[:, 1] + 0.3).relu()


def between(x):
    """Both activations predict it equally well."""
    return smooth(x) + 0.5 * kinks(x)


@pytest.mark.parametrize("function, activation", [(smooth, "erf"), (between, "erf"), (kinks, "relu")])
def test_the_process_differs_from_the_members_unless_leave_one_out_is_against_it(function, activation):
    rows, groups = embedded(function)
    plain, config = Batch(rows.inputs[:, :2], rows.targets), TableConfig(hidden_layers=(8,))
    choice = choose_prior(search(plain, groups[:2], depth=1), config)
    assert choice.process.scales.activation == activation and choice.scales.activation == "relu"


@pytest.mark.parametrize("method", [Kind.DE, Kind.RDE, Kind.RMS])
def test_baselines_have_the_same_inputs_and_no_process(method):
    rows, groups = embedded(thresholds)
    choice = choose_prior(search(rows, groups), TableConfig(method=method, hidden_layers=(8, 8)))
    own = choose_prior(search(rows, groups), CONFIG)
    assert choice.process is None and choice.scales == own.scales


def test_classes_have_a_prior_of_the_features_alone():
    rows, groups = embedded(smooth)
    classes = Batch(rows.inputs[:, :2], (rows.targets[:, 0] > 0).long())
    choice = choose_prior(search(classes, groups[:2], num_classes=2), CONFIG)
    assert len(choice.process.scales.relevance) == len(choice.scales.relevance) == 2


def side(x):
    """Two classes on either side of a line, some of them swapped."""
    return (x[:, 0] + 0.5 * x[:, 1] + 0.3 * normal(len(x), seed=2) > 0).long()


def ring(x):
    """Two classes, one around the other."""
    return (x.square().sum(1) > 1.2).long()


@pytest.mark.parametrize("classes, depth", [(side, 0), (ring, 2)])
def test_the_process_of_classes_is_linear_unless_networks_separate_them_better(classes, depth):
    x = normal(150, 2)
    choice = choose_prior(search(Batch(x, classes(x)), (0, 1), num_classes=2), CONFIG)
    assert choice.process.scales.depth == depth and choice.scales.depth == 2


@pytest.mark.parametrize("num_classes", [None, 2])
def test_more_features_than_rows_do_not_fit_noise(num_classes):
    """With a relevance each, in-sample evidence and leave-one-out explain any targets."""
    x, y = normal(60, 300), normal(60, 1, seed=1)
    rows = Batch(x, y if num_classes is None else (y[:, 0] > 0).long())
    choice = choose_prior(search(rows, range(300), num_features=300, num_classes=num_classes), CONFIG)
    assert len(set(choice.scales.relevance)) == 1
    assert choice.scales.noise_variance > 0.5 or num_classes


def test_more_features_than_rows_have_relevances_that_predict():
    x = normal(60, 80)
    x[:, 1:] *= 0.1
    rows = Batch(x, x[:, :1] / x[:, 0].std())
    choice = choose_prior(search(rows, range(80), num_features=80), CONFIG)
    relevance = choice.scales.relevance
    assert choice.process is not None and relevance[0] > 5 * max(relevance[1:])


def test_scales_are_refined_on_more_rows():
    """Of 700 rows the first fit sees 512; the evidence that is reported counts them all."""
    rows, groups = embedded(smooth, rows=700)
    one = choose_prior(search(rows, groups), CONFIG)
    z = one.scales.apply(rows.inputs[:, :2])
    noisy = one.scales.nngp()(z, z) + one.scales.noise_variance * torch.eye(700)
    dense = torch.distributions.MultivariateNormal(torch.zeros(700).double(), noisy).log_prob(rows.targets[:, 0])
    assert one.scales.log_evidence == pytest.approx(float(dense), abs=0.01)


def test_the_relevance_of_a_column_includes_its_pieces():
    x = torch.rand(ROWS, 3, dtype=torch.float64, generator=seeded()) * 2 - 1
    y = thresholds(x) + 0.05 * normal(ROWS, 1, seed=1)[:, 0]
    model = DEGPRegressor(hidden_layers=(8, 8), members=2, steps=1, random_state=0).fit(x.numpy(), y.numpy())
    assert model.embedding_.places
    squares = [0.0, 0.0, 0.0]
    for feature, s in zip(model.embedding_.sources, model.relevance_, strict=True):
        squares[feature] += s**2
    assert [v**2 for v in model.feature_relevance_.values()] == pytest.approx(squares)
    assert min(squares[:2]) > 10 * squares[2]


def growing(x, noise):
    """The noise is proportional to the target."""
    return (1 + x[:, 0] + 0.4 * noise).exp()


def constant(x, noise):
    return 12 + 3 * x[:, 0] + noise


def chosen_units(function, rows=150):
    x, noise = normal(rows, 2), normal(rows, seed=1)
    y = function(x, noise)[:, None]
    candidates = [Units.fit(transform, y) for transform in (Identity(), Log())]
    generator = seeded()
    choice = choose_units(candidates, search(Batch(x, y), [0, 1], generator=generator))
    assert torch.equal(generator.get_state(), seeded().get_state())
    assert torch.equal(choice.search.rows.targets, choice.units.apply(y).float())
    return choice


@pytest.mark.parametrize("function, transform", [(growing, Log()), (constant, Identity())])
def test_the_log_is_taken_where_the_noise_grows_with_the_target(function, transform):
    assert chosen_units(function).units.transform == transform


def test_the_choice_is_independent_of_the_unit_of_the_target():
    """Densities of y are compared, not those of its standardised transforms."""
    for scale in (1e-3, 1e6):
        choice = chosen_units(lambda x, noise, scale=scale: scale * growing(x, noise))
        assert choice.units.transform == Log()


def test_a_search_that_compared_units_gives_the_prior_of_a_new_one():
    known = chosen_units(growing).search
    fresh = search(known.rows, [0, 1])
    assert "plain" in vars(known)  # found once
    assert choose_prior(known, CONFIG).scales == choose_prior(fresh, CONFIG).scales


@pytest.mark.parametrize("num_classes, count", [(2, 40), (8, 20)])
def test_the_processes_of_all_classes_together_have_bounded_roots(num_classes, count):
    rows = Batch(normal(60, 2), torch.arange(60) % num_classes)
    config = TableConfig(hidden_layers=(8,), exact_rows=40)
    own, without = (search(rows, (0, 1), num_classes=num_classes, depth=1) for _ in range(2))
    choice, alone = choose_prior(own, config), choose_prior(without, replace(config, exact_rows=0))
    assert len(choice.process.rows) == count
    assert alone.process is None and alone.scales == choice.scales
    states = (each.generator.get_state() for each in (own, without))
    assert torch.equal(*states)  # members are the same with a process and without
