"""An ensemble as a BoTorch model: a joint Gaussian posterior, conditioned on observations without training."""

from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import GPyTorchPosterior, Posterior
from jaxtyping import Float
from torch import Tensor, nn

from degp.decisions.botorch.batches import BatchedCoefficients, Joint
from degp.decisions.botorch.draws import FunctionDraws, register
from degp.decisions.botorch.fitting import FitConfig, FittedEnsemble, fit_ensemble
from degp.decisions.botorch.observations import Observations
from degp.ensemble import Ensemble
from degp.gaussian import LowRankGaussian
from degp.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from degp.methods import Method
from degp.posterior import moments
from degp.predictive import RegressionPredictive

__all__ = ["DEGPModel"]


class DEGPModel(Model, FantasizeMixin):
    """A deep ensemble as one Gaussian process, for all of BoTorch's acquisition functions.

    f(x) = m(x) + A(x)ᵀz + √λ(x)·e,   z ~ N(μ, P⁻¹),   e ~ N(0, 1)        theory/conditioning.md (1)–(3)

    m and A are the members' mean and deviations at x. λ(x) = ε tr k(x, x) / C depends on x alone, so predictions are
    independent of the rest of the batch, and e is white: independent for every row. Observations change μ and P, not
    the weights or the predicted noise, and cost M³ per batch entry.

    Args:
        ensemble: trained members, shared and not copied. They run in their own dtype and in the units of the
            transformed inputs and outcomes; `ensemble.double()` gives acquisition functions the precision they expect.
        method: that trained them, for its likelihood, `Gaussian` or `HeteroscedasticGaussian`, and its ε.
        num_outputs: C, targets per point.
        input_transform: from X to the members' inputs.
        outcome_transform: from observations to the members' targets, already fitted; undone in posteriors.

    Example:
        >>> model = DEGPModel.fit(X, Y, bounds=bounds)
        >>> acquisition = qLogExpectedImprovement(model, best_f=Y.max())
        >>> candidates, value = optimize_acqf(acquisition, bounds, q=4, num_restarts=8, raw_samples=128)
    """

    coefficient_mean: Tensor
    precision_root: Tensor

    def __init__(
        self,
        ensemble: Ensemble,
        method: Method,
        *,
        num_outputs: int = 1,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        super().__init__()
        _check_parts(ensemble, method)
        self.ensemble = ensemble
        self.method = method
        if input_transform is not None:  # BoTorch asks whether a model has the attribute
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        self._targets = num_outputs  # of the members
        self._outputs = list(range(num_outputs))  # the subset that this model predicts
        self._fitted: FittedEnsemble | None = None  # where `fit` made the ensemble
        self._set_coefficients(BatchedCoefficients.prior(len(ensemble), _first_weight(ensemble).device))
        self.eval()

    @classmethod
    def fit(
        cls,
        train_X: Float[Tensor, "N ..."],
        train_Y: Float[Tensor, "K ..."],
        *,
        bounds: Float[Tensor, "..."] | None = None,
        start: "DEGPModel | None" = None,
        config: FitConfig = FitConfig(),
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        generator: torch.Generator | None = None,
    ) -> "DEGPModel":
        """An ensemble trained on all observations so far, under a prior with MAP hyper-parameters.

        Args:
            train_X: points, (N, D).
            train_Y: outcomes, (N, C).
            bounds: lower and upper bounds of the search region, (2, D); by default of the data.
            start: the model of the previous round, whose hidden layer is kept, whatever its width.
            config: sizes and optimiser settings.
            input_transform: in place of scaling the bounds to the unit cube; it must map to the unit cube too.
            outcome_transform: in place of standardising each output.
            generator: for initialisation and measurement points; by default seeded from torch's global generator.
        """
        observed = Observations.transformed(train_X, train_Y, bounds, input_transform, outcome_transform)
        earlier = None if start is None else start._as_start(train_X.shape[1], train_Y.shape[1])
        fitted = fit_ensemble(observed.data, config, start=earlier, generator=generator or _seeded(train_X.device))
        model = cls(
            fitted.ensemble,
            fitted.method,
            num_outputs=train_Y.shape[1],
            input_transform=observed.input_transform,
            outcome_transform=observed.outcome_transform,
        )
        model._fitted = fitted
        return model

    @property
    def likelihood(self) -> Likelihood:
        """The method's; BoTorch's `fantasize` looks for it."""
        return self.method.likelihood

    @property
    def num_outputs(self) -> int:
        """C."""
        return len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Of the observations that the model was conditioned on, fantasies first; empty where there are none."""
        return self._coefficients.batch

    def posterior(
        self,
        X: Float[Tensor, "*rows D"],
        output_indices: Sequence[int] | None = None,
        observation_noise: bool | Float[Tensor, "..."] = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The joint Gaussian of f at the q points of each batch entry.

        Args:
            X: points (…, q, D), whose batch broadcasts with the model's own.
            output_indices: a subset of the outputs, as in `subset_output`.
            observation_noise: True for noisy observations of f; or their noise variance, (…, 1, C) or (…, q, C), in
                units of the transformed outcomes.
            posterior_transform: applied last.
        """
        if output_indices is not None:
            return self.subset_output(output_indices).posterior(X, None, observation_noise, posterior_transform)
        inputs = self._transformed(X)
        joint, noise = self._unconditioned(inputs)
        joint = joint.updated(self._coefficients)
        if observation_noise is not False:
            joint = joint.plus_noise(observation_noise if isinstance(observation_noise, Tensor) else noise)
        posterior = GPyTorchPosterior(joint.to_gpytorch())
        if hasattr(self, "outcome_transform"):
            posterior = self.outcome_transform.untransform_posterior(posterior, X=inputs)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(
        self,
        X: Float[Tensor, "*rows D"],
        Y: Float[Tensor, "*observed C"],
        noise: Float[Tensor, "..."] | None = None,
        **kwargs: Any,
    ) -> "DEGPModel":
        """The model after observations, by the rank-M update; the weights are shared.        theory/conditioning.md (2)

        Args:
            X: points, (…, q, D); its batch, that of Y and the model's broadcast.
            Y: outcomes, (…, q, C), in original units.
            noise: variance of Y, in units of the transformed outcomes; by default the likelihood's.
        """
        inputs = self._transformed(X)
        _check_observed(inputs, Y, self.num_outputs)
        targets = self.outcome_transform(Y, X=inputs)[0] if hasattr(self, "outcome_transform") else Y
        joint, own_noise = self._unconditioned(inputs)
        return self._with_coefficients(self._coefficients.after(joint, targets, own_noise if noise is None else noise))

    def subset_output(self, idcs: Sequence[int]) -> "DEGPModel":
        """The model of a subset of the outputs, with their correlations; the weights are shared."""
        chosen = _indices(idcs, self.num_outputs)
        model = self._with_coefficients(self._coefficients)
        model._outputs = [self._outputs[index] for index in chosen]
        if hasattr(self, "outcome_transform"):
            model.outcome_transform = self.outcome_transform.subset_output(chosen)
        return model

    def draw(
        self, sample_shape: torch.Size = torch.Size(), *, generator: torch.Generator | None = None
    ) -> FunctionDraws:
        """Functions drawn from the posterior, callable at any points: a batch of shape (*sample_shape, *batch)."""
        return FunctionDraws(self, self._coefficients.sample(sample_shape, generator=generator))

    def values_at(
        self, X: Float[Tensor, "*rows D"], coefficients: Float[Tensor, "*draws M"]
    ) -> Float[Tensor, "*joint n C"]:
        """m(x) + A(x)ᵀz in original units, for given z."""
        inputs = self._transformed(X)
        values = self._unconditioned(inputs)[0].at(coefficients)
        return self.outcome_transform.untransform(values, X=inputs)[0] if hasattr(self, "outcome_transform") else values

    def eval(self) -> "DEGPModel":
        """Evaluation mode, without BoTorch's transformation of training inputs: there are none."""
        return self.train(False)

    def train(self, mode: bool = True) -> "DEGPModel":
        """Training or evaluation mode; `posterior` always sets the latter."""
        nn.Module.train(self, mode)
        return self

    @property
    def _coefficients(self) -> BatchedCoefficients:
        return BatchedCoefficients(self.coefficient_mean.double(), self.precision_root.double())

    def _set_coefficients(self, coefficients: BatchedCoefficients) -> None:
        self.register_buffer("coefficient_mean", coefficients.mean)
        self.register_buffer("precision_root", coefficients.precision_root)

    def _transformed(self, X: Tensor) -> Tensor:
        if X.ndim < 2:
            raise ValueError(f"X must be points in rows, (…, q, D), but its shape is {tuple(X.shape)}; use X[None]")
        self.eval()
        return self.transform_inputs(X)

    def _unconditioned(self, inputs: Float[Tensor, "*batch q D"]) -> tuple[Joint, Float[Tensor, "*batch q C"]]:
        """f at the inputs before any observation, and the noise variance there."""
        points = inputs.reshape(-1, inputs.shape[-1])
        outputs = self.ensemble(points.to(_first_weight(self.ensemble).dtype)).to(inputs)
        mean, deviations = moments(outputs)
        average = deviations.square().sum(0).mean(1, keepdim=True)  # with its gradient, unlike `PointwiseAverage`
        q = LowRankGaussian(mean, deviations, (self.method.epsilon * average).expand_as(mean))
        predictive = self.likelihood.predictive(q)
        assert isinstance(predictive, RegressionPredictive)
        self._check_targets(predictive)
        joint = Joint.split(predictive.posterior, inputs.shape[:-2])
        noise = predictive.aleatoric.reshape(joint.mean.shape)
        return joint.select(self._outputs), noise[..., self._outputs]

    def _check_targets(self, predictive: RegressionPredictive) -> None:
        C = predictive.aleatoric.shape[1]
        if self._targets != C:
            raise ValueError(
                f"num_outputs must be the number of targets that the members predict, but it is {self._targets} and "
                f"they predict {C}; pass num_outputs={C}"
            )

    def _with_coefficients(self, coefficients: BatchedCoefficients) -> "DEGPModel":
        """The same members and transforms, shared, after other observations."""
        model = DEGPModel(
            self.ensemble,
            self.method,
            num_outputs=self._targets,
            input_transform=getattr(self, "input_transform", None),
            outcome_transform=getattr(self, "outcome_transform", None),
        )
        model._outputs, model._fitted = self._outputs, self._fitted
        model._set_coefficients(coefficients)
        return model

    def _as_start(self, num_features: int, num_outputs: int) -> FittedEnsemble:
        if self._fitted is None:
            raise ValueError(
                "start must be a model from DEGPModel.fit, but this one was made from an ensemble; omit start"
            )
        own = len(self._fitted.prior.length_scales), len(self._fitted.prior.constant)
        if own != (num_features, num_outputs):
            raise ValueError(
                f"start must have been fitted to the same number of features and outcomes, (D, C) = "
                f"{(num_features, num_outputs)}, but it was fitted to {own}; omit start"
            )
        return self._fitted


register(DEGPModel)


def _check_parts(ensemble: Ensemble, method: Method) -> None:
    if len(ensemble) < 2:
        raise ValueError(f"a covariance needs at least two members, but there is {len(ensemble)}")
    if not isinstance(method.likelihood, (Gaussian, HeteroscedasticGaussian)):
        raise TypeError(
            f"outcomes to optimise are real, so the method's likelihood must be Gaussian or HeteroscedasticGaussian, "
            f"but it is {type(method.likelihood).__name__}"
        )
    if isinstance(method.likelihood, Gaussian) and method.likelihood.has_units:
        raise ValueError(
            "members of a BoTorch model must predict in the units of its outcomes, but this likelihood has units of "
            "its own; train with Gaussian(variance) on standardised outcomes, and pass outcome_transform=Standardize(…)"
        )
    if not method.epsilon > 0:
        raise ValueError(
            f"a regular covariance needs a method with positive epsilon, but it is {method.epsilon}; use methods.degp"
        )


def _check_observed(X: Tensor, Y: Tensor, num_outputs: int) -> None:
    if Y.ndim < 2 or Y.shape[-2:] != (X.shape[-2], num_outputs):
        raise ValueError(
            f"Y must hold {num_outputs} outcome(s) for each of the {X.shape[-2]} points of X, "
            f"(…, {X.shape[-2]}, {num_outputs}), but its shape is {tuple(Y.shape)}"
        )


def _indices(chosen: Sequence[int], count: int) -> list[int]:
    if any(not -count <= index < count for index in chosen):
        raise ValueError(f"output indices must be from 0 to {count - 1}, but they are {list(chosen)}")
    return [range(count)[index] for index in chosen]


def _first_weight(ensemble: Ensemble) -> Tensor:
    return next(ensemble.parameters(), torch.empty(0, dtype=torch.float64))


def _seeded(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(torch.randint(2**63 - 1, ())))
