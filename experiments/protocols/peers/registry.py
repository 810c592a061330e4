"""All methods by name: how each is fitted, what it needs installed, and its colour in figures."""

from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from degp.report.figures import COLOURS
from experiments.protocols.peers import boosting, classical, own, realmlp
from experiments.protocols.peers.contract import Fit
from experiments.protocols.peers.laplace_mlp import laplace
from experiments.protocols.peers.tabm_ensemble import tabm

__all__ = ["METHODS", "OWN", "Method", "missing_modules", "package_version"]


@dataclass(frozen=True)
class Method:
    """How a method is fitted; None where it is not meant for such targets.

    Attributes:
        package: as on PyPI.
        modules: that must be importable; they are imported before the time is taken.
    """

    regression: Fit | None
    classification: Fit | None
    package: str
    modules: tuple[str, ...]
    colour: str

    def fit_for(self, num_classes: int | None) -> Fit | None:
        """For real targets (None) or for classes."""
        return self.regression if num_classes is None else self.classification


def missing_modules(method: Method) -> list[str]:
    """Modules that are not installed."""
    return [module for module in method.modules if find_spec(module) is None]


def package_version(method: Method) -> str:
    """Such as "ngboost 0.5.11"; without the number for a plain folder on the path."""
    try:
        return f"{method.package} {version(method.package)}"
    except PackageNotFoundError:
        return method.package


def _own(name: str, label: str) -> Method:
    fits = (partial(fit, method=name) for fit in (own.own, own.own_classes))
    return Method(*fits, "degp", ("degp.sklearn",), COLOURS[label])


_SKLEARN = "scikit-learn"
OWN = ("DE-GP", "DE", "rDE", "RMS")
METHODS = {
    **{label: _own(name, label) for label, name in zip(OWN, ("degp", "de", "rde", "rms"), strict=True)},
    "GP": Method(classical.gaussian_process, None, _SKLEARN, ("sklearn.gaussian_process",), "#444444"),
    "logistic": Method(None, classical.logistic_regression, _SKLEARN, ("sklearn.linear_model",), "#777777"),
    "HGB": Method(classical.hist_boosting, classical.hist_boosting_classes, _SKLEARN, ("sklearn.ensemble",), "#e08214"),
    "LightGBM": Method(boosting.lightgbm, boosting.lightgbm_classes, "lightgbm", ("lightgbm",), "#8c9a1b"),
    "CatBoost": Method(boosting.catboost, boosting.catboost_classes, "catboost", ("catboost",), "#d1a400"),
    "NGBoost": Method(boosting.ngboost, boosting.ngboost_classes, "ngboost", ("ngboost",), "#c0392b"),
    "Laplace": Method(laplace, laplace, "laplace-torch", ("laplace",), "#16a3b8"),
    "TabM": Method(tabm, tabm, "tabm", ("tabm", "rtdl_num_embeddings"), "#d45087"),
    "RealMLP": Method(realmlp.realmlp, realmlp.realmlp_classes, "pytabkit", ("pytabkit",), "#5b6ee1"),
}
