"""What an installed distribution must do; `tests/try_distribution` runs it without this repository."""

from importlib.metadata import version
from pathlib import Path

import numpy as np

import degp
from degp.sklearn import DEGPRegressor

assert "site-packages" in Path(degp.__file__).parts, f"degp comes from {degp.__file__}, not from what was installed"
assert version("degp") == degp.__version__
assert Path(degp.__file__).with_name("py.typed").exists(), "the type checkers of users need py.typed"

X = np.random.default_rng(0).uniform(-2, 2, (80, 2))
y = np.sin(2 * X[:, 0])
model = DEGPRegressor(preset="fast", steps=200, random_state=0).fit(X[:60], y[:60])
low, high = model.predict_interval(X[60:], level=0.95).T
assert np.mean((low <= y[60:]) & (y[60:] <= high)) > 0.7
model.save("model")
assert np.array_equal(DEGPRegressor.load("model").predict(X), model.predict(X))
print(f"degp {degp.__version__}: fits, predicts, saves and loads")
