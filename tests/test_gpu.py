"""On a GPU: graphs, streams and half precision give the numbers of plain steps.

Training is compared in float64: in float32 two runs of the same code diverge after some steps, since sums on a GPU have
no fixed order. CI has no GPU and skips this file; `python -m tests.test_gpu` runs it on one, also without pytest.
"""

import copy
import gc
import sys
import tempfile
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp import Batch, Categorical, Ensemble, MeasurementAlone, Unlabelled, attach, fit, methods
from degp.decisions.bandits import AgentConfig, EnsembleAgent, EpsilonGreedy, Problem, ThompsonSampling
from degp.methods import Kind
from degp.nets import lite_resnet_features, mlp, resnet, resnet_features
from degp.priors import NNGP, Centred, MonteCarloNNGP
from degp.runtime import streams
from degp.runtime.distributed import loopback
from degp.runtime.execution import Compiled, CompiledForTraining, Grouped, Loop, compiled_forward
from degp.runtime.execution.layers import as_product, strided_by_blocks
from degp.runtime.kernels import chains, narrow
from degp.runtime.streams import SideStream
from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.training import Captured, Checkpoints, Eager, History, Plan, TrainState, graphs
from degp.vision import PriorNetworks, Recipe, Trained, context_images, initialise, train
from degp.vision.augmentation import CIFAR10_SCALE, CropAndFlip, Normalise
from experiments.protocols.shift.augmix import AugMix
from experiments.protocols.shift.controls import Exposed

HAS_GPU = torch.cuda.is_available()
if HAS_GPU:
    from degp.runtime.kernels import triton_convolutions
try:
    import pytest

    pytestmark = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")
except ModuleNotFoundError:
    pass

B = 16


def images(count=64):
    generator = torch.Generator("cuda").manual_seed(0)
    pixels = torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8, device="cuda", generator=generator)
    labels = torch.randint(4, (count,), device="cuda", generator=generator)
    return Batch(pixels, labels, weights=torch.arange(count, device="cuda") * 2 / (count - 1))


def heads_on_a_backbone():
    torch.manual_seed(0)
    return Ensemble(lambda: mlp(64, (8,), 4), 3, backbone=resnet_features(8)).cuda().double()


def members(strategy):
    torch.manual_seed(0)
    return Ensemble(lambda: resnet(8, 4), 3, execution=strategy).cuda().double()


def functional(around=lambda prior: prior, **options):
    prior = around(MonteCarloNNGP(lite_resnet_features(8), execution=Grouped()))
    return methods.degp(Categorical(0.5, learned=True), prior, alpha=0.4, beta=0.1, **options).cuda().double()


def transform(crop=CropAndFlip()):
    normalise = Normalise((0.5,) * 3, (0.25,) * 3, channels_last=True).cuda()
    return lambda pixels, generator: normalise(crop(pixels, generator)).double()


def trained(
    stepping, strategy=None, *, epochs=2, checkpoints=None, method=None, ensemble=None, generator=None, rate=0.05
):
    ensemble, method = ensemble or members(strategy), method or functional()
    rate = torch.tensor(rate, device="cuda")
    optimizers = [
        torch.optim.SGD(ensemble.parameters(), lr=rate, momentum=0.9, fused=True),
        torch.optim.Adam(method.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True),
    ]
    plan = Plan(epochs, B, stepping=stepping, checkpoints=checkpoints, resume=checkpoints is not None)
    generator = generator or torch.Generator("cuda").manual_seed(1)
    fit(ensemble, images(), method, plan, optimizer=optimizers, generator=generator, progress=False)
    parameters = [p for p in (*ensemble.parameters(), *method.parameters()) if p.requires_grad]
    return torch.cat([p.detach().flatten() for p in parameters])


