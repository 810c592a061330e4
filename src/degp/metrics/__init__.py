"""Metrics of predictions and their uncertainties: tensors in, number out.

Regression takes a Gaussian's `mean` and `variance`, classification takes `probabilities`, detection and selective
prediction take one score or `uncertainty` per point. Everything is computed in float64 on the device of the tensors
(on the CPU for MPS, which has no float64) and without gradients. A metric returns a `float`, a tensor if there is one
value per point (`pit`, `entropy`), or a small record of tensors for a curve.
"""

from degp.metrics.classification import (
    ReliabilityCurve,
    accuracy,
    adaptive_ece,
    brier,
    classwise_ece,
    ece,
    entropy,
    nll,
    reliability_curve,
)
from degp.metrics.detection import (
    ErrorUncertaintyCurve,
    RiskCoverageCurve,
    aupr,
    aurc,
    auroc,
    error_at_coverage,
    error_versus_uncertainty,
    fpr_at_recall,
    risk_coverage_curve,
)
from degp.metrics.regression import (
    CalibrationCurve,
    calibration_curve,
    calibration_error,
    coverage,
    crps,
    gaussian_nll,
    interval_score,
    interval_width,
    log_normal_crps,
    mae,
    miscalibration_area,
    pit,
    rmse,
)

__all__ = [
    "CalibrationCurve",
    "ErrorUncertaintyCurve",
    "ReliabilityCurve",
    "RiskCoverageCurve",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "calibration_curve",
    "calibration_error",
    "classwise_ece",
    "coverage",
    "crps",
    "ece",
    "entropy",
    "error_at_coverage",
    "error_versus_uncertainty",
    "fpr_at_recall",
    "gaussian_nll",
    "interval_score",
    "interval_width",
    "log_normal_crps",
    "mae",
    "miscalibration_area",
    "nll",
    "pit",
    "reliability_curve",
    "risk_coverage_curve",
    "rmse",
]
