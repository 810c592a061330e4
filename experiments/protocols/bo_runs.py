"""One run of Bayesian optimisation: problems, surrogates and rounds."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.ensemble import EnsembleModel
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from botorch.sampling.get_sampler import get_sampler
from botorch.test_functions.synthetic import Ackley, AckleyMixed, Branin, Hartmann, SyntheticTestFunction
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from degp.decisions.botorch import DEGPModel, FitConfig
from degp.methods import Kind
from experiments.bo import Config

__all__ = ["optimise"]


@dataclass(frozen=True)
class Problem:
    """A function to maximise, the evaluations after the initial ones, and its binary coordinates."""

    function: SyntheticTestFunction
    evaluations: int
    binary: tuple[int, ...] = ()


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "branin": lambda: Problem(Branin(negate=True), 20),
    "hartmann6": lambda: Problem(Hartmann(6, negate=True), 50),
    "ackley10": lambda: Problem(Ackley(10, negate=True), 50),
    "noisy-hartmann3": lambda: Problem(Hartmann(3, noise_std=0.2, negate=True), 30),
    # a random optimum: the default one is a corner, which any boundary search finds
    "mixed-ackley8": lambda: Problem(AckleyMixed(8, negate=True, randomize_optimum=True), 30, binary=(0, 1, 2, 3, 4)),
}


def optimise(problem_name: str, method: str, seed: int, config: Config) -> list[dict[str, Any]]:
    """Regret and elapsed time after the initial points and after each round."""
    torch.manual_seed(seed)
    problem = PROBLEMS[problem_name]()
    X = _points(problem, config.initial, seed)
    Y = problem.function(X)[:, None]
    clocks = time.perf_counter(), time.process_time()
    records = [_record(problem, X, Y, *clocks)]
    for _ in range(min(config.rounds, problem.evaluations // config.batch)):
        new = _next(problem, method, X, Y, config)
        X, Y = torch.cat([X, new]), torch.cat([Y, problem.function(new)[:, None]])
        records.append(_record(problem, X, Y, *clocks))
    return records


def _next(problem: Problem, method: str, X: Tensor, Y: Tensor, config: Config) -> Tensor:
    if method == "random":
        return _points(problem, config.batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch warns of line searches that ended early
        model = SURROGATES[method](X, Y, problem.function.bounds, FitConfig(**dict(config.training)))
        return _best_batch(problem, _acquisition(model, X, config), config)


def _degp(X: Tensor, Y: Tensor, bounds: Tensor, fit: FitConfig) -> Model:
    return DEGPModel.fit(X, Y, bounds=bounds, config=fit)


def _members(X: Tensor, Y: Tensor, bounds: Tensor, fit: FitConfig) -> Model:
    return Members(DEGPModel.fit(X, Y, bounds=bounds, config=fit))


def _single_task_gp(X: Tensor, Y: Tensor, bounds: Tensor, fit: FitConfig) -> Model:
    """BoTorch's default model, which standardises outcomes itself."""
    model = SingleTaskGP(X, Y, input_transform=Normalize(X.shape[1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


SURROGATES: dict[str, Callable[[Tensor, Tensor, Tensor, FitConfig], Model]] = {
    Kind.DEGP.label: _degp,
    "EnsembleModel": _members,
    "SingleTaskGP": _single_task_gp,
}


class Members(EnsembleModel):
    """The members of a DE-GP as a BoTorch ensemble: a sample is one member."""

    def __init__(self, model: DEGPModel) -> None:
        super().__init__()
        self._num_outputs = model.num_outputs
        self.ensemble = model.ensemble
        self.input_transform, self.outcome_transform = model.input_transform, model.outcome_transform

    def forward(self, X: Tensor) -> Tensor:
        outputs = self.ensemble(X.flatten(0, -2))
        return outputs.unflatten(1, X.shape[:-1]).movedim(0, -3)


def _acquisition(model: Model, X: Tensor, config: Config) -> AcquisitionFunction:
    """qLogEI over the largest posterior mean at evaluated points: under noise the best observation is biased."""
    with torch.no_grad():
        best = model.posterior(X).mean.max()
    sampler = get_sampler(model.posterior(X[:1]), sample_shape=torch.Size([config.draws]))
    return qLogExpectedImprovement(model, best, sampler=sampler)


def _best_batch(problem: Problem, acquisition: AcquisitionFunction, config: Config) -> Tensor:
    """Sequential greedy: each point given those before it."""
    shared = {"q": config.batch, "num_restarts": config.restarts, "raw_samples": config.raw_samples, "sequential": True}
    if problem.binary:
        best, _ = optimize_acqf_mixed_alternating(
            acquisition, problem.function.bounds, discrete_dims={i: [0.0, 1.0] for i in problem.binary}, **shared
        )
    else:
        best, _ = optimize_acqf(acquisition, problem.function.bounds, options={"maxiter": config.iterations}, **shared)
    return best.detach()


def _points(problem: Problem, count: int, seed: int | None = None) -> Tensor:
    points = draw_sobol_samples(problem.function.bounds, n=count, q=1, seed=seed).squeeze(1)
    points[:, problem.binary] = points[:, problem.binary].round()
    return points


def _record(problem: Problem, X: Tensor, Y: Tensor, start: float, start_cpu: float) -> dict[str, float]:
    """The noise-free regret of the point with the best observation."""
    value = problem.function(X[Y.argmax()][None], noise=False).item()
    return {
        "evaluations": len(X),
        "simple_regret": problem.function.optimal_value - value,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - start_cpu,
    }
