"""What only a GPU can show: graphs, streams and half precision give the numbers of plain steps.

Training is compared in float64: in float32 two runs of the same code part after some steps, since sums on a GPU have
no fixed order. CI has no GPU and skips this file; `python -m tests.test_gpu` runs it where there is one, without pytest
too.
"""

import copy
import sys
import tempfile
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from degp import Batch, Categorical, Ensemble, fit, objectives
from degp.bandits import EnsembleAgent, Problem, Recipe
from degp.data import CropAndFlip, Normalise
from degp.execution import Beside, Compiled, Folded, Loop, beside, chains, compiled_forward, narrow
from degp.execution.layers import as_product, strided_by_blocks
from degp.nets import lite_resnet_features, mlp, resnet, resnet_features
from degp.priors import NNGP, Centred, MonteCarloNNGP
from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.training import Captured, Checkpoints, Eager
from degp.training.capture import CapturedStep
from degp.training.step import TrainState

HAS_GPU = torch.cuda.is_available()
if HAS_GPU:
    from degp.execution import triton_convolutions
try:
    import pytest

    pytestmark = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")
except ModuleNotFoundError:
    pass

B = 16


def images(count=64):
    generator = torch.Generator("cuda").manual_seed(0)
    pixels = torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8, device="cuda", generator=generator)
    return Batch(pixels, torch.randint(4, (count,), device="cuda", generator=generator))


def heads_on_a_trunk():
    torch.manual_seed(0)
    return Ensemble(lambda: mlp(64, (8,), 4), 3, backbone=resnet_features(8)).cuda().double()


def members(way):
    torch.manual_seed(0)
    return Ensemble(lambda: resnet(8, 4), 3, execution=way).cuda().double()


def functional(around=lambda prior: prior):
    prior = around(MonteCarloNNGP(lite_resnet_features(8), execution=Folded()))
    return objectives.degp(Categorical(0.5, learned=True), prior, alpha=0.1, beta=0.1).cuda().double()


def transform():
    crop, normalise = CropAndFlip(), Normalise((0.5,) * 3, (0.25,) * 3, channels_last=True).cuda()
    return lambda pixels, generator: normalise(crop(pixels, generator)).double()


def trained(stepping, way=None, *, epochs=2, checkpoints=None, objective=None, ensemble=None, generator=None):
    ensemble, objective = ensemble or members(way), objective or functional()
    rate = torch.tensor(0.05, device="cuda")
    optimizers = [
        torch.optim.SGD(ensemble.parameters(), lr=rate, momentum=0.9, fused=True),
        torch.optim.Adam(objective.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True),
    ]
    fit(
        ensemble,
        images(),
        objective,
        epochs=epochs,
        batch_size=B,
        optimizer=optimizers,
        stepping=stepping,
        generator=generator or torch.Generator("cuda").manual_seed(1),
        checkpoints=checkpoints,
        resume=checkpoints is not None,
        progress=False,
    )
    trained = [p for p in (*ensemble.parameters(), *objective.parameters()) if p.requires_grad]
    return torch.cat([p.detach().flatten() for p in trained])


def test_a_captured_step_is_the_eager_step():
    for way in (Folded(), Compiled(Folded())):
        captured, eager = (trained(kind(transform()), way) for kind in (Captured, Eager))
        assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_a_centred_prior_is_captured_too():
    captured, eager = (
        trained(kind(transform()), Folded(), objective=functional(Centred)) for kind in (Captured, Eager)
    )
    assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_a_compiled_trunk_trains_as_it_is():
    ensemble = heads_on_a_trunk()
    with compiled_forward(ensemble.backbone):
        compiled = trained(Captured(transform()), ensemble=ensemble)
    plain = trained(Eager(transform()), ensemble=heads_on_a_trunk())
    assert_close(compiled, plain, rtol=1e-6, atol=1e-7)


def test_ways_to_run_members_agree():
    inputs = torch.randn(B, 3, 16, 16, device="cuda", dtype=torch.float64)
    outputs = [members(way)(inputs) for way in (Loop(), Folded(), Compiled(Folded()))]
    for other in outputs[1:]:
        assert_close(other, outputs[0], rtol=1e-8, atol=1e-8)


def test_two_streams_give_the_numbers_of_one():
    two = trained(Captured(transform()), Folded())
    kept = beside._second_stream
    beside._second_stream = torch.cuda.current_stream
    try:
        one = trained(Captured(transform()), Folded())
    finally:
        beside._second_stream = kept
    assert_close(two, one, rtol=1e-6, atol=1e-7)


def test_the_prior_ahead_is_the_prior_in_its_turn():
    ahead = trained(Captured(transform()), Folded(), epochs=5)
    kept = CapturedStep._works_ahead
    CapturedStep._works_ahead = lambda step: False
    try:
        in_turn = trained(Captured(transform()), Folded(), epochs=5)
    finally:
        CapturedStep._works_ahead = kept
    assert_close(ahead, in_turn, rtol=1e-6, atol=1e-7)


