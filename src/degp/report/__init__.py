"""⑨ Reports: results with their circumstances, figures, and a page that says whether error bars can be trusted."""

from degp.report.evaluation import evaluate_classification as evaluate_classification
from degp.report.evaluation import evaluate_regression as evaluate_regression
from degp.report.page import render_page as render_page
from degp.report.results import environment as environment
from degp.report.results import load_results as load_results
from degp.report.results import save_results as save_results
