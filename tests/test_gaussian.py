"""The low-rank algebra equals its dense reference, in value, gradient and law, without the dense matrix."""

import math
import re

import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from degp import KroneckerGaussian, LowRankGaussian, kl_divergence
from degp.gaussian import average
from degp.roots import cholesky, inverse
from tests import reference
from tests.fixtures import normal
from tests.memory import LargestTensor

SHAPES = [(1, 1, 1), (1, 6, 2), (2, 5, 1), (5, 4, 3), (3, 1, 4), (7, 2, 1), (20, 50, 10)]
DIAGONALS = ["number", "per entry"]
seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))

exactly = {"rtol": 1e-10, "atol": 1e-10}


def random_posterior(M, N, C, diagonal="per entry", seed=0):
    d = 0.05 + normal(N, C, seed=seed + 2).square() if diagonal == "per entry" else 0.3
    return LowRankGaussian(normal(N, C, seed=seed), normal(M, N, C, seed=seed + 1), d)


def random_gram(N, seed=0):
    root = normal(N, N + 2, seed=seed + 7)
    return root @ root.mT / N + 0.1 * torch.eye(N, dtype=torch.float64)


def dense(q):
    return reference.covariance(q.deviations, q.diagonal)


def dense_kl(q, gram):
    return reference.kl_divergence(q.mean, dense(q), torch.zeros_like(q.mean), reference.kronecker(gram, q.shape[2]))


# The oracle


@pytest.mark.parametrize("diagonal", DIAGONALS)
@pytest.mark.parametrize("M, N, C", SHAPES)
def test_kl_equals_dense(M, N, C, diagonal):
    q, gram = random_posterior(M, N, C, diagonal), random_gram(N)
    assert_close(kl_divergence(q, KroneckerGaussian.from_gram(gram, C)), dense_kl(q, gram), rtol=1e-10, atol=0)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("M, N, C", SHAPES[:-1])
def test_average_has_the_moments_of_the_mixture(M, N, C, weight):
    q, p = random_posterior(M, N, C), random_posterior(M + 1, N, C, "number", seed=5)
    both = average(q, p, weight)
    mean, full = reference.mixture((q.mean, p.mean), (dense(q), dense(p)), (1 - weight, weight))
    assert_close(both.mean.flatten(), mean, **exactly)
    assert_close(both.covariance(), full, **exactly)


def test_the_gradient_of_an_average_is_that_of_finite_differences():
    q, p = random_posterior(2, 3, 2), random_posterior(3, 3, 2, seed=5)
    parts = [part.clone().requires_grad_() for g in (q, p) for part in (g.mean, g.deviations, g.diagonal)]

    def moments(*parts):
        both = average(LowRankGaussian(*parts[:3]), LowRankGaussian(*parts[3:]), 0.3)
        return both.mean, both.covariance()

    assert gradcheck(moments, parts)


@pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan])
def test_the_weight_of_an_average_is_a_share(weight):
    q = random_posterior(2, 3, 1)
    with pytest.raises(ValueError, match=f"must be between 0 and 1, but it is {weight}"):
        average(q, q, weight)


@pytest.mark.parametrize("diagonal", DIAGONALS)
@pytest.mark.parametrize("M, N, C", SHAPES)
def test_log_density_equals_dense(M, N, C, diagonal):
    q, values = random_posterior(M, N, C, diagonal), normal(N, C, seed=9)
    assert_close(q.log_density(values), reference.log_density(values, q.mean, dense(q)), rtol=1e-10, atol=0)


@pytest.mark.parametrize("M, N, C", SHAPES)
def test_covariances_equal_dense(M, N, C):
    q = random_posterior(M, N, C)
    full = dense(q)
    blocks = torch.stack([full[n * C : n * C + C, n * C : n * C + C] for n in range(N)])
    assert_close(q.covariance(), full)
    assert_close(q.covariances(), blocks)
    assert_close(q.variance().flatten(), full.diagonal())


def test_prior_covariance_is_a_kernel_for_each_output():
    gram = random_gram(4)
    assert_close(KroneckerGaussian.from_gram(gram, 3).covariance(), reference.kronecker(gram, 3))