def test_rows_that_are_made_on_the_way_are_waited_for():
    """A long queue before each step's rows, which are new every time: what is done ahead must not overtake it."""
    weights = []
    for busy in (False, True):
        ensemble, objective, data = members(Folded()), functional(), images()
        optimizer = torch.optim.SGD(ensemble.parameters(), lr=torch.tensor(0.05, device="cuda"), fused=True)
        generator = torch.Generator("cuda").manual_seed(1)
        state = TrainState(ensemble, objective, [optimizer], [], generator)
        advance = Captured(transform()).start(state, data, B)
        for number in range(4):
            if busy:
                torch.cuda._sleep(100_000_000)
            advance(torch.arange(B, device="cuda") + B * number)
        weights.append(torch.cat([p.detach().flatten() for p in ensemble.parameters()]))
        torch.cuda.synchronize()
    assert_close(*weights, rtol=1e-6, atol=1e-7)


def test_the_generator_is_left_where_plain_steps_leave_it():
    states = []
    for stepping in (Captured(transform()), Eager(transform())):
        generator = torch.Generator("cuda").manual_seed(1)
        trained(stepping, Folded(), generator=generator)
        states.append(generator.get_state())
    assert torch.equal(*states)


def test_an_error_beside_is_told_as_it_is():
    x = torch.ones(2, device="cuda")
    try:
        with Beside(x):
            raise KeyError("as it is")
    except KeyError as error:
        assert "as it is" in str(error)
    assert x.sum().item() == 2


def test_a_captured_run_goes_on_where_it_stopped():
    with tempfile.TemporaryDirectory() as folder:
        trained(Captured(transform()), Folded(), epochs=1, checkpoints=Checkpoints(folder))
        resumed = trained(Captured(transform()), Folded(), epochs=2, checkpoints=Checkpoints(folder))
    assert_close(resumed, trained(Captured(transform()), Folded(), epochs=2), rtol=1e-6, atol=1e-7)


class Reading(torch.nn.Module):
    """An objective that reads a value, which a graph cannot hold."""

    def __init__(self):
        super().__init__()
        self.inner = functional()
        self.likelihood = self.inner.likelihood

    def forward(self, ensemble, batch, *, generator=None):
        assert float(batch.inputs.float().sum()) != 0.5
        return self.inner(ensemble, batch, generator=generator)


def test_what_cannot_be_captured_runs_eagerly_and_says_why():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        weights = trained(Captured(transform()), Folded(), objective=Reading().cuda())
    assert any("not one CUDA graph" in str(warning.message) for warning in told)
    assert torch.randn(8, device="cuda").isfinite().all()  # by torch's own generator, which was in the graph too
    expected = trained(Eager(transform(), even=True), Folded(), objective=Reading().cuda())
    assert_close(weights, expected, rtol=1e-6, atol=1e-7)


def test_strided_convolutions_by_blocks_in_half_precision():
    generator = torch.Generator("cuda").manual_seed(0)
    for width, growth in ((16, 2), (32, 2), (8, 1)):
        x = torch.randn(4, 3 * width, 16, 16, device="cuda", generator=generator)
        kernel = torch.randn(3 * width * growth, width, 3, 3, device="cuda", generator=generator)
        last = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            blocks = strided_by_blocks(last, kernel, None, 2, 1, groups=3)
        assert blocks.is_contiguous(memory_format=torch.channels_last)
        expected = F.conv2d(x, kernel, None, 2, 1, groups=3)
        assert_close(blocks.float(), expected, rtol=0.05, atol=0.05 * expected.std().item())


def test_convolutions_of_few_channels_in_half_precision():
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(5, 3, 8, 8, device="cuda", generator=generator).contiguous(memory_format=torch.channels_last)
    kernel = torch.randn(48, 3, 3, 3, device="cuda", generator=generator)
    with torch.autocast("cuda", torch.bfloat16):
        product = as_product(x, kernel, None, 1, 1)
    assert product.dtype == torch.bfloat16 and product.is_contiguous(memory_format=torch.channels_last)
    expected = F.conv2d(x, kernel, padding=1)
    assert_close(product.float(), expected, rtol=0.05, atol=0.05 * expected.std().item())


