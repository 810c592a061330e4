"""The tables of the comparison are what their names say: shapes, formulas, noise and missing cells, by seed."""

import math

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from experiments.data import simulators, tables
from experiments.data.regression_tables import UCI_NAMES
from experiments.data.tables import CLASSIFICATION, REGRESSION, table

SHAPES = {
    "diabetes": (442, 10),
    "friedman1": (1000, 15),
    "friedman2": (1000, 14),
    "friedman3": (1000, 14),
    "borehole": (2000, 8),
    "wing-weight": (2000, 10),
    "heteroscedastic": (1500, 5),
    "heavy-tails": (1500, 5),
    "steps": (1500, 6),
    "rents": (2000, 6),
    "breast-cancer": (569, 30),
    "wine": (178, 13),
    "iris": (150, 4),
    "digits": (1797, 64),
    "census": (3000, 7),
    "classification": (2000, 20),
    "moons": (1000, 12),
}
SIMULATORS = {
    "friedman1": lambda seed: simulators.friedman(1, seed=seed),
    "friedman2": lambda seed: simulators.friedman(2, seed=seed),
    "friedman3": lambda seed: simulators.friedman(3, seed=seed),
    "borehole": lambda seed: simulators.borehole(seed=seed),
    "wing-weight": lambda seed: simulators.wing_weight(seed=seed),
    "heteroscedastic": lambda seed: simulators.heteroscedastic(seed=seed),
    "heavy-tails": lambda seed: simulators.heavy_tails(seed=seed),
    "steps": lambda seed: simulators.steps(seed=seed),
    "rents": lambda seed: simulators.rents(seed=seed),
    "census": lambda seed: simulators.census(seed=seed),
    "classification": lambda seed: simulators.overlapping_classes(seed=seed),
    "moons": lambda seed: simulators.moons(seed=seed),
}


def test_there_are_enough_tables_of_each_kind():
    assert set(SHAPES) | set(UCI_NAMES) == set(REGRESSION) | set(CLASSIFICATION)
    assert len(REGRESSION) >= 12 and len(CLASSIFICATION) >= 6


@pytest.mark.parametrize("name", SHAPES)
def test_a_table_has_the_stated_shape_and_valid_targets(name):
    data = table(name)
    assert data.features.shape == SHAPES[name] and len(data) == SHAPES[name][0]
    assert np.isfinite(data.target).all()
    if name in CLASSIFICATION:
        assert set(data.target) == set(range(data.num_classes))
    else:
        assert data.num_classes is None and data.target.dtype == np.float64


@pytest.mark.parametrize("name", SIMULATORS)
def test_a_simulated_table_depends_on_its_seed_alone(name):
    (first, first_target), (again, again_target), (other, _) = (SIMULATORS[name](seed) for seed in (3, 3, 4))
    assert_frame_equal(first, again)
    assert np.array_equal(first_target, again_target)
    assert not first.equals(other)


def test_the_borehole_flow_is_the_published_formula():
    frame, flow = simulators.borehole(5, seed=2)
    r, influence, upper, head, lower, low_head, length, conductivity = frame.iloc[3]
    ratio = math.log(influence / r)
    bracket = 1 + 2 * length * upper / (ratio * r**2 * conductivity) + upper / lower
    assert flow[3] == pytest.approx(2 * math.pi * upper * (head - low_head) / (ratio * bracket), rel=1e-12)


def test_features_without_influence_have_none():
    frame, target = simulators.friedman(1, 20_000, seed=0)
    x = frame.to_numpy()
    signal = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    assert np.std(target - signal) == pytest.approx(1.0, abs=0.02)
    assert np.abs(np.corrcoef(x[:, 5:].T, target)[-1, :-1]).max() < 0.03


def test_the_noise_grows_along_the_second_feature():
    frame, target = simulators.heteroscedastic(20_000, seed=0)
    x = frame.to_numpy()
    noise = target - (2 * np.sin(np.pi * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] ** 2)
    low, high = (np.std(noise[mask]) for mask in (x[:, 1] < -0.95, x[:, 1] > 0.95))
    assert low == pytest.approx(0.05, rel=0.15) and high == pytest.approx(1.0, rel=0.15)


def test_steps_have_plateaus():
    frame, target = simulators.steps(2000, seed=0)
    x = frame.to_numpy()
    inside = (x[:, 0] > 0.2) & (x[:, 1] > 0.4) & (x[:, 2] > 0.6)
    assert np.mean(target[inside]) == pytest.approx(2 - 3 + 1, abs=0.05) and np.std(target[inside]) < 0.13


def test_the_census_has_categories_rare_ones_and_missing_cells():
    data = table("census")
    assert data.categorical == ("occupation", "region", "status")
    missing = data.features.isna().mean()
    assert 0.05 < missing["schooling"] < 0.15 and 0.04 < missing["occupation"] < 0.12 and missing["age"] == 0
    assert (data.features["region"].value_counts() < 10).any()
    assert table("rents").categorical == ("district", "heating", "condition")


def test_a_large_table_is_cut_to_a_fixed_random_part(monkeypatch):
    whole = pd.DataFrame({"x": np.arange(5000.0)})
    monkeypatch.setitem(tables.TABLES, "large", lambda: (whole, whole["x"].to_numpy()))
    table.cache_clear()
    data = table("large")
    assert len(data) == 4000 and len(set(data.target)) == 4000
    assert np.array_equal(data.features["x"], data.target)
    assert np.array_equal(data.target, np.random.RandomState(0).permutation(5000)[:4000])