def test_kl_with_the_factors_in_the_wrong_order_differs():
    q, gram = random_posterior(5, 4, 3), random_gram(4)
    wrong = reference.kl_divergence(
        q.mean, dense(q), torch.zeros_like(q.mean), torch.kron(torch.eye(3, dtype=torch.float64), gram)
    )
    assert abs(kl_divergence(q, KroneckerGaussian.from_gram(gram, 3)) - wrong) > 1.0


# Gradients


def arguments(M, N, C):
    parts = normal(N, C), normal(M, N, C, seed=1), 0.2 + normal(N, C, seed=2).square()
    return [part.requires_grad_() for part in parts]


@pytest.mark.parametrize("M, N, C", [(1, 1, 1), (3, 4, 2), (6, 2, 1)])
def test_gradients_of_kl(M, N, C):
    p = KroneckerGaussian.from_gram(random_gram(N), C)
    assert gradcheck(lambda *parts: kl_divergence(LowRankGaussian(*parts), p), arguments(M, N, C))


@pytest.mark.parametrize("M, N, C", [(1, 1, 1), (3, 4, 2), (6, 2, 1)])
@pytest.mark.parametrize("inverted", [False, True])
def test_gradients_of_kl_in_the_prior(M, N, C, inverted):
    def divergence(gram, *parts):
        root = cholesky(gram @ gram.mT, jitter=0.1)
        p = KroneckerGaussian(root, C, inverse(root) if inverted else None)
        return kl_divergence(LowRankGaussian(*parts), p)

    assert gradcheck(divergence, (normal(N, N, seed=4).requires_grad_(), *arguments(M, N, C)))


def test_kl_under_vmap_and_grad():
    M, N, C = 3, 4, 2
    p = KroneckerGaussian.from_gram(random_gram(N), C)
    means, deviations, diagonals = normal(5, N, C), normal(5, M, N, C, seed=1), 0.2 + normal(5, N, C, seed=2).square()

    def divergence(*parts):
        return kl_divergence(LowRankGaussian(*parts), p)

    each = [divergence(*parts) for parts in zip(means, deviations, diagonals, strict=True)]
    assert_close(torch.func.vmap(divergence)(means, deviations, diagonals), torch.stack(each))
    ones = [torch.func.grad(divergence, argnums=(0, 1, 2))(*q) for q in zip(means, deviations, diagonals, strict=True)]
    all_at_once = torch.func.vmap(torch.func.grad(divergence, argnums=(0, 1, 2)))(means, deviations, diagonals)
    for own, together in zip(zip(*ones, strict=True), all_at_once, strict=True):
        assert_close(together, torch.stack(own))


def test_second_derivatives_of_kl():
    def divergence(gram, *parts):
        p = KroneckerGaussian(cholesky(gram @ gram.mT, jitter=0.1), 2)
        return kl_divergence(LowRankGaussian(*parts), p)

    assert gradgradcheck(divergence, (normal(3, 3, seed=4).requires_grad_(), *arguments(2, 3, 2)))


@pytest.mark.parametrize("M, N, C", [(1, 1, 1), (3, 4, 2), (6, 2, 1)])
def test_gradients_of_log_density(M, N, C):
    values = normal(N, C, seed=3).requires_grad_()
    assert gradcheck(lambda f, *parts: LowRankGaussian(*parts).log_density(f), (values, *arguments(M, N, C)))


def test_gradients_of_conditioning():
    points, targets, noise = torch.tensor([3, 1]), normal(2, 2, seed=4), 0.1 + normal(2, 2, seed=5).square()

    def condition(y, sigma, *parts):
        after = LowRankGaussian(*parts).condition(points, y, sigma)
        return after.mean, after.covariance()

    assert gradcheck(condition, (targets.requires_grad_(), noise.requires_grad_(), *arguments(3, 4, 2)))


# Laws


@given(seeds, sizes)
def test_kl_is_not_negative(seed, size):
    M, N, C = size
    assert kl_divergence(random_posterior(M, N, C, seed=seed), KroneckerGaussian.from_gram(random_gram(N, seed), C)) > 0