def test_a_captured_step_is_the_eager_step():
    for strategy in (Grouped(), Compiled(Grouped())):
        captured, eager = (trained(kind(transform()), strategy) for kind in (Captured, Eager))
        assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_a_captured_step_of_de_is_the_eager_step():
    """Its crops and flips are drawn in the second graph, which prepares the next batch."""

    def de():
        return methods.de(Categorical(0.5, learned=True)).cuda().double()

    captured, eager = (trained(kind(transform()), Grouped(), method=de()) for kind in (Captured, Eager))
    assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_a_centred_prior_is_captured_too():
    captured, eager = (trained(kind(transform()), Grouped(), method=functional(Centred)) for kind in (Captured, Eager))
    assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_context_points_are_captured_too():
    normalise = Normalise((0.5,) * 3, (0.25,) * 3, channels_last=True)
    for options in (
        {"measurement": context_images(9)},
        {"measurement": context_images(9), "domain": MeasurementAlone()},
        {"measurement": Unlabelled(images().inputs.cpu(), 5, normalise)},
    ):
        captured, eager = (
            trained(kind(transform()), Grouped(), method=functional(**options)) for kind in (Captured, Eager)
        )
        assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_outlier_exposure_and_augmix_are_captured_too():
    def exposed():
        return Exposed(context_images(9))(methods.de(Categorical(0.5, learned=True))).cuda().double()

    crop = AugMix()
    captured, eager = (
        trained(kind(transform(crop), **even), Grouped(), method=exposed())
        for kind, even in ((Captured, {}), (Eager, {"even": True}))
    )
    assert_close(captured, eager, rtol=1e-6, atol=1e-7)


def test_steps_that_hold_messages_are_captured():
    """A process group of one that sends to itself, by NCCL."""

    def weights(kind, mesh=None):
        ensemble, method = members(Grouped()), functional()
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="steps run eagerly")
            return trained(kind(transform()), ensemble=ensemble.split(mesh) if mesh else ensemble, method=method)

    try:
        mesh = loopback("cuda")
        captured, eager = weights(Captured, mesh), weights(Eager, mesh)
        assert mesh.sent == 0  # of a ring of one
    finally:
        torch.cuda.synchronize()
        gc.collect()  # graphs that hold messages must go before the process group
        dist.destroy_process_group()
    assert_close(captured, eager, rtol=1e-6, atol=1e-7)
    assert_close(captured, weights(Captured), rtol=1e-6, atol=1e-7)


def test_a_compiled_backbone_trains_as_a_plain_one():
    ensemble = heads_on_a_backbone()
    with compiled_forward(ensemble.backbone):
        compiled = trained(Captured(transform()), ensemble=ensemble)
    plain = trained(Eager(transform()), ensemble=heads_on_a_backbone())
    assert_close(compiled, plain, rtol=1e-6, atol=1e-7)


def test_execution_strategies_agree():
    inputs = torch.randn(B, 3, 16, 16, device="cuda", dtype=torch.float64)
    outputs = [members(strategy)(inputs) for strategy in (Loop(), Grouped(), Compiled(Grouped()))]
    for other in outputs[1:]:
        assert_close(other, outputs[0], rtol=1e-8, atol=1e-8)


def test_two_streams_give_the_numbers_of_one():
    two = trained(Captured(transform()), Grouped())
    second_stream, streams._second_stream = streams._second_stream, torch.cuda.current_stream
    try:
        one = trained(Captured(transform()), Grouped())
    finally:
        streams._second_stream = second_stream
    assert_close(two, one, rtol=1e-6, atol=1e-7)


def test_preparing_ahead_is_preparing_within_the_step():
    ahead = trained(Captured(transform()), Grouped(), epochs=5)
    second_graph, graphs.Ahead = graphs.Ahead, lambda *_: None
    try:
        within = trained(Captured(transform()), Grouped(), epochs=5)
    finally:
        graphs.Ahead = second_graph
    assert_close(ahead, within, rtol=1e-6, atol=1e-7)


def test_preparing_ahead_waits_for_new_rows():
    """A long queue before each step's rows, which are new every time: the second graph must not overtake it."""
    weights = []
    for busy in (False, True):
        ensemble, method, data = members(Grouped()), functional(), images()
        optimizer = torch.optim.SGD(ensemble.parameters(), lr=torch.tensor(0.05, device="cuda"), fused=True)
        generator = torch.Generator("cuda").manual_seed(1)
        state = TrainState(ensemble, method, [optimizer], [], generator)
        advance = Captured(transform()).start(state, data, B)
        for number in range(4):
            if busy:
                torch.cuda._sleep(100_000_000)
            advance(torch.arange(B, device="cuda") + B * number)
        weights.append(torch.cat([p.detach().flatten() for p in ensemble.parameters()]))
        torch.cuda.synchronize()
    assert_close(*weights, rtol=1e-6, atol=1e-7)


def test_captured_steps_leave_the_generator_where_eager_ones_do():
    states = []
    for stepping in (Captured(transform()), Eager(transform())):
        generator = torch.Generator("cuda").manual_seed(1)
        trained(stepping, Grouped(), generator=generator)
        states.append(generator.get_state())
    assert torch.equal(*states)