def test_narrow_convolutions_by_our_kernels_are_convolutions():
    generator = torch.Generator("cuda").manual_seed(0)
    for N, M, L, C, H, W in (
        (7, 3, 6, 16, 32, 32),
        (9, 2, 5, 32, 16, 16),
        (128, 10, 2, 16, 32, 32),
        (3, 2, 3, 16, 5, 8),
    ):
        x, dy = torch.randn(2, N, H, W, M * C, device="cuda", generator=generator)
        stack = torch.randn(M, L, C, 3, 3, C, device="cuda", generator=generator) * (2 / (9 * C)) ** 0.5
        for precision in (torch.bfloat16, torch.float16):
            for name, plain, given in (
                ("chain", chains.one_by_one, (x.relu(), stack)),
                ("narrow", narrow.plain, (x, stack[:, 0], False)),
                ("narrow", narrow.plain, (x, stack[:, 0], True)),
                ("kernel_gradient", narrow.plain_gradient, (x, dy, stack[:, 0])),
            ):
                exact = plain(*(g.double() if torch.is_tensor(g) else g for g in given))
                halves = [g.to(precision) if torch.is_tensor(g) else g for g in given]
                ours, usual = (
                    (y.double() - exact).norm() / exact.norm()
                    for y in (getattr(triton_convolutions, name)(*halves), plain(*halves))
                )
                assert ours < 1.2 * usual + 1e-4, (name, precision, ours, usual)


def test_the_operations_keep_what_they_promise_to_torch_compile():
    x, dy = torch.randn(2, 4, 32, 32, 32, device="cuda").bfloat16()
    stack = torch.randn(2, 3, 16, 3, 3, 16, device="cuda").bfloat16()
    torch.library.opcheck(torch.ops.degp.chain.default, (x, stack))
    torch.library.opcheck(torch.ops.degp.narrow.default, (x, stack[:, 0], True))
    torch.library.opcheck(torch.ops.degp.narrow_kernel_gradient.default, (x, dy, stack[:, 0]))


def test_members_in_half_precision_have_the_gradients_of_a_loop():
    inputs = torch.randn(B, 3, 32, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    found = []
    for way in (Compiled(Folded()), Folded(), Loop()):
        torch.manual_seed(0)
        ensemble = Ensemble(lambda: resnet(8, 4), 3, execution=way).cuda()
        with torch.autocast("cuda", torch.bfloat16, enabled=way != Loop()), warnings.catch_warnings():
            warnings.filterwarnings("error", message="convolutions run as PyTorch has them")
            loss = ensemble(inputs).float().square().mean()
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(ensemble.parameters()))]))
    for other in found[:2]:
        assert (other - found[2]).norm() < 0.05 * found[2].norm()


def test_the_priors_kernel_is_the_same_in_one_kernel():
    x = torch.randn(32, 3, 32, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    grams = []
    for way in (Compiled(Folded()), Folded(), Loop()):
        prior = MonteCarloNNGP(lite_resnet_features(20), execution=way).cuda()
        kernel = prior.kernel(generator=torch.Generator("cuda").manual_seed(1))
        with torch.autocast("cuda", torch.bfloat16, enabled=way != Loop()), warnings.catch_warnings():
            warnings.filterwarnings("error", message="convolutions run as PyTorch has them")
            grams.append(kernel(x, x))
    assert_close(grams[0], grams[1], rtol=0.02, atol=0.02)
    assert_close(grams[0], grams[2], rtol=0.05, atol=0.05)


def test_bandits_play_on_a_gpu():
    for method in ("degp", "de", "rde", "rms", "greedy"):
        recipe = Recipe(method=method, hidden_layers=(8,), members=2 if method == "greedy" else 3, steps=2)
        agent = EnsembleAgent(Problem(4, 3), recipe, generator=torch.Generator("cuda").manual_seed(0))
        for n in range(60):
            context = torch.randn(4)
            action = agent.act(context)
            agent.observe(context, action, float(n % 2))
        assert all(p.isfinite().all() for p in agent.ensemble.parameters())


def test_the_estimators_fit_on_a_gpu_by_graphs():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(330, 3, generator=generator).double().numpy()
    y = X[:, 0] + 0.1 * X[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor = DEGPRegressor(max_epochs=120, device="cuda", random_state=0).fit(X, y)
        classifier = DEGPClassifier(max_epochs=60, device="cuda", random_state=0).fit(X, y > 0)
    assert regressor.score(X, y) > 0.95
    assert classifier.score(X, y > 0) > 0.9


def test_the_analytic_kernel_is_that_of_the_cpu():
    x = torch.randn(20, 5, dtype=torch.float64)
    kernel = NNGP(2).kernel()
    assert_close(kernel(x.cuda(), x.cuda()).cpu(), kernel(x, x), rtol=1e-8, atol=1e-8)


def test_members_are_copied_whole():
    ensemble = Ensemble(lambda: mlp(3, (8,), 1), 4).cuda()
    other = copy.deepcopy(ensemble).cpu()
    x = torch.randn(5, 3)
    assert_close(ensemble(x.cuda()).cpu(), other(x), rtol=1e-4, atol=1e-5)


def main(*parts):
    """The tests with one of these in their names, all by default, and what became of each; how many failed."""
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_") and any(part in name for part in parts or ("",)):
            try:
                test()
            except Exception:
                failed += 1
                print(f"{name}:\n{traceback.format_exc()}", flush=True)
            else:
                print(f"{name}: well", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
