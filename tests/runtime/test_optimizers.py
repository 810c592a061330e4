"""The optimisers step as torch's do, bit for bit, exchange their states, and load no compiler."""

import copy
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from degp.runtime import optimizers
from tests.fixtures import normal

SETTINGS = {
    "Adam": {"lr": 0.1},
    "LBFGS": {"max_iter": 5, "line_search_fn": "strong_wolfe"},
}


def start():
    return [normal(3, 2).requires_grad_(), normal(2, seed=1).requires_grad_()]


def descend(optimizer, parameters, steps):
    def loss():
        optimizer.zero_grad()
        value = (parameters[0] @ parameters[1] - 1).pow(4).sum() + parameters[1].square().sum()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(loss) if isinstance(optimizer, torch.optim.LBFGS) else (loss(), optimizer.step())
    return [p.detach().clone() for p in parameters]


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_torch(name):
    both = []
    for module in (optimizers, torch.optim):
        parameters = start()
        both.append(descend(getattr(module, name)(parameters, **SETTINGS[name]), parameters, 7))
    assert_close(*both, rtol=0, atol=0)
    assert not torch.equal(both[0][0], start()[0])


@pytest.mark.parametrize("name", SETTINGS)
def test_a_state_of_torchs_own_is_taken_over(name):
    theirs, ours = start(), start()
    before = getattr(torch.optim, name)(theirs, **SETTINGS[name])
    descend(before, theirs, 3)
    for own, value in zip(ours, theirs, strict=True):
        own.data.copy_(value)
    after = getattr(optimizers, name)(ours, **SETTINGS[name])
    after.load_state_dict(copy.deepcopy(before.state_dict()))  # torch shares the tensors
    assert after.state_dict().keys() == before.state_dict().keys() and type(after).__name__ == type(before).__name__
    assert_close(descend(after, ours, 3), descend(before, theirs, 3), rtol=0, atol=0)


PROGRAM = """
import sys, numpy as np
from degp.sklearn import DEGPClassifier, DEGPRegressor
X = np.random.default_rng(0).standard_normal((40, 2))
settings = dict(members=2, hidden_layers=(8,), steps=2, random_state=0)
DEGPRegressor(**settings, checkpoint={folder!r}).fit(X, X[:, 0]).predict(X, return_std=True)
DEGPClassifier(**settings).fit(X, X[:, 0] > 0).predict_proba(X)
print("torch._dynamo" in sys.modules)
"""


def test_a_fit_on_the_cpu_does_not_load_torchs_compiler(tmp_path):
    """Its import takes seconds, which the first fit of every process would wait."""
    program = PROGRAM.format(folder=str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "False", done.stderr