@given(seeds, st.integers(1, 5), st.integers(1, 3))
def test_kl_is_zero_where_q_is_p(seed, N, C):
    gram = random_gram(N, seed)
    d = 0.5 * torch.linalg.eigvalsh(gram)[0].item()
    full = reference.kronecker(gram, C)
    rows = torch.linalg.cholesky(full - d * torch.eye(N * C)).mT  # AᵀA + dI = K ⊗ I
    q = LowRankGaussian(torch.zeros(N, C, dtype=torch.float64), rows.reshape(N * C, N, C), d)
    assert_close(q.covariance(), full)
    assert abs(kl_divergence(q, KroneckerGaussian.from_gram(gram, C))) < 1e-10 * N * C


@given(seeds, sizes, st.randoms(use_true_random=False))
def test_members_are_exchangeable(seed, size, random):
    M, N, C = size
    q, p = random_posterior(M, N, C, seed=seed), KroneckerGaussian.from_gram(random_gram(N, seed), C)
    order = random.sample(range(M), M)
    shuffled = LowRankGaussian(q.mean, q.deviations[order], q.diagonal)
    values, points, targets = normal(N, C, seed=seed + 3), torch.tensor([0]), normal(1, C, seed=seed + 4)
    assert_close(kl_divergence(shuffled, p), kl_divergence(q, p), **exactly)
    assert_close(shuffled.log_density(values), q.log_density(values), **exactly)
    one, other = shuffled.condition(points, targets, 0.1), q.condition(points, targets, 0.1)
    assert_close(one.mean, other.mean, **exactly)
    assert_close(one.covariance(), other.covariance(), **exactly)


@given(seeds, sizes, st.data())
def test_marginal_of_joint_is_joint_of_marginal(seed, size, data):
    M, N, C = size
    q = random_posterior(M, N, C, seed=seed)
    points = torch.tensor(data.draw(st.permutations(range(N))))[: data.draw(st.integers(1, N))]
    some, flat = q.marginal(points), reference.entries(points, C)
    values = normal(len(points), C, seed=seed + 3)
    assert_close(some.mean.flatten(), q.mean.flatten()[flat])
    assert_close(some.covariance(), dense(q)[flat][:, flat])
    assert_close(some.log_density(values), reference.log_density(values, some.mean, dense(q)[flat][:, flat]), **exactly)


@given(seeds, sizes)
def test_conditioning_and_marginalising_commute(seed, size):
    M, N, C = size
    q, observed, targets = random_posterior(M, N + 2, C, seed=seed), torch.tensor([2, 0]), normal(2, C, seed=seed + 3)
    kept = torch.tensor([0, 2])  # the observed points, in another order
    one = q.condition(observed, targets, 0.2).marginal(kept)
    other = q.marginal(kept).condition(torch.tensor([1, 0]), targets, 0.2)
    assert_close(one.mean, other.mean, **exactly)
    assert_close(one.covariance(), other.covariance(), **exactly)


