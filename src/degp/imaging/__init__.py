"""Ensembles of image networks from a recipe to a table of scores: what experiments on images share."""

from degp.imaging.assessment import Assessment as Assessment
from degp.imaging.assessment import assess as assess
from degp.imaging.assessment import by_size as by_size
from degp.imaging.clock import Deadline as Deadline
from degp.imaging.clock import OutOfTime as OutOfTime
from degp.imaging.detection import error_curve as error_curve
from degp.imaging.detection import ood_scores as ood_scores
from degp.imaging.keeping import is_kept as is_kept
from degp.imaging.keeping import keep as keep
from degp.imaging.keeping import load_kept as load_kept
from degp.imaging.reading import Pooled as Pooled
from degp.imaging.reading import Reading as Reading
from degp.imaging.reading import class_scores as class_scores
from degp.imaging.recipe import Cosine as Cosine
from degp.imaging.recipe import Milestones as Milestones
from degp.imaging.recipe import PriorNetworks as PriorNetworks
from degp.imaging.recipe import Recipe as Recipe
from degp.imaging.recipe import Trunk as Trunk
from degp.imaging.running import CompiledForTraining as CompiledForTraining
from degp.imaging.sets import ImageSets as ImageSets
from degp.imaging.sets import hold_out as hold_out
from degp.imaging.shift import corruption_table as corruption_table
from degp.imaging.start import start as start
from degp.imaging.training import Trained as Trained
from degp.imaging.training import train as train
from degp.imaging.training import weight_norm as weight_norm
