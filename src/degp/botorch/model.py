"""An ensemble as a BoTorch model: a Gaussian posterior at any points, updated by observations without training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import GPyTorchPosterior, Posterior
from jaxtyping import Float
from torch import Tensor, nn

from degp.botorch.batches import BatchedCoefficients, Joint
from degp.botorch.draws import FunctionDraws, register
from degp.botorch.observations import Observations
from degp.botorch.stationary import SquaredExponential
from degp.botorch.training import Trained, Training, train
from degp.ensemble import Ensemble
from degp.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from degp.posterior import posterior as read_as_gaussian
from degp.uncertainty import RegressionPredictive


class DEGPModel(Model, FantasizeMixin):
    """A deep ensemble read as one Gaussian process, for all of BoTorch's acquisition functions.

    f(x) = m(x) + A(x)ᵀz + √λ(x)·e,   z ~ N(μ, P⁻¹),   e ~ N(0, 1)        theory/conditioning.md (1)–(3)

    m and A are the members' mean and deviations at x. λ(x) = ε tr k(x, x) / C is x's own, so that what is said of a
    point does not depend on its company, and e is white: new for every row that is asked for. Observations change μ
    and P, and leave the weights and what the members say of the noise alone, at the cost of M³ a batch entry.

    Args:
        ensemble: trained members, shared and not copied. They work in their own type and in the units of the
            transformed inputs and outcomes; `ensemble.double()` gives acquisition functions the precision they expect.
        likelihood: `Gaussian` or `HeteroscedasticGaussian`.
        num_outputs: C, targets a point.
        epsilon: ε.
        input_transform: from X to what the members see.
        outcome_transform: from observations to what the members were trained on, already fitted; posteriors go back.

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
        likelihood: Likelihood,
        *,
        num_outputs: int = 1,
        epsilon: float = 0.05,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        super().__init__()
        _require_parts(ensemble, likelihood, epsilon)
        self.ensemble = ensemble
        self.likelihood = likelihood
        self.epsilon = epsilon
        if input_transform is not None:  # BoTorch asks whether a model has the attribute
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        self._targets = num_outputs  # that the members know
        self._outputs = list(range(num_outputs))  # those of them that this model speaks of
        self._prior: SquaredExponential | None = None  # known where `fit` made the ensemble
        self._know(BatchedCoefficients.unknown(len(ensemble), _first_weight(ensemble).device))
        self.eval()

    @classmethod
    def fit(
        cls,
        train_X: Float[Tensor, "N ..."],
        train_Y: Float[Tensor, "K ..."],
        *,
        bounds: Float[Tensor, "..."] | None = None,
        start: "DEGPModel | None" = None,
        training: Training = Training(),
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        generator: torch.Generator | None = None,
    ) -> "DEGPModel":
        """An ensemble trained on all observations so far, under a prior whose scales they make most probable.

        Args:
            train_X: where, (N, D).
            train_Y: what was seen there, (N, C).
            bounds: lower and upper ends of the search region, (2, D); by default of the data.
            start: the model of the round before, whose hidden layer is kept, of whatever width it is.
            training: sizes and steps.
            input_transform: instead of scaling the bounds to the unit cube; it must lead there too.
            outcome_transform: instead of standardising each output.
            generator: for the members' start and the extra points; by default one seeded by torch's own.
        """
        seen = Observations.transformed(train_X, train_Y, bounds, input_transform, outcome_transform)
        earlier = None if start is None else start._as_start(train_X.shape[1], train_Y.shape[1])
        trained = train(seen.data, training, start=earlier, generator=generator or _seeded(train_X.device))
        model = cls(
            trained.ensemble,
            Gaussian(trained.prior.noise_variance),
            num_outputs=train_Y.shape[1],
            epsilon=training.epsilon,
            input_transform=seen.input_transform,
            outcome_transform=seen.outcome_transform,
        )
        model._prior = trained.prior
        return model

    @property
    def num_outputs(self) -> int:
        """C."""
        return len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Of the observations that the model was conditioned on, fantasies in front; empty where there are none."""
        return self._known.batch

    def posterior(
        self,
        X: Float[Tensor, "*rows D"],
        output_indices: Sequence[int] | None = None,
        observation_noise: bool | Float[Tensor, "..."] = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The joint Gaussian of f at the q points of each batch entry.

        Args:
            X: points (…, q, D), whose batch is joined with the model's own by broadcasting.
            output_indices: some of the outputs, as by `subset_output`.
            observation_noise: True for noisy observations of f; or their noise variance, (…, 1, C) or (…, q, C), in the
                units of the transformed outcomes.
            posterior_transform: done last.
        """
        if output_indices is not None:
            return self.subset_output(output_indices).posterior(X, None, observation_noise, posterior_transform)
        inputs = self._transformed(X)
        joint, noise = self._before(inputs)
        joint = joint.updated(self._known)
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
            X: where, (…, q, D); its batch, that of Y and the model's are joined by broadcasting.
            Y: what was seen there, (…, q, C), in original units.
            noise: variance of Y, in the units of the transformed outcomes; by default the likelihood's.
        """
        inputs = self._transformed(X)
        _require_observed(inputs, Y, self.num_outputs)
        targets = self.outcome_transform(Y, X=inputs)[0] if hasattr(self, "outcome_transform") else Y
        joint, own_noise = self._before(inputs)
        return self._twin(self._known.after(joint, targets, own_noise if noise is None else noise))

    def subset_output(self, idcs: Sequence[int]) -> "DEGPModel":
        """The model of some of the outputs, their correlations kept; the weights are shared."""
        chosen = _indices(idcs, self.num_outputs)
        twin = self._twin(self._known)
        twin._outputs = [self._outputs[index] for index in chosen]
        if hasattr(self, "outcome_transform"):
            twin.outcome_transform = self.outcome_transform.subset_output(chosen)
        return twin

    def draw(
        self, sample_shape: torch.Size = torch.Size(), *, generator: torch.Generator | None = None
    ) -> FunctionDraws:
        """Functions drawn from the posterior, to be called at any points: a batch of shape (*sample_shape, *batch)."""
        return FunctionDraws(self, self._known.sample(sample_shape, generator=generator))

    def values_at(
        self, X: Float[Tensor, "*rows D"], coefficients: Float[Tensor, "*draws M"]
    ) -> Float[Tensor, "*joint n C"]:
        """m(x) + A(x)ᵀz in original units, for given z."""
        inputs = self._transformed(X)
        values = self._before(inputs)[0].at(coefficients)
        return self.outcome_transform.untransform(values, X=inputs)[0] if hasattr(self, "outcome_transform") else values

    def eval(self) -> "DEGPModel":
        """Evaluation mode. There are no training inputs to transform, as BoTorch would do."""
        return self.train(False)

    def train(self, mode: bool = True) -> "DEGPModel":
        """Training or evaluation mode; `posterior` always goes back to the latter."""
        nn.Module.train(self, mode)
        return self

    @property
    def _known(self) -> BatchedCoefficients:
        return BatchedCoefficients(self.coefficient_mean.double(), self.precision_root.double())

    def _know(self, known: BatchedCoefficients) -> None:
        self.register_buffer("coefficient_mean", known.mean)
        self.register_buffer("precision_root", known.precision_root)

    def _transformed(self, X: Tensor) -> Tensor:
        if X.ndim < 2:
            raise ValueError(f"X must be points in rows, (…, q, D), but its shape is {tuple(X.shape)}; use X[None]")
        self.eval()
        return self.transform_inputs(X)

    def _before(self, inputs: Float[Tensor, "*batch q D"]) -> tuple[Joint, Float[Tensor, "*batch q C"]]:
        """f at the inputs before any observation, and the noise variance there."""
        points = inputs.reshape(-1, inputs.shape[-1])
        outputs = self.ensemble(points.to(_first_weight(self.ensemble).dtype)).to(inputs)
        predictive = self.likelihood.predictive(read_as_gaussian(outputs, diagonal=PointwiseShare(self.epsilon)))
        assert isinstance(predictive, RegressionPredictive)
        self._require_targets_of(predictive)
        joint = Joint.split(predictive.posterior, inputs.shape[:-2])
        noise = predictive.aleatoric.reshape(joint.mean.shape)
        return joint.choose(self._outputs), noise[..., self._outputs]

    def _require_targets_of(self, predictive: RegressionPredictive) -> None:
        C = predictive.aleatoric.shape[1]
        if self._targets != C:
            raise ValueError(
                f"num_outputs must be the number of targets that the members predict, but it is {self._targets} and "
                f"they predict {C}; pass num_outputs={C}"
            )

    def _twin(self, known: BatchedCoefficients) -> "DEGPModel":
        """The same members and transforms, shared, after other observations."""
        twin = DEGPModel(
            self.ensemble,
            self.likelihood,
            num_outputs=self._targets,
            epsilon=self.epsilon,
            input_transform=getattr(self, "input_transform", None),
            outcome_transform=getattr(self, "outcome_transform", None),
        )
        twin._outputs, twin._prior = self._outputs, self._prior
        twin._know(known)
        return twin

    def _as_start(self, num_features: int, num_outputs: int) -> Trained:
        if self._prior is None:
            raise ValueError("start must be a model from DEGPModel.fit, but this one was made from an ensemble")
        known = len(self._prior.lengths), len(self._prior.constant)
        if known != (num_features, num_outputs):
            raise ValueError(
                f"start must have been fitted to the same number of features and outcomes, (D, C) = "
                f"{(num_features, num_outputs)}, but it was fitted to {known}; leave start out"
            )
        return Trained(self.ensemble, self._prior)


register(DEGPModel)


@dataclass(frozen=True)
class PointwiseShare:
    """λ(x) = ε tr k(x, x) / C as in `PointwiseAverage`, with its gradient: acquisition functions are climbed in x."""

    epsilon: float

    def __call__(self, deviations: Float[Tensor, "M N C"]) -> Float[Tensor, "N C"]:
        variance = deviations.square().sum(0)
        return self.epsilon * variance.mean(1, keepdim=True).expand_as(variance)


def _require_parts(ensemble: Ensemble, likelihood: Likelihood, epsilon: float) -> None:
    if len(ensemble) < 2:
        raise ValueError(f"a covariance needs at least two members, but there is {len(ensemble)}")
    if not isinstance(likelihood, (Gaussian, HeteroscedasticGaussian)):
        raise TypeError(
            f"outcomes to optimise are real, so the likelihood must be Gaussian or HeteroscedasticGaussian, but it is "
            f"{type(likelihood).__name__}"
        )
    if not epsilon > 0:
        raise ValueError(f"epsilon is a share of the variance and must be positive, but it is {epsilon}")


def _require_observed(X: Tensor, Y: Tensor, num_outputs: int) -> None:
    if Y.ndim < 2 or Y.shape[-2:] != (X.shape[-2], num_outputs):
        raise ValueError(
            f"Y must hold {num_outputs} outcome(s) for each of the {X.shape[-2]} points of X, "
            f"(…, {X.shape[-2]}, {num_outputs}), but its shape is {tuple(Y.shape)}"
        )


def _indices(chosen: Sequence[int], count: int) -> list[int]:
    if any(not -count <= index < count for index in chosen):
        raise ValueError(f"outputs are numbered from 0 to {count - 1}, but {list(chosen)} were asked for")
    return [range(count)[index] for index in chosen]


def _first_weight(ensemble: Ensemble) -> Tensor:
    return next(ensemble.parameters(), torch.empty(0, dtype=torch.float64))


def _seeded(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(torch.randint(2**63 - 1, ())))
