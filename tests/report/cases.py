"""Predictions of known calibration, and their evaluations."""

import torch

from degp.report import evaluate_classification, evaluate_regression

NAMES = ["ash", "birch", "<cedar>"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal_case(N, scale=1.0, seed=0):
    """Targets around a wave with noise that grows, predicted with `scale` times the true standard deviation."""
    x = torch.rand(N, generator=seeded(seed), dtype=torch.float64)
    mean, std = 3 * torch.sin(6 * x), 0.2 + x
    targets = mean + std * torch.randn(N, generator=seeded(seed + 1), dtype=torch.float64)
    variance = (scale * std).square()
    return mean, 0.3 * variance, variance, targets


def class_case(N, sharpness=1.0, seed=0):
    """Labels drawn from a softmax, predicted with its logits times `sharpness`."""
    logits = 2 * torch.randn(N, 3, generator=seeded(seed), dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=seeded(seed + 1))[:, 0]
    probabilities = (sharpness * logits).softmax(-1)
    return probabilities, 0.2 * torch.special.entr(probabilities).sum(-1), labels, NAMES


def regression(N=400, scale=1.0, **options):
    return evaluate_regression(*normal_case(N, scale), **({"resamples": 60, "generator": seeded()} | options))


def classification(N=400, sharpness=1.0, **options):
    return evaluate_classification(*class_case(N, sharpness), **({"resamples": 60, "generator": seeded()} | options))


def grades(evaluation):
    return {reason["rule"]: reason["grade"] for reason in evaluation["verdict"]["reasons"]}
