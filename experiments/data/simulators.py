"""Simulated tables whose truth is known: features as a DataFrame, and the target; the same numbers for the same seed.

Columns of dtype "category" are categorical. `RandomState` is frozen by numpy, so that the numbers do not depend on its
version.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from numpy.random import RandomState

__all__ = [
    "borehole",
    "census",
    "friedman",
    "heavy_tails",
    "heteroscedastic",
    "moons",
    "overlapping_classes",
    "rents",
    "steps",
    "wing_weight",
]

Regression = tuple[pd.DataFrame, Float64[np.ndarray, "N"]]
Classification = tuple[pd.DataFrame, Int64[np.ndarray, "N"]]
Ranges = Mapping[str, tuple[float, float]]

BOREHOLE: Ranges = {
    "radius": (0.05, 0.15),
    "influence": (100.0, 50_000.0),
    "upper_transmissivity": (63_070.0, 115_600.0),
    "upper_head": (990.0, 1110.0),
    "lower_transmissivity": (63.1, 116.0),
    "lower_head": (700.0, 820.0),
    "length": (1120.0, 1680.0),
    "conductivity": (9855.0, 12_045.0),
}
WING: Ranges = {
    "area": (150.0, 200.0),
    "fuel": (220.0, 300.0),
    "aspect": (6.0, 10.0),
    "sweep": (-10.0, 10.0),
    "pressure": (16.0, 45.0),
    "taper": (0.5, 1.0),
    "thickness": (0.08, 0.18),
    "load": (2.5, 6.0),
    "gross": (1700.0, 2500.0),
    "paint": (0.025, 0.08),
}


def friedman(number: int, rows: int = 1000, *, irrelevant: int = 10, seed: int = 0) -> Regression:
    """Friedman's function #1, #2 or #3 (1991) with his noise, and features that have no influence."""
    from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

    make, noise = {1: (make_friedman1, 1.0), 2: (make_friedman2, 125.0), 3: (make_friedman3, 0.1)}[number]
    inputs, targets = make(n_samples=rows, noise=noise, random_state=seed)
    inputs = inputs[:, : 5 if number == 1 else 4]  # scikit-learn adds five without influence to #1
    others = RandomState(seed + 1).uniform(size=(rows, irrelevant))
    return _frame(np.hstack([inputs, others])), targets


def borehole(rows: int = 2000, *, seed: int = 0) -> Regression:
    """Flow of water through a borehole in m³ per year, without noise (Harper and Gupta, 1983).

    2π T_u (H_u − H_l) / ( ln(r/r_w) [ 1 + 2 L T_u / (ln(r/r_w) r_w² K_w) + T_u/T_l ] )
    """
    x = _uniform(BOREHOLE, rows, seed)
    log_ratio = np.log(x.influence / x.radius)
    leak = 2 * x.length * x.upper_transmissivity / (log_ratio * x.radius**2 * x.conductivity)
    resistance = log_ratio * (1 + leak + x.upper_transmissivity / x.lower_transmissivity)
    return x, (2 * np.pi * x.upper_transmissivity * (x.upper_head - x.lower_head) / resistance).to_numpy()


def wing_weight(rows: int = 2000, *, seed: int = 0) -> Regression:
    """Weight of a light aircraft's wing in pounds, without noise (Forrester et al., 2008)."""
    x = _uniform(WING, rows, seed)
    sweep = np.deg2rad(x.sweep)
    size = 0.036 * x.area**0.758 * x.fuel**0.0035 * (x.aspect / np.cos(sweep) ** 2) ** 0.6
    shape = x.pressure**0.006 * x.taper**0.04 * (100 * x.thickness / np.cos(sweep)) ** -0.3
    return x, (size * shape * (x.load * x.gross) ** 0.49 + x.area * x.paint).to_numpy()


def heteroscedastic(rows: int = 1500, *, seed: int = 0) -> Regression:
    """A smooth function of five features whose noise grows 20-fold along the second one."""
    random = RandomState(seed)
    x = random.uniform(-1, 1, size=(rows, 5))
    std = 0.05 * 20 ** ((x[:, 1] + 1) / 2)
    return _frame(x), _smooth(x) + std * random.standard_normal(rows)


def heavy_tails(rows: int = 1500, *, seed: int = 0) -> Regression:
    """The same function with noise of Student's t, three degrees of freedom: its fourth moment is infinite."""
    random = RandomState(seed)
    x = random.uniform(-1, 1, size=(rows, 5))
    return _frame(x), _smooth(x) + 0.3 * random.standard_t(3, rows)


