"""Choosing on validation data: α, the epoch and the calibration."""

from degp.selection.calibration import calibrate as calibrate
from degp.selection.calibration import calibrate_with_care as calibrate_with_care
from degp.selection.calibration import predictive_of as predictive_of
from degp.selection.contest import Contest as Contest
from degp.selection.race import Budget as Budget
from degp.selection.race import Selected as Selected
from degp.selection.race import discard as discard
from degp.selection.race import epochs_done as epochs_done
from degp.selection.race import select as select
from degp.selection.rules import contenders as contenders
from degp.selection.rules import first_within_one_error as first_within_one_error
from degp.selection.rules import largest_within_one_error as largest_within_one_error
