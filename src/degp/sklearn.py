"""The estimators of `degp.tabular`, where users of scikit-learn look for them."""

from degp.tabular.estimators import DEGPClassifier, DEGPRegressor, Uncertainty

__all__ = ["DEGPClassifier", "DEGPRegressor", "Uncertainty"]
