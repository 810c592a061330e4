"""⑨ Reports: results with their circumstances, tables and figures."""

from degp.report.results import environment as environment
from degp.report.results import load_results as load_results
from degp.report.results import save_results as save_results