def test_an_error_on_the_side_stream_is_raised_unchanged():
    x = torch.ones(2, device="cuda")
    try:
        with SideStream(x).using():
            raise KeyError("unchanged")
    except KeyError as error:
        assert "unchanged" in str(error)
    assert x.sum().item() == 2


def test_a_captured_run_resumes():
    with tempfile.TemporaryDirectory() as folder:
        trained(Captured(transform()), Grouped(), epochs=1, checkpoints=Checkpoints(folder))
        resumed = trained(Captured(transform()), Grouped(), epochs=2, checkpoints=Checkpoints(folder))
    assert_close(resumed, trained(Captured(transform()), Grouped(), epochs=2), rtol=1e-6, atol=1e-7)


def test_dropout_resumes_where_it_was():
    """It draws from the GPU's own generator, in captured steps too."""

    def network():
        return nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Dropout(), nn.Linear(8, 4))

    def run(stepping, epochs, checkpoints=None):
        torch.manual_seed(2)
        parts = {"ensemble": Ensemble(network, 3).cuda().double(), "method": functional(), "rate": 1e-3}
        return trained(stepping(transform()), epochs=epochs, checkpoints=checkpoints, **parts)

    for stepping in (Eager, Captured):
        with tempfile.TemporaryDirectory() as folder:
            run(stepping, 1, Checkpoints(folder))
            resumed = run(stepping, 2, Checkpoints(folder))
        assert_close(resumed, run(stepping, 2), rtol=1e-6, atol=1e-7)


def reading_a_value():
    """A method whose loss reads a value on the CPU, which a graph cannot hold."""
    method = functional()
    plain = method.loss

    def loss(outputs, *arguments, **options):
        assert float(outputs.sum()) != 0.5
        return plain(outputs, *arguments, **options)

    method.loss = loss
    return method


def test_a_step_that_cannot_be_captured_runs_eagerly_with_a_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weights = trained(Captured(transform()), Grouped(), method=reading_a_value())
    assert any("they cannot be captured" in str(warning.message) for warning in caught)
    assert torch.randn(8, device="cuda").isfinite().all()  # by torch's own generator, which was in the graph too
    expected = trained(Eager(transform(), even=True), Grouped(), method=reading_a_value())
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


def test_our_kernels_compute_narrow_convolutions():
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
            for name, plain, arguments in (
                ("chain", chains.one_by_one, (x.relu(), stack)),
                ("narrow", narrow.plain, (x, stack[:, 0], False)),
                ("narrow", narrow.plain, (x, stack[:, 0], True)),
                ("kernel_gradient", narrow.plain_gradient, (x, dy, stack[:, 0])),
            ):
                exact = plain(*(a.double() if torch.is_tensor(a) else a for a in arguments))
                halves = [a.to(precision) if torch.is_tensor(a) else a for a in arguments]
                ours, usual = (
                    (y.double() - exact).norm() / exact.norm()
                    for y in (getattr(triton_convolutions, name)(*halves), plain(*halves))
                )
                assert ours < 1.2 * usual + 1e-4, (name, precision, ours, usual)


def test_the_operations_are_valid_for_torch_compile():
    x, dy = torch.randn(2, 4, 32, 32, 32, device="cuda").bfloat16()
    stack = torch.randn(2, 3, 16, 3, 3, 16, device="cuda").bfloat16()
    torch.library.opcheck(torch.ops.degp.chain.default, (x, stack))
    torch.library.opcheck(torch.ops.degp.narrow.default, (x, stack[:, 0], True))
    torch.library.opcheck(torch.ops.degp.narrow_kernel_gradient.default, (x, dy, stack[:, 0]))


def test_members_in_half_precision_have_the_gradients_of_a_loop():
    inputs = torch.randn(B, 3, 32, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    found = []
    for strategy in (Compiled(Grouped()), Grouped(), Loop()):
        torch.manual_seed(0)
        ensemble = Ensemble(lambda: resnet(8, 4), 3, execution=strategy).cuda()
        with torch.autocast("cuda", torch.bfloat16, enabled=strategy != Loop()), warnings.catch_warnings():
            warnings.filterwarnings("error", message="convolutions run in plain PyTorch")
            loss = ensemble(inputs).float().square().mean()
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(ensemble.parameters()))]))
    for other in found[:2]:
        assert (other - found[2]).norm() < 0.05 * found[2].norm()


