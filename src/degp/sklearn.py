"""Estimators for scikit-learn: tables in, calibrated error bars out."""

from degp.tabular.classifier import DEGPClassifier
from degp.tabular.estimator import Uncertainty
from degp.tabular.regressor import DEGPRegressor

__all__ = ["DEGPClassifier", "DEGPRegressor", "Uncertainty"]
