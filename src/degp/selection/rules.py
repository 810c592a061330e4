"""Which variants the validation data speak for: by paired differences of their NLL, with standard errors."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor


def largest_within_one_error(nll: Float[Tensor, "V N"], alphas: Sequence[float]) -> int:
    """The best variant of the largest α that the validation data do not speak against.

    An α stands when a variant with it has a mean NLL within one standard error of the best's, by paired differences.
    """
    difference, error = _paired(nll)
    standing = (difference <= error).nonzero().flatten().tolist()
    largest = max(alphas[v] for v in standing)
    return min((v for v in standing if alphas[v] == largest), key=lambda v: float(nll[v].mean()))


def first_within_one_error(nll: Float[Tensor, "V N"]) -> int:
    """The first variant that the validation data do not speak against; simpler ones come before others."""
    difference, error = _paired(nll)
    return int((difference <= error).nonzero()[0])


def contenders(nll: Float[Tensor, "V N"], alphas: Sequence[float], *, errors: float = 2.0) -> list[int]:
    """The variants that may still be chosen: the best of each α, where it is not clearly behind the best of all.

    Clearly behind is more than `errors` standard errors in the mean NLL, by paired differences.
    """
    means = nll.mean(1).tolist()
    of_each = [min((v for v, own in enumerate(alphas) if own == alpha), key=means.__getitem__) for alpha in set(alphas)]
    difference, error = _paired(nll)
    return sorted(v for v in of_each if bool(difference[v] <= errors * error[v]))


def _paired(nll: Float[Tensor, "V N"]) -> tuple[Float[Tensor, "V"], Float[Tensor, "V"]]:
    """Mean difference to the best variant's NLL, and its standard error."""
    difference = nll - nll[int(nll.mean(1).argmin())]
    return difference.mean(1), difference.std(1, correction=0) / max(nll.shape[1] - 1, 1) ** 0.5