def steps(rows: int = 1500, *, seed: int = 0) -> Regression:
    """A piecewise constant function of three features among six, with little noise."""
    random = RandomState(seed)
    x = random.uniform(-1, 1, size=(rows, 6))
    plateaus = 2.0 * (x[:, 0] > 0.1) - 3.0 * ((x[:, 0] > -0.4) & (x[:, 1] > 0.3)) + np.floor(2 * x[:, 2])
    return _frame(x), plateaus + 0.1 * random.standard_normal(rows)


def rents(rows: int = 2000, *, seed: int = 0) -> Regression:
    """Monthly rents: size, age and floor, with 25 districts (the last ones rare), kinds of heating and condition."""
    random = RandomState(seed)
    district, heating, condition = (
        random.zipf(1.8, rows) % 25,
        random.randint(4, size=rows),
        random.randint(3, size=rows),
    )
    size, age = random.lognormal(4.1, 0.35, rows), random.uniform(0, 120, rows)
    floor = random.poisson(2.0, rows).astype(float)
    base = random.uniform(7, 19, size=25)[district]
    discount = np.where(condition == 0, 0.004, 0.001) * age  # age counts where nothing was renovated
    rent = size**0.85 * base * (1.1 + 0.08 * heating - discount + 0.02 * np.minimum(floor, 4))
    columns = {"size": size, "age": age, "floor": floor}
    columns |= {"district": _categories("d", district), "heating": _categories("h", heating)}
    frame = pd.DataFrame(columns | {"condition": _categories("c", condition)})
    return frame, rent * np.exp(0.08 * random.standard_normal(rows))


def census(rows: int = 3000, *, seed: int = 0) -> Classification:
    """Whether a made-up person earns much: numbers and categories, rare ones among them, and missing cells."""
    random = RandomState(seed)
    age, hours = random.uniform(17, 80, rows), np.clip(random.normal(40, 11, rows), 5, 90)
    schooling = np.clip(random.normal(10, 3, rows).round(), 1, 18)
    gains = np.where(random.uniform(size=rows) < 0.1, random.lognormal(8, 1, rows), 0.0)
    occupation, region, status = (
        random.randint(14, size=rows),
        random.zipf(1.8, rows) % 40,
        random.randint(5, size=rows),
    )
    logit = 0.35 * (schooling - 10) + 0.04 * (hours - 40) - 0.0025 * (age - 50) ** 2 + 0.0002 * gains
    logit += random.normal(0, 0.8, 14)[occupation] + random.normal(0, 0.8, 40)[region]
    logit += np.where(status == 0, 1.2, -0.6) * (occupation < 7)
    earns = random.uniform(size=rows) < 1 / (1 + np.exp(-logit))
    numbers = {"age": age, "hours": hours, "schooling": schooling, "gains": gains}
    parts = {"occupation": ("o", occupation), "region": ("r", region), "status": ("s", status)}
    frame = pd.DataFrame(numbers | {name: _categories(*values) for name, values in parts.items()})
    for name, share in (("hours", 0.05), ("schooling", 0.1), ("occupation", 0.08)):
        frame.loc[random.uniform(size=rows) < share, name] = np.nan
    return frame, earns.astype(np.int64)


def overlapping_classes(rows: int = 2000, *, seed: int = 0) -> Classification:
    """Four classes of two clusters each: eight informative features among twenty, 5 % of the labels at random."""
    from sklearn.datasets import make_classification

    inputs, labels = make_classification(
        rows, 20, n_informative=8, n_redundant=4, n_classes=4, flip_y=0.05, class_sep=1.2, random_state=seed
    )
    return _frame(inputs), labels.astype(np.int64)


def moons(rows: int = 1000, *, irrelevant: int = 10, seed: int = 0) -> Classification:
    """Two interleaved half circles with noise, and features that have no influence."""
    from sklearn.datasets import make_moons

    inputs, labels = make_moons(rows, noise=0.25, random_state=seed)
    others = RandomState(seed + 1).standard_normal((rows, irrelevant))
    return _frame(np.hstack([inputs, others])), labels.astype(np.int64)


def _smooth(x: Float64[np.ndarray, "N 5"]) -> Float64[np.ndarray, "N"]:
    return 2 * np.sin(np.pi * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] ** 2


def _uniform(ranges: Ranges, rows: int, seed: int) -> pd.DataFrame:
    random = RandomState(seed)
    return pd.DataFrame({name: random.uniform(low, high, rows) for name, (low, high) in ranges.items()})


def _frame(inputs: Float64[np.ndarray, "N D"]) -> pd.DataFrame:
    return pd.DataFrame(inputs, columns=[f"x{column}" for column in range(inputs.shape[1])])


def _categories(prefix: str, codes: Int64[np.ndarray, "N"]) -> pd.Categorical:
    return pd.Categorical([f"{prefix}{code:02d}" for code in codes])
