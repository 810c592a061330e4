"""⑨ Reports: results with their provenance, figures, and a page that assesses the error bars of a model."""

from degp.report.evaluation import evaluate_classification, evaluate_regression
from degp.report.page import render_page
from degp.report.results import environment, load_results, save_results

__all__ = [
    "environment",
    "evaluate_classification",
    "evaluate_regression",
    "load_results",
    "render_page",
    "save_results",
]
