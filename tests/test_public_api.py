"""The public names of degp, listed once, so that a change is a decision."""

import ast
import importlib
from collections import Counter
from pathlib import Path

import pytest

import degp

PUBLIC = {
    "degp": {
        *{"Ensemble", "Unpacked", "lora", "rank_one", "attach", "cache_features"},
        *{"fit", "predict", "batch_loss", "Plan", "EarlyStopping", "EachStep"},
        *{"Batch", "Loss", "History", "CheckpointError", "Checkpoints", "NonFiniteLossError"},
        *{"Gaussian", "HeteroscedasticGaussian", "Categorical", "Bernoulli"},
        *{"LowRankGaussian", "KroneckerGaussian", "Coefficients", "kl_divergence", "NumericalWarning"},
        *{"AverageEigenvalue", "PointwiseAverage", "ensemble_posterior"},
        *{"UniformBox", "BatchRegion", "Combined", "Unlabelled", "MeasurementAlone", "BatchPart", "no_points"},
        *{"BinaryPredictive", "ClassPredictive", "RegressionPredictive", "TransformedPredictive"},
        *{"data", "distributed", "methods", "metrics", "nets", "priors"},
    },
    "degp.methods": {
        *{"Method", "DEGP", "Memberwise", "Kind", "Built", "with_likelihood", "require_method", "Prepared"},
        *{"de", "rde", "rms", "degp", "batch_loss"},
    },
    "degp.data": {
        "as_batch",
        "check_inputs",
        "check_weights",
        "sine",
        "hold_out_rows",
        "kfold",
        "subset",
        "Standardiser",
    },
    "degp.ensemble": {"Ensemble", "HasParts", "Part", "Unpacked", "lora", "rank_one"},
    "degp.nets": {
        *{"Erf", "mlp", "mlp_features", "lenet", "lenet_features"},
        *{"resnet", "resnet_features", "lite_resnet_features"},
    },
    "degp.priors": {
        *{"Prior", "Kernel", "KernelPrior", "as_prior", "NNGP", "relu", "erf", "Centred", "ExactGP"},
        *{"MonteCarloNNGP", "MonteCarloBank", "WeightPrior", "WeightPenalty", "draw_anchors", "no_penalty"},
    },
    "degp.training": {
        *{"fit", "Plan", "EarlyStopping", "EachStep", "Ending", "History", "TrainState", "NonFiniteLossError"},
        *{"Stepping", "Eager", "Captured", "adam", "Checkpoints", "CheckpointError", "epoch_of"},
    },
    "degp.metrics": {
        *{
            "rmse",
            "mae",
            "gaussian_nll",
            "crps",
            "log_normal_crps",
            "pit",
            "coverage",
            "interval_score",
            "interval_width",
        },
        *{"calibration_curve", "CalibrationCurve", "calibration_error", "miscalibration_area"},
        *{"accuracy", "nll", "brier", "entropy", "ece", "adaptive_ece", "classwise_ece"},
        *{"reliability_curve", "ReliabilityCurve"},
        *{"auroc", "aupr", "fpr_at_recall", "aurc", "error_at_coverage", "risk_coverage_curve", "RiskCoverageCurve"},
        *{"error_versus_uncertainty", "ErrorUncertaintyCurve"},
    },
    "degp.runtime.distributed": {
        *{"start", "current", "launched", "loopback", "Mesh", "ALONE", "Group"},
        *{"StepSizes", "RanksDiffer", "require_same"},
    },
    "degp.runtime.execution": {
        *{"Execution", "Vmap", "Loop", "Grouped", "Recomputed", "Compiled", "CompiledForTraining", "by_name"},
        *{"Choice", "strategy_for", "prior_strategy", "candidates_for", "fastest", "workable", "kept_randomness"},
        *{"compiled_forward", "grouped_program", "is_groupable", "NotGroupable", "Tensors", "one_tensor"},
    },
    "degp.report": {
        *{"evaluate_regression", "evaluate_classification", "render_page"},
        *{"save_results", "load_results", "environment"},
    },
    "degp.tabular": {
        *{"read_table", "stream_table", "Preprocessing", "Target", "infer_task", "TableError", "TableWarning"},
    },
    "degp.sklearn": {"DEGPRegressor", "DEGPClassifier", "Uncertainty"},
    "degp.decisions.bandits": {
        *{"Agent", "EnsembleAgent", "LinearAgent", "UniformAgent", "AgentConfig", "AgentError", "load_agent"},
        *{"Problem", "PartialGaussian", "ThompsonSampling", "EpsilonGreedy"},
    },
    "degp.decisions.botorch": {"DEGPModel", "FitConfig", "FunctionDraws"},
    "degp.vision": {
        *{"Recipe", "Backbone", "PriorNetworks", "Cosine", "Milestones", "WEIGHT_PRIOR"},
        *{"train", "initialise", "Trained", "weight_norm", "save_members", "load_members", "has_members"},
        *{"context_images", "PatchShuffle", "SmoothNoise", "ChannelMix"},
        *{"fit_temperatures", "TemperatureScaled", "PooledTemperature", "TwoTemperatures", "Calibrated"},
        *{"class_scores", "ood_scores", "error_curve"},
    },
}
SOURCES = sorted(Path(degp.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names(package):
    module = importlib.import_module(package)
    assert set(module.__all__) == PUBLIC[package]
    assert len(module.__all__) == len(PUBLIC[package])
    assert all(hasattr(module, name) for name in module.__all__)


LIBRARY = [path for path in SOURCES if path.name != "__main__.py" and path.parent.name != "cli"]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.relative_to(SOURCES[0].parent).as_posix())
def test_modules_say_what_they_export(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    if not defined | imported:
        return  # a package that only holds modules
    (exported,) = (n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__")
    assert set(ast.literal_eval(exported)) <= defined | imported | assigned


def test_versions_agree():
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {degp.__version__}\n" in citation


def test_no_two_classes_share_a_name():
    classes = Counter(
        node.name
        for path in SOURCES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert not {name for name, count in classes.items() if count > 1}
