"""The public names of degp, listed once, so that a change is a decision."""

import types
from pathlib import Path

import degp
from degp import bandits, botorch
from degp.data import corruptions

MODULES = {"data", "distributed", "metrics", "nets", "objectives", "priors"}
NAMES = {
    *{"Ensemble", "fit", "predict", "predict_mixture", "posterior"},
    *{"Batch", "Loss", "History", "CheckpointError", "Checkpoints", "NonFiniteLossError"},
    *{"Gaussian", "HeteroscedasticGaussian", "Categorical", "Bernoulli"},
    *{"LowRankGaussian", "KroneckerGaussian", "Coefficients", "kl_divergence", "NumericalWarning"},
    *{"AverageEigenvalue", "PointwiseAverage"},
    *{"UniformBox", "BatchRegion", "no_points"},
    *{"ClassPredictive", "RegressionPredictive"},
}
DATA_NAMES = {
    *{"as_batch", "check_inputs", "sine", "hold_out_rows", "kfold", "subset", "Standardiser"},
    *{"DataSet", "DataSetError", "data_set", "describe_all", "locate"},
    *{"UCI_NAMES", "uci", "mushroom", "covertype"},
    *{"fashion_mnist", "mnist", "kmnist", "cifar10", "cifar100", "cifar100_part", "svhn", "cifar10_c", "cifar100_c"},
    *{"CropAndFlip", "Normalise", "CIFAR10_SCALE", "CIFAR100_SCALE", "FASHION_MNIST_SCALE"},
}
CORRUPTION_NAMES = {"CORRUPTIONS", "corrupt", "frost_overlays"}
BANDIT_NAMES = {
    *{"Agent", "EnsembleAgent", "LinearAgent", "UniformAgent", "Recipe", "AgentError", "load_agent"},
    *{"Problem", "Environment", "Rounds", "TableBandit", "classification", "mushroom", "covertype"},
    *{"play", "Played", "PartialGaussian", "ProcessDraw", "EpsilonGreedy", "random_member"},
}
BOTORCH_NAMES = {"DEGPModel", "FunctionDraws", "Training"}


def names_of(package: types.ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


def test_public_names():
    assert names_of(degp) == NAMES
    assert vars(degp).keys() >= MODULES  # importing a submodule from anywhere makes it an attribute too


def test_public_names_of_the_data_room():
    assert names_of(degp.data) == DATA_NAMES
    assert names_of(corruptions) == CORRUPTION_NAMES


def test_public_names_of_the_bandits_room():
    assert names_of(bandits) == BANDIT_NAMES


def test_public_names_of_the_botorch_room():
    assert names_of(botorch) == BOTORCH_NAMES


def test_exports_are_written_as_exports():
    lines = Path(degp.__file__).read_text(encoding="utf-8").splitlines()
    exported = {tuple(line.split(" import ")[1].split(" as ")) for line in lines if line.startswith("from degp")}
    assert exported == {(name, name) for name in NAMES | MODULES}
