"""The paper's one-dimensional illustration: ensembles on eight points, compared with the exact posterior."""

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp import methods
from degp.data.toy import NOISE_VARIANCE, sine
from degp.ensemble import Ensemble
from degp.likelihoods import Gaussian
from degp.measurement import UniformBox, no_points
from degp.methods import Built, Kind, Method
from degp.nets import mlp, mlp_features
from degp.prediction import evaluate, predict
from degp.predictive import RegressionPredictive
from degp.priors import NNGP, ExactGP, MonteCarloNNGP, WeightPrior
from degp.report.figures import Band
from degp.training import fit

__all__ = ["SineResult", "SineRun", "distance_to_exact", "exact_band", "exact_posterior", "train"]

EPSILON = 1e-4  # λ and jitter: small, because the result is compared with an exact posterior
WEIGHTS = WeightPrior(weights=2.0, biases=1.0)
GRID = torch.linspace(-2.0, 2.0, 101)[:, None]  # where posteriors are compared
REGION = (-2.0, 2.0)


@dataclass(frozen=True)
class SineRun:
    """One method on one architecture.

    Attributes:
        method: DE, rDE or DE-GP.
        widths: of the hidden layers.
        measurement_points: per step of DE-GP, besides the data.
        members: M.
        steps: of full-batch stochastic gradient descent with momentum 0.9 and a cosine schedule.
        learning_rate: of the mean squared error; the loss is 1 / 2σ² times that.
    """

    method: Kind
    widths: tuple[int, ...]
    measurement_points: int = 8
    members: int = 50
    steps: int = 1000
    learning_rate: float = 1e-3


@dataclass(frozen=True)
class SineResult:
    """A trained ensemble, its method and the seconds it took."""

    run: SineRun
    ensemble: Ensemble
    method: Method
    seconds: float

    def predict(self, inputs: Float[Tensor, "N 1"]) -> RegressionPredictive:
        """The predictive distribution by the run's method."""
        predictive = predict(self.ensemble, inputs, self.method)
        assert isinstance(predictive, RegressionPredictive)
        return predictive

    def band(self, inputs: Float[Tensor, "N 1"]) -> Band:
        """For a figure: the function's mean and standard deviation, without the noise of the data."""
        predictive = self.predict(inputs)
        members = evaluate(self.ensemble, inputs).squeeze(-1)
        return Band(inputs[:, 0], predictive.mean[:, 0], predictive.epistemic[:, 0].sqrt(), members)


def train(run: SineRun, *, generator: torch.Generator, progress: bool | None = None) -> SineResult:
    """Trains one method from a draw of the prior over weights."""
    ensemble = Ensemble(lambda: WEIGHTS.initialise(_network(run.widths), generator=generator), run.members)
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=run.learning_rate * 2 * NOISE_VARIANCE, momentum=0.9)
    method = _method(run, ensemble)
    start = time.perf_counter()
    fit(
        ensemble,
        sine(),
        method,
        epochs=run.steps,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.steps),
        generator=generator,
        progress=progress,
    )
    return SineResult(run, ensemble, method, time.perf_counter() - start)


def exact_posterior(widths: tuple[int, ...]) -> ExactGP:
    """The gold standard: exact regression under the kernel of infinitely wide networks of this depth."""
    depth = len(widths)
    prior = NNGP(depth, weight_variances=2.0, bias_variances=[1.0] * depth + [_readout_bias_variance(widths)])
    data = sine()
    return ExactGP.fit(prior, data.inputs, data.targets, noise_variance=NOISE_VARIANCE)


def exact_band(widths: tuple[int, ...], inputs: Float[Tensor, "N 1"]) -> Band:
    """The gold standard for a figure."""
    exact = exact_posterior(widths)
    return Band(inputs[:, 0], exact.mean(inputs)[:, 0], exact.variance(inputs).sqrt())


def distance_to_exact(trained: SineResult) -> dict[str, float]:
    """How far the ensemble is from the exact posterior on [−2, 2]: its standard deviation and its mean."""
    own, exact = trained.band(GRID), exact_band(trained.run.widths, GRID)
    return {
        "mean_abs_log_std_ratio": (own.std.double() / exact.std).log().abs().mean().item(),
        "rms_mean_error": (own.mean.double() - exact.mean).square().mean().sqrt().item(),
    }


def _network(widths: tuple[int, ...]) -> torch.nn.Module:
    return mlp(1, widths, 1, output_bias=not widths)  # the read-out has a bias only where it is the only layer


def _readout_bias_variance(widths: tuple[int, ...]) -> float:
    return 0.0 if widths else 1.0


def _method(run: SineRun, ensemble: Ensemble) -> Method:
    likelihood = Gaussian(NOISE_VARIANCE)

    def functional() -> Built:
        prior = MonteCarloNNGP(
            mlp_features(1, run.widths),
            weight_prior=WEIGHTS,
            readout_weight_variance=2.0,
            readout_bias_variance=_readout_bias_variance(run.widths),
        )
        count = run.measurement_points
        measurement = UniformBox(*REGION, count) if count else no_points
        return methods.degp(likelihood, prior, measurement=measurement, epsilon=EPSILON)

    # a quarter of the prior's energy, as in the published figure: with all of it the members hardly fit the data
    return run.method.build(likelihood, ensemble, WEIGHTS, functional=functional, weight=0.25)