def test_the_divergence_alone_spreads_the_members_along_the_priors_first_directions():
    gram, diagonal, outputs = random_gram(5), 0.05, 2  # each eigenvalue of the prior comes twice, once an output
    p = KroneckerGaussian.from_gram(gram, outputs)
    deviations = normal(3, 5, outputs, seed=1).requires_grad_()
    optimizer = torch.optim.LBFGS([deviations], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        q = LowRankGaussian(torch.zeros(5, outputs).double(), deviations, torch.full((5, outputs), diagonal).double())
        value = kl_divergence(q, p)
        value.backward()
        return value

    optimizer.step(loss)
    A = deviations.detach().flatten(1)
    eigenvalues, eigenvectors = (part.flip(-1) for part in torch.linalg.eigh(gram))
    spread = torch.linalg.eigvalsh(A @ A.mT).flip(0)
    assert_close(spread, eigenvalues[[0, 0, 1]] - diagonal, atol=1e-6, rtol=1e-5)  # theory/kl.md (6)
    along = torch.kron(eigenvectors[:, :2].contiguous(), torch.eye(outputs, dtype=A.dtype))
    assert_close(A @ along @ along.mT, A, atol=1e-5, rtol=1e-4)


@given(seeds, sizes, st.floats(1e-3, 1e3))
def test_kl_does_not_depend_on_the_unit(seed, size, unit):
    M, N, C = size
    q, gram = random_posterior(M, N, C, seed=seed), random_gram(N, seed)
    scaled = LowRankGaussian(unit * q.mean, unit * q.deviations, unit**2 * q.diagonal)
    one = kl_divergence(scaled, KroneckerGaussian.from_gram(unit**2 * gram, C))
    assert_close(one, kl_divergence(q, KroneckerGaussian.from_gram(gram, C)), rtol=1e-9, atol=1e-9)


# Conditioning


@pytest.mark.parametrize("noise", [0.0, 0.3, "per entry", "partly none"])
@pytest.mark.parametrize("M, N, C", [(2, 5, 1), (5, 4, 3), (1, 3, 2), (20, 50, 4)])
def test_conditioning_equals_dense(M, N, C, noise):
    q, points = random_posterior(M, N, C), torch.tensor([2, 0])
    targets, flat = normal(2, C, seed=5), reference.entries([2, 0], C)
    sigma = normal(2, C, seed=6).square() if isinstance(noise, str) else torch.full((2, C), noise, dtype=torch.float64)
    if noise == "partly none":
        sigma[0] = 0.0
    mean, full = reference.condition(q.mean, dense(q), flat, targets, sigma)
    after = q.condition(points, targets, sigma if isinstance(noise, str) else noise)
    assert_close(after.mean.flatten(), mean, rtol=1e-8, atol=1e-8)
    assert_close(after.covariance(), full, rtol=1e-8, atol=1e-8)


def test_noise_free_observations_are_interpolated():
    q, points, targets = random_posterior(3, 5, 2), torch.tensor([4, 1]), normal(2, 2, seed=5)
    after = q.condition(points, targets, 0.0)
    assert_close(after.mean[points], targets)
    assert_close(after.variance()[points], torch.zeros(2, 2, dtype=torch.float64))


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_observing_in_turn_is_observing_at_once(noise):
    q, points, targets = random_posterior(4, 6, 2), torch.tensor([5, 1, 2]), normal(3, 2, seed=5)
    at_once, in_turn = q.condition(points, targets, noise), q
    for n in range(3):
        in_turn = in_turn.condition(points[n : n + 1], targets[n : n + 1], noise)
    assert_close(in_turn.mean, at_once.mean, **exactly)
    assert_close(in_turn.covariance(), at_once.covariance(), **exactly)


def test_observing_a_point_twice_is_observing_the_average_with_half_the_noise():
    q, point, one, two = random_posterior(4, 3, 2), torch.tensor([1]), normal(1, 2, seed=5), normal(1, 2, seed=6)
    twice = q.condition(point, one, 0.2).condition(point, two, 0.2)
    average = q.condition(point, (one + two) / 2, 0.1)
    assert_close(twice.mean, average.mean, **exactly)
    assert_close(twice.covariance(), average.covariance(), **exactly)


def test_coefficients_carry_an_update_to_unobserved_points():
    q, targets = random_posterior(4, 6, 2), normal(3, 2, seed=5)
    observed, others = torch.tensor([5, 1, 2]), torch.tensor([0, 3, 4])
    carried = q.marginal(others).updated(q.marginal(observed).coefficients(targets, 0.2))
    direct = q.condition(observed, targets, 0.2).marginal(others)
    assert_close(carried.mean, direct.mean, **exactly)
    assert_close(carried.covariance(), direct.covariance(), **exactly)


# Draws


def test_joint_draws_have_the_moments(generator):
    q = random_posterior(3, 4, 2)
    draws = q.sample(200_000, generator=generator).flatten(1)
    assert_close(draws.mean(0), q.mean.flatten(), rtol=0, atol=0.03)
    assert_close(draws.T.cov(), dense(q), rtol=0, atol=0.08)


def test_marginal_draws_have_the_moments_point_by_point(generator):
    q = random_posterior(3, 4, 2)
    draws = q.sample_marginals(200_000, generator=generator).flatten(1)
    assert_close(draws.mean(0), q.mean.flatten(), rtol=0, atol=0.03)
    assert_close(draws.T.cov(), torch.block_diag(*q.covariances()), rtol=0, atol=0.08)


def test_draws_repeat_with_their_generator():
    q = random_posterior(3, 4, 2)
    for draw in (q.sample, q.sample_marginals):
        one, two, other = (draw(5, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
        assert torch.equal(one, two) and not torch.equal(one, other)


# GPyTorch


@pytest.mark.parametrize("C", [1, 3])
def test_gpytorch_sees_the_same_distribution(C):
    q, values = random_posterior(3, 5, C), normal(5, C, seed=4)
    theirs = q.to_gpytorch()
    assert_close(theirs.mean.view(5, C), q.mean)
    assert_close(theirs.variance.view(5, C), q.variance())
    assert_close(theirs.covariance_matrix, dense(q))
    assert_close(theirs.log_prob(values if C > 1 else values[:, 0]), q.log_density(values), rtol=1e-8, atol=1e-8)


# Precision


@pytest.fixture(params=["as it is", "autocast", "medium"])
def matmul_precision(request):
    """The settings under which torch may round products of float32 to bfloat16."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if request.param == "medium" else before)
    with torch.autocast("cpu", torch.bfloat16, enabled=request.param == "autocast"):
        yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_algebra_is_float64_whatever_comes_in(dtype, matmul_precision):
    q, values, gram = random_posterior(4, 6, 3), normal(6, 3, seed=4).to(dtype), random_gram(6).to(dtype)
    coarse = LowRankGaussian(q.mean.to(dtype), q.deviations.to(dtype), q.diagonal.to(dtype))
    fine = LowRankGaussian(coarse.mean.double(), coarse.deviations.double(), coarse.diagonal.double())
    p = KroneckerGaussian.from_gram(gram, 3)
    observed, noise, full = torch.arange(18), torch.full((6, 3), 0.5), dense(fine)
    learned = coarse.coefficients(values, 0.5)
    smooth = full - torch.diag(fine.diagonal.flatten())  # of m + Aᵀz, which the diagonal hides like noise
    expected, _ = reference.condition(fine.mean, smooth, observed, values, fine.diagonal + noise)
    assert_close(coarse.log_density(values), reference.log_density(values, fine.mean, full), **exactly)
    assert_close(kl_divergence(coarse, p), dense_kl(fine, gram.double()), **exactly)
    assert_close(fine.updated(learned).mean.flatten(), expected, **exactly)
    assert_close(coarse.covariance(), full.to(dtype))
    assert_close(coarse.covariances(), fine.covariances().to(dtype))


def test_draws_keep_float32_under_autocast():
    q = random_posterior(4, 6, 3)
    single = LowRankGaussian(q.mean.float(), q.deviations.float(), q.diagonal.float())
    for draw in (single.sample, single.sample_marginals):
        plain = draw(9, generator=torch.Generator().manual_seed(0))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(draw(9, generator=torch.Generator().manual_seed(0)), plain)


def test_conditioning_in_float32_keeps_its_dtype_and_digits():
    q, points, targets = random_posterior(4, 6, 3), torch.tensor([3, 1]), normal(2, 3, seed=4)
    single = LowRankGaussian(q.mean.float(), q.deviations.float(), q.diagonal.float())
    after = single.condition(points, targets.float(), 0.1)
    assert_close(after.mean, q.condition(points, targets, 0.1).mean.float())
    assert_close(after.variance(), q.condition(points, targets, 0.1).variance().float())


# Memory


@pytest.mark.parametrize("M, N, C", [(10, 256, 1000), (2, 300, 20)])
def test_dense_covariance_is_never_formed(M, N, C):
    parts = [
        part.requires_grad_() for part in (normal(N, C), normal(M, N, C, seed=1), torch.full((N, C), 0.3).double())
    ]
    gram, values, points = random_gram(N), normal(N, C, seed=3), torch.arange(N // 2)
    with LargestTensor() as largest:
        q = LowRankGaussian(*parts)
        after = q.condition(points, values[points], 0.1)
        loss = kl_divergence(q, KroneckerGaussian.from_gram(gram, C)) + q.log_density(values) + after.mean.sum()
        torch.autograd.grad(loss + after.deviations.sum(), parts)
    assert largest.elements <= max(N * N, (M + 1) * N * C)


def test_largest_tensor_is_recorded():
    with LargestTensor() as largest:
        random_posterior(2, 30, 20).covariance()
    assert largest.elements >= 600**2


def test_observed_points_may_be_marked():
    q, targets = random_posterior(3, 4, 2), normal(2, 2)
    marked = q.condition(torch.tensor([True, False, False, True]), targets, 0.1)
    assert_close(marked.mean, q.condition(torch.tensor([0, -1]), targets, 0.1).mean, rtol=0, atol=0)


# Arguments that cannot be


@pytest.mark.parametrize("diagonal, least", [(-0.1, "-0.1"), (torch.tensor([[0.1], [-2.0]]), "-2"), (math.nan, "nan")])
def test_negative_diagonal_is_refused(diagonal, least):
    with pytest.raises(
        ValueError, match=f"diagonal is a variance and must not be negative or NaN, but its minimum is {least}"
    ):
        LowRankGaussian(torch.zeros(2, 1), torch.zeros(3, 2, 1), diagonal)


def test_negative_noise_is_refused():
    with pytest.raises(ValueError, match=r"noise_variance is a variance and must not be negative or NaN, .* is -1"):
        random_posterior(2, 3, 1).condition(torch.tensor([0]), torch.zeros(1, 1), -1.0)


def test_members_that_agree_need_a_diagonal():
    q = LowRankGaussian(torch.zeros(2, 1), torch.zeros(3, 2, 1), 0.0)
    for use in (
        lambda: q.log_density(torch.zeros(2, 1)),
        lambda: kl_divergence(q, KroneckerGaussian.from_gram(torch.eye(2), 1)),
        lambda: q.condition(torch.tensor([0]), torch.zeros(1, 1), 0.0),
    ):
        with pytest.raises(ValueError, match="diagonal part has zeros; do all members agree exactly"):
            use()


@pytest.mark.parametrize("points", [[1, 2, 1], [1, 0, -2]])
def test_repeated_observations_are_refused(points):
    q = random_posterior(2, 3, 1)
    with pytest.raises(ValueError, match="observed points must be distinct, but 1 of 3 are repeated; average"):
        q.condition(torch.tensor(points), torch.zeros(3, 1).double(), 0.1)


ONE_POINT = LowRankGaussian(torch.zeros(1, 3), torch.ones(2, 1, 3), 0.1)
MISSHAPEN = {
    "deviations must be (M, N, C) over the mean's (N, C) = (2, 1), but they are (3, 2)": lambda: LowRankGaussian(
        torch.zeros(2, 1), torch.zeros(3, 2), 0.1
    ),
    "diagonal must be one number or one per point and output, (N, C) = (2, 1), but its shape is (2,)": lambda: (
        LowRankGaussian(torch.zeros(2, 1), torch.zeros(3, 2, 1), torch.ones(2))
    ),
    "values must have one value per point and output, (N, C) = (1, 3), but their shape is (3, 1)": lambda: (
        ONE_POINT.log_density(torch.zeros(3, 1))
    ),
    "targets must have one value per point and output, (N, C) = (1, 3), but their shape is (1, 1)": lambda: (
        ONE_POINT.condition(torch.tensor([0]), torch.zeros(1, 1), 0.1)
    ),
    "q has (N, C) = (1, 3) and p (1, 1)": lambda: average(
        ONE_POINT, LowRankGaussian(torch.zeros(1, 1), torch.ones(2, 1, 1), 0.1), 0.5
    ),
}


@pytest.mark.parametrize("message", MISSHAPEN)
def test_wrong_shapes_are_refused_and_not_broadcast(message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, whose shapes nobody else checks
    with pytest.raises(ValueError, match=re.escape(message)):
        MISSHAPEN[message]()


def test_different_points_are_refused():
    with pytest.raises(ValueError, match=r"q has \(N, C\) = \(3, 2\) and p \(3, 1\)"):
        kl_divergence(random_posterior(2, 3, 2), KroneckerGaussian.from_gram(random_gram(3), 1))
