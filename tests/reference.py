"""Slow, dense references in plain torch float64, written from the definitions and independent of `degp`.

The entries of a function on N points with C outputs are ordered point by point: entry nC + c is output c at point n.
"""

import math

import numpy as np
import torch


def covariance(deviations, diagonal):
    """Σ_m a_m a_mᵀ + diag(d), one outer product per member."""
    total = torch.diag(diagonal.double().flatten())
    for function in deviations.double():
        total = total + torch.outer(function.flatten(), function.flatten())
    return total


def kronecker(gram, num_outputs):
    """Covariance of `num_outputs` independent functions under one kernel, entry by entry."""
    N, C = len(gram), num_outputs
    full = torch.zeros(N * C, N * C, dtype=torch.float64)
    for c in range(C):
        full[c::C, c::C] = gram.double()
    return full


def log_density(values, mean, full):
    """log N(f | m, Σ)."""
    r = values.double().flatten() - mean.double().flatten()
    return -0.5 * (r @ torch.linalg.solve(full, r) + torch.logdet(full) + len(r) * math.log(2 * math.pi))


def kl_divergence(mean_q, full_q, mean_p, full_p):
    """KL[N(m_q, Σ_q) ‖ N(m_p, Σ_p)]."""
    r = mean_p.double().flatten() - mean_q.double().flatten()
    trace = torch.linalg.solve(full_p, full_q).trace()
    quadratic = r @ torch.linalg.solve(full_p, r)
    return 0.5 * (trace + quadratic - len(r) + torch.logdet(full_p) - torch.logdet(full_q))


def mixture(means, covariances, weights):
    """Mean and covariance of a mixture: E f and E ffᵀ − E f E fᵀ."""
    flat = [mean.double().flatten() for mean in means]
    mean = sum(w * m for w, m in zip(weights, flat, strict=True))
    second = sum(w * (full + torch.outer(m, m)) for w, m, full in zip(weights, flat, covariances, strict=True))
    return mean, second - torch.outer(mean, mean)


def condition(mean, full, observed, targets, noise):
    """Mean and covariance of f given y = f[observed] + N(0, diag(noise)); entries are numbered flat."""
    mean = mean.double().flatten()
    inner = full[observed][:, observed] + torch.diag(noise.double().flatten())
    gain = torch.linalg.solve(inner, full[observed]).T
    return mean + gain @ (targets.double().flatten() - mean[observed]), full - gain @ full[observed]


def entries(points, num_outputs):
    """Flat indices of all outputs at the given points."""
    return torch.cat([torch.arange(num_outputs) + num_outputs * int(n) for n in points])


def gp_regression(gram, cross, gram_new, targets, noise_variance):
    """Mean, covariance and log evidence of exact GP regression, by the explicit inverse."""
    S = gram + noise_variance * torch.eye(len(gram), dtype=torch.float64)
    inverse = torch.linalg.inv(S)
    evidence = sum(log_density(column, torch.zeros_like(column), S) for column in targets.double().T)
    return cross.T @ inverse @ targets.double(), gram_new - cross.T @ inverse @ cross, evidence


def class_moments(gram, cross, variances, labels, num_classes, weights=None, prior_mean=None):
    """Mean and variance (K, C) of the Gaussian process of each class, given log-normal matches of Gamma variates."""
    weights = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.double()
    means, spreads = [], []
    for c in range(num_classes):
        alpha = [0.03 + (1.0 if int(label) == c else 0.0) for label in labels]
        noise = torch.tensor([math.log(1 + 1 / a) for a in alpha], dtype=torch.float64)
        targets = torch.tensor([math.log(a) for a in alpha], dtype=torch.float64) - noise / 2
        centre = (weights * targets).sum() / weights.sum() if prior_mean is None else prior_mean[c]
        inverse = torch.linalg.inv(gram + torch.diag(noise / weights))
        means.append(centre + cross @ inverse @ (targets - centre))
        spreads.append(variances - (cross @ inverse @ cross.mT).diagonal())
    return torch.stack(means, 1), torch.stack(spreads, 1)


def dual(activation, left, right, cross, half_width=9.0, cells=1500):
    """E[φ(u) φ(v)] for (u, v) ~ N(0, [[left, cross], [cross, right]]), by the midpoint rule on a grid."""
    step = 2 * half_width / cells
    z = -half_width + step * (torch.arange(cells, dtype=torch.float64) + 0.5)
    density = torch.exp(-0.5 * z**2) * step / math.sqrt(2 * math.pi)
    u = math.sqrt(left) * z
    v = cross / math.sqrt(left) * z[:, None] + math.sqrt(max(right - cross**2 / left, 0.0)) * z[None, :]
    return float(torch.einsum("i,j,ij->", density * activation(u), density, activation(v)))


def gauss_hermite(function, mean, std, order=100):
    """E[function(f)] for f ~ N(mean, std²)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    nodes, weights = torch.from_numpy(nodes), torch.from_numpy(weights / math.sqrt(2 * math.pi))
    return (weights * function(mean + std * nodes)).sum()


def draws(mean, full, num_draws, seed=0):
    """(S, …) draws of N(m, Σ) through an eigendecomposition."""
    values, vectors = torch.linalg.eigh(full)
    z = torch.randn(num_draws, len(full), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return mean.double() + (z @ (vectors * values.clamp(min=0).sqrt()).T).view(num_draws, *mean.shape)