def test_the_prior_is_the_same_by_our_kernels():
    x = torch.randn(32, 3, 32, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    grams = []
    for strategy in (Compiled(Grouped()), Grouped(), Loop()):
        prior = MonteCarloNNGP(lite_resnet_features(20), execution=strategy).cuda()
        kernel = prior.kernel(generator=torch.Generator("cuda").manual_seed(1))
        with torch.autocast("cuda", torch.bfloat16, enabled=strategy != Loop()), warnings.catch_warnings():
            warnings.filterwarnings("error", message="convolutions run in plain PyTorch")
            grams.append(kernel(x, x))
    assert_close(grams[0], grams[1], rtol=0.02, atol=0.02)
    assert_close(grams[0], grams[2], rtol=0.05, atol=0.05)


def test_bandits_play_on_a_gpu():
    greedy = EpsilonGreedy(0.1)
    for method, rule in (*((kind, ThompsonSampling()) for kind in Kind), (Kind.DE, greedy)):
        config = AgentConfig(method=method, rule=rule, hidden_layers=(8,), members=2 if rule == greedy else 3, steps=2)
        agent = EnsembleAgent(Problem(4, 3), config, generator=torch.Generator("cuda").manual_seed(0))
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
        regressor = DEGPRegressor(steps=120, device="cuda", random_state=0).fit(X, y, sample_weight=1 + X[:, 2] ** 2)
        classifier = DEGPClassifier(steps=60, device="cuda", random_state=0).fit(X, y > 0)
    assert regressor.score(X, y) > 0.95
    assert classifier.score(X, y > 0) > 0.9


def test_heads_are_attached_by_graphs():
    """Also to a network that is nothing but its last layer, so that the backbone has no weights."""
    x = torch.randn(200, 3, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    real = torch.stack([x[:, 0], 100 + 50 * x[:, 1]], 1)
    torch.manual_seed(0)
    for network, targets in ((mlp(3, (8,), 2), real), (mlp(3, (), 2), (x[:, 0] > 0).long())):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            unseen = Batch(x[160:], targets[160:])
            attached = attach(
                network.cuda(),
                Batch(x[:160], targets[:160]),
                validation=unseen,
                members=8,
                width=32,
                steps=200,
                progress=False,
            )
        prediction = attached.predict(x)
        assert prediction.total.device.type == "cuda"
        if targets is real:
            assert ((prediction.mean - real).square().mean(0).sqrt() < 0.5 * real.std(0)).all()
        else:
            assert (prediction.probabilities.argmax(1) == targets).float().mean() > 0.9


def image_recipe():
    prior = PriorNetworks(lambda: lite_resnet_features(8))
    return Recipe(lambda: resnet(8, 4), prior, CIFAR10_SCALE, members=3, epochs=2, batch_size=B)


def test_a_recipe_trains_by_graphs_and_leaves_the_compiler_settings_as_they_were():
    before = torch._dynamo.config.recompile_limit
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="steps run eagerly")
        run = train(image_recipe(), images(), seed=0, progress=False)
    assert run.ensemble.execution == CompiledForTraining(Grouped())
    assert all(torch.tensor(run.history.column("loss")).isfinite())
    assert torch._dynamo.config.recompile_limit == before


def test_saved_image_members_are_evaluated_grouped():
    recipe = image_recipe()
    ensemble, method = initialise(recipe, seed=0, device="cuda")  # as `load_members` makes them
    loaded = Trained(recipe, 0, ensemble, method, History())
    grouped = loaded.outputs(images().inputs)
    assert ensemble.execution == CompiledForTraining(Grouped())
    ensemble.execution = Loop()
    plain = loaded.outputs(images().inputs)
    assert (grouped - plain).norm() < 0.01 * plain.norm()  # convolutions in TF32


def test_the_analytic_kernel_is_that_of_the_cpu():
    x = torch.randn(20, 5, dtype=torch.float64)
    kernel = NNGP(2).kernel()
    assert_close(kernel(x.cuda(), x.cuda()).cpu(), kernel(x, x), rtol=1e-8, atol=1e-8)


def test_a_copy_on_the_cpu_computes_the_same():
    ensemble = Ensemble(lambda: mlp(3, (8,), 1), 4).cuda()
    other = copy.deepcopy(ensemble).cpu()
    x = torch.randn(5, 3)
    assert_close(ensemble(x.cuda()).cpu(), other(x), rtol=1e-4, atol=1e-5)


def main(*parts):
    """Runs the tests with one of these in their names, by default all, and returns how many failed."""
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_") and any(part in name for part in parts or ("",)):
            try:
                test()
            except Exception:
                failed += 1
                print(f"{name}:\n{traceback.format_exc()}", flush=True)
            else:
                print(f"{name}: passed", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
