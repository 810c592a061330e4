"""The public names of degp, listed once, so that a change is a decision."""

import types
from pathlib import Path

import degp

MODULES = {"data", "metrics", "nets", "objectives", "priors"}
NAMES = {
    *{"Ensemble", "fit", "predict", "predict_mixture", "posterior"},
    *{"Batch", "Loss", "History", "CheckpointError", "Checkpoints", "NonFiniteLossError"},
    *{"Gaussian", "HeteroscedasticGaussian", "Categorical", "Bernoulli"},
    *{"LowRankGaussian", "KroneckerGaussian", "Coefficients", "kl_divergence", "NumericalWarning"},
    *{"AverageEigenvalue", "PointwiseAverage"},
    *{"UniformBox", "BatchRegion", "no_points"},
    *{"ClassPredictive", "RegressionPredictive"},
}


def test_public_names():
    public = {name for name in vars(degp) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(degp, name), types.ModuleType)}
    assert public - modules == NAMES
    assert modules >= MODULES  # importing a submodule from anywhere makes it an attribute too


def test_exports_are_written_as_exports():
    lines = Path(degp.__file__).read_text(encoding="utf-8").splitlines()
    exported = {tuple(line.split(" import ")[1].split(" as ")) for line in lines if line.startswith("from degp")}
    assert exported == {(name, name) for name in NAMES | MODULES}
