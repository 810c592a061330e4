"""Members attached to a trained network: near the exact process on its features, the network untouched, one folder."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from degp import Batch, Unpacked, attach
from degp.attached import Attached
from degp.attached.attaching import _require_generator_on, _require_network
from degp.attached.components import scaled_components
from degp.ensemble.backbones import bare
from degp.features import features_of
from degp.graph import run_onnx
from degp.nets import mlp
from degp.priors import ExactGP
from degp.priors.labels import as_real
from tests.fixtures import normal, seeded

X = normal(80, 4, dtype=torch.float32)
NEW = normal(20, 4, seed=1, dtype=torch.float32)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()


class Body(nn.Module):
    """A network of the user's own, with BatchNorm and Dropout, left in training mode."""

    def __init__(self, outputs):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Dropout(0.2)
        self.head = nn.Linear(12, outputs)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.first(x)).tanh()))


def trained(outputs):
    torch.manual_seed(0)
    network = Body(outputs)
    for _ in range(20):
        network(X)
    return network


def quick(network, targets, **options):
    loader = DataLoader(TensorDataset(X, targets), 32, shuffle=True)
    settings = {"members": 16, "width": 64, "steps": 60, "batch_size": 80, "generator": seeded(), "progress": False}
    return attach(network, loader, **settings | options)


def real():
    return 300 + 50 * (X[:, 0].sin() + X[:, 1]) + 2 * normal(80, seed=2, dtype=torch.float32)


def test_regression_is_near_the_exact_process_on_the_features():
    network, y = trained(1), real()
    before = copy.deepcopy(network.state_dict())
    attached = quick(network, y, steps=500)
    prediction = attached.predict(NEW)
    scales = attached.scales
    features, points = (features_of(attached.ensemble.backbone, inputs) for inputs in (X, NEW))
    unit = float(y.std(correction=0))
    exact = ExactGP.fit(scales.nngp(), features, ((y - y.mean()) / unit)[:, None], noise_variance=scales.noise_variance)
    mean = float(y.mean()) + unit * exact.mean(points)
    assert float((prediction.mean - mean).square().mean().sqrt()) < 0.2 * unit
    ratio = prediction.epistemic.mean().sqrt() / (unit * exact.variance(points).mean().sqrt())
    assert 0.5 < float(ratio) < 2.0
    truth = 300 + 50 * (NEW[:, :1].sin() + NEW[:, 1:2])
    assert float((prediction.mean - truth).square().mean().sqrt()) < 0.5 * unit
    assert 0 < float(prediction.epistemic.min())
    assert_close(dict(network.state_dict()), dict(before), rtol=0, atol=0)
    assert all(part.training for part in network.modules())
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_classes_are_learned_as_well_as_by_the_exact_process():
    """On the same features, with the labels as real targets."""
    attached = quick(trained(3), LABELS, steps=300)
    probabilities, scales = attached.predict(X, generator=seeded()).probabilities, attached.scales
    features = features_of(attached.ensemble.backbone, X)
    exact = ExactGP.fit(scales.nngp(), features, as_real(LABELS, 3), noise_variance=scales.noise_variance)
    own, best = ((values.argmax(1) == LABELS).float().mean() for values in (probabilities, exact.mean(features)))
    assert own > best - 0.05 and best > 0.75  # the largest class has half of the points
    assert probabilities.shape == (80, 3)


def of_direction(count=200):
    """Points whose length says nothing of their target."""
    direction = nn.functional.normalize(normal(count, 4, seed=5, dtype=torch.float32))
    length = 3 * normal(count, 1, seed=6, dtype=torch.float32).exp()
    return length * direction, 3 * direction[:, :1] * direction[:, 1:2] + direction[:, 2:3]


def of_one_component(count=200):
    inputs = torch.tensor([4.0, 2.0, 1.0, 0.5]) * normal(count, 4, seed=7, dtype=torch.float32)
    return inputs, (2 * inputs[:, 2:3]).sin()


@pytest.mark.parametrize("made, unit_length", [(of_direction, True), (of_one_component, False)])
def test_the_form_of_inputs_is_what_predicts_held_out_rows(made, unit_length):
    inputs, targets = made()
    rows = Batch(inputs, (targets - targets.mean(0)) / targets.std(0) + 0.1 * normal(200, 1, dtype=torch.float32))
    layers, scales = scaled_components(rows, 4, generator=seeded())
    assert isinstance(layers[-1], nn.RMSNorm) == unit_length
    assert (len(set(scales.relevance)) > 1) != unit_length


def test_labels_that_depend_on_one_component_take_a_relevance_per_component():
    inputs, targets = of_one_component()
    labels = (targets[:, 0] > targets.median()).long()
    layers, scales = scaled_components(Batch(inputs, as_real(labels, 2)), 4, labels=labels, generator=seeded())
    assert not isinstance(layers[-1], nn.RMSNorm) and len(set(scales.relevance)) > 1


def test_labels_do_not_take_a_relevance_per_component_by_chance():
    """As real targets, many components of noise are predicted better with relevances of their own; classes are not."""
    centres = normal(5, 40, seed=3, dtype=torch.float32)
    labels = torch.arange(300) % 5
    inputs = 0.6 * centres[labels] + normal(300, 40, seed=4, dtype=torch.float32)
    layers, scales = scaled_components(Batch(inputs, as_real(labels, 5)), 40, labels=labels, generator=seeded())
    assert isinstance(layers[-1], nn.RMSNorm) and len(set(scales.relevance)) == 1


@pytest.mark.parametrize("network", [None, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))], ids=["alone", "given"])
def test_features_of_equal_length_are_saved_too(network, tmp_path):
    inputs, targets = of_direction()
    body = nn.Linear(4, 4)
    nn.init.eye_(body.weight)
    options = {"members": 4, "width": 8, "steps": 1, "generator": seeded(), "progress": False}
    attached = attach(nn.Sequential(body, nn.Linear(4, 1)), Batch(inputs, targets), **options)
    attached.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", network)
    assert isinstance(loaded.ensemble.backbone[-1], nn.RMSNorm)
    assert_close(loaded.predict(NEW).std, attached.predict(NEW).std)


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_predictor_is_one_folder(kind, tmp_path):
    network = trained(1)
    targets = real() if kind == "regression" else (X[:, 0] > 0).long()
    attached = quick(network, targets, steps=2)
    attached.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", Body(1))
    expected, found = (p.predict(NEW, generator=seeded()) for p in (attached, loaded))
    assert_close(found.total, expected.total)
    assert_close(found.epistemic, expected.epistemic)


def test_a_sequential_network_needs_nothing_but_its_folder(tmp_path):
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    attached = quick(network, real(), steps=1)
    attached.save(tmp_path / "model")
    assert_close(Attached.load(tmp_path / "model").predict(NEW).std, attached.predict(NEW).std)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_predictor_is_one_graph(kind, tmp_path):
    pytest.importorskip("onnxruntime")
    targets = real() if kind == "regression" else (X[:, 0] > 0).long()
    attached = quick(trained(1), targets, steps=2)
    path = attached.export(X[:2], tmp_path / "model.onnx", generator=seeded())
    for rows in (NEW, NEW[:1]):
        outputs, expected = run_onnx(path, rows.numpy()), attached.predict(rows, generator=seeded())
        unit = 50.0 if kind == "regression" else 1.0
        for name in ("epistemic", "aleatoric", "total"):
            assert_close(
                torch.tensor(outputs[name]) / unit**2, getattr(expected, name).float() / unit**2, rtol=1e-4, atol=1e-5
            )


class Backwards(nn.Module):
    """Its last layer is not the last that it defines."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(8, 1), nn.Linear(4, 8)

    def forward(self, x):
        return self.head(self.body(x).tanh())


class Deep(nn.Module):
    """A convolutional network whose last layer lies inside another module."""

    def __init__(self, outputs=3):
        super().__init__()
        self.body = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 5, 2), nn.BatchNorm2d(5), nn.Dropout2d(0.3))
        self.head = nn.ModuleDict({"pool": nn.Flatten(), "fc": nn.Linear(5, outputs)})

    def forward(self, x):
        return self.head["fc"](self.head["pool"](self.body(x)))


class Convolutional(nn.Module):
    """Ends with a 1 × 1 convolution, and the mean over the places of its ReLU, as SqueezeNet."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 6, 2, padding=1), nn.Conv2d(6, 3, 1)

    def forward(self, x):
        return self.head(self.body(x.unflatten(1, (1, 2, 2))).tanh()).relu().mean((2, 3))


@pytest.mark.slow
def test_a_convolution_may_be_the_last_layer(tmp_path):
    pytest.importorskip("onnxruntime")
    attached = quick(Convolutional(), LABELS, steps=100)
    assert attached.layer == "head"
    assert (attached.predict(X).probabilities.argmax(1) == LABELS).float().mean() > 0.6
    attached.save(tmp_path / "model")
    expected = attached.predict(NEW, generator=seeded()).probabilities
    loaded = Attached.load(tmp_path / "model", Convolutional())
    assert_close(loaded.predict(NEW, generator=seeded()).probabilities, expected)
    path = attached.export(X[:2], tmp_path / "model.onnx", generator=seeded())
    assert_close(torch.tensor(run_onnx(path, NEW.numpy())["probabilities"]), expected, rtol=0, atol=1e-5)


class Pair(nn.Module):
    """Takes two arguments."""

    def __init__(self):
        super().__init__()
        self.inner, self.fc = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, left, right):
        return self.fc(self.inner(left - right).tanh())


class Squeezed(Backwards):
    """Returns its single target without a column."""

    def forward(self, x):
        return super().forward(x).squeeze(-1)


@pytest.mark.parametrize(
    "network, layer",
    [
        (Backwards(), "head"),
        (Deep(1), "head.fc"),
        (Squeezed(), "head"),
        (torch.compile(mlp(4, [8], 1)), "2"),
        (nn.DataParallel(Backwards()), "head"),
    ],
    ids=["defined first", "inside", "squeezed", "compiled", "parallel"],
)
def test_the_last_layer_is_found_by_what_it_computes(network, layer, tmp_path):
    attached = quick(network, real(), steps=1)
    assert attached.layer == layer
    plain = bare(network)
    assert quick(plain, real(), layer=layer, steps=1).layer == layer
    attached.save(tmp_path / "model")
    for same in (network, plain):
        assert_close(Attached.load(tmp_path / "model", same).predict(NEW).std, attached.predict(NEW).std)


@dataclass
class Answer:
    """What a network of one's own may return."""

    logits: Tensor


RECORDS = {
    "record": (Answer, "logits"),
    "dictionary": (lambda logits: {"logits": logits, "loss": None}, "logits"),
    "dictionary of another name": (lambda logits: {"scores": logits}, "scores"),
    "tuple": (lambda logits: (logits, 0 * logits), 0),
}


class Recording(Body):
    """Returns its logits in a record."""

    def __init__(self, kind):
        super().__init__(3)
        self.kind = kind

    def forward(self, x):
        return self.kind(super().forward(x))


@pytest.mark.parametrize("kind, output", RECORDS.values(), ids=RECORDS.keys())
def test_a_network_may_return_a_record(kind, output, tmp_path):
    network = Recording(kind) if output == "logits" else Unpacked(Recording(kind), output)
    attached = quick(network, LABELS, steps=1)
    attached.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", Recording(kind))
    one, two = (each.predict(NEW, generator=seeded()).probabilities for each in (attached, loaded))
    assert_close(one, two)


def test_the_network_is_loaded_into_its_own_architecture(tmp_path):
    attached = quick(Backwards(), real(), steps=1)
    attached.save(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"a network that is your own code, .*; pass it: Attached.load\(folder, network"
    ):
        Attached.load(tmp_path / "model")
    with pytest.raises(ValueError, match="with a layer 'head', but this Sequential has none; pass the same architect"):
        Attached.load(tmp_path / "model", mlp(4, [8], 1))


def test_the_same_generator_gives_the_same_heads():
    """Whatever the state of torch's own generator."""
    results = []
    for seed in (0, 1):
        network = trained(3)
        torch.manual_seed(seed)
        loader = DataLoader(TensorDataset(X, LABELS), 32)
        options = {"members": 8, "width": 16, "steps": 10, "generator": seeded(), "progress": False}
        results.append(attach(network, loader, **options).predict(NEW, generator=seeded()).probabilities)
    assert_close(*results, rtol=0, atol=0)


def test_arguments_may_be_separate(tmp_path):
    loader = [((X[:40], X[40:]), LABELS[:40])]
    attached = attach(Pair(), loader, members=4, steps=1, progress=False)
    pair = (NEW, NEW.flip(0))
    expected = attached.predict(pair, generator=seeded()).probabilities
    attached.save(tmp_path / "model")
    assert_close(Attached.load(tmp_path / "model", Pair()).predict(pair, generator=seeded()).probabilities, expected)


class Loud(nn.Module):
    """Notes how many rows it sees at a time."""

    def __init__(self):
        super().__init__()
        self.inner, self.fc, self.rows = nn.Linear(4, 8), nn.Linear(8, 1), []

    def forward(self, x):
        self.rows.append(len(x))
        return self.fc(self.inner(x).tanh())


def test_networks_see_few_points_at_a_time():
    attached = quick(Loud(), real(), steps=1)
    own = attached.ensemble.backbone[0]
    own.rows.clear()
    attached.predict(NEW, batch_size=8)
    assert own.rows == [8, 8, 4]


def test_a_generator_loses_no_batch():
    """The first batch is looked at, and trained on too."""
    seen = (pair for pair in TensorDataset(X, real()[:, None]))
    batches = ((x[None], y[None]) for x, y in seen)
    attached = attach(Backwards(), batches, members=4, steps=1, progress=False, generator=seeded())
    whole = attach(
        copy.deepcopy(attached_network(attached)), Batch(X, real()[:, None]), members=4, steps=1, progress=False
    )
    assert_close(attached.method.likelihood.offset, whole.method.likelihood.offset)


def attached_network(attached):
    return nn.Sequential(attached.ensemble.backbone[0], nn.Linear(8, 1))


def test_each_target_has_its_own_unit_and_noise():
    """Scaling one target scales its own prediction, and leaves the other's as it is."""
    y = torch.stack([X[:, 0].sin(), X[:, 1] + 0.3 * normal(80, seed=4, dtype=torch.float32)], 1)
    units = torch.tensor([1e-3, 1e4])
    plain, scaled = (quick(trained(2), 5 + targets).predict(NEW) for targets in (y, units * y))
    assert_close((scaled.mean - 5) / units, plain.mean - 5, rtol=0.02, atol=0.05)
    for part in ("epistemic", "aleatoric", "total"):
        assert_close(getattr(scaled, part) / units.square(), getattr(plain, part), rtol=0.05, atol=1e-4)
    noise = plain.aleatoric[0]
    assert noise[1] > 2 * noise[0]


def test_precision_is_the_networks():
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    loader = DataLoader(TensorDataset(X.double(), real().double()), 32)
    assert attach(network, loader, members=4, steps=1, progress=False).predict(NEW.double()).std.dtype == torch.float64


def test_weights_count():
    """Points of weight zero might as well not be there."""
    y = real()[:, None]
    w = torch.cat([torch.full((40,), 2.0), torch.zeros(40)])
    wrong = torch.cat([y[:40], 1000 + y[40:]])
    options = {"members": 8, "width": 32, "steps": 100, "progress": False, "generator": seeded()}
    prediction = attach(trained(1), Batch(X, wrong, weights=w), **options).predict(NEW)
    assert float((prediction.mean - y.mean()).abs().mean()) < 150


def test_classes_may_be_told():
    assert quick(trained(5), LABELS, classes=5, steps=1).predict(NEW).probabilities.shape == (20, 5)
    assert quick(trained(1000), LABELS, classes=3, steps=1).predict(NEW).probabilities.shape == (20, 3)
    binary = quick(trained(1), X[:, 0] > 0, steps=1)
    assert binary.predict(NEW).probabilities.shape == (20, 2)
    few = LABELS < 2
    loader = DataLoader(TensorDataset(X[few], LABELS[few]), 32, drop_last=True)  # the last class is missing
    options = {"members": 4, "width": 8, "steps": 1, "progress": False}
    assert attach(trained(3), loader, classes=3, **options).predict(NEW[:1]).probabilities.shape == (1, 3)


@pytest.mark.parametrize(
    "form", [Tensor.int, lambda y: y.to(torch.uint8), lambda y: y[:, None], lambda y: y[:, None].short()]
)
def test_labels_may_come_in_any_form_of_whole_numbers(form):
    expected, found = (quick(trained(3), y, steps=1).predict(NEW, generator=seeded()) for y in (LABELS, form(LABELS)))
    assert_close(found.probabilities, expected.probabilities)


def test_labels_as_real_numbers_are_pointed_out():
    with pytest.warns(UserWarning, match="are whole numbers, and the network has 3 outputs; pass classes=3"):
        quick(trained(3), LABELS.float(), steps=1)


BAD = {
    "layer": (
        lambda: quick(Backwards(), real(), layer="x"),
        r"linear layer .*, but 'x' is none; there are: head, body",
    ),
    "no layer": (lambda: quick(nn.Flatten(), LABELS), "a linear layer of the network, but it has none"),
    "meta": (lambda: quick(Backwards().to("meta"), real()), "weights must be loaded, but some are on the meta device"),
    "missing class": (
        lambda: quick(trained(5), LABELS),
        r"network's 5 outputs, but they reach from 0 to 2; pass classes",
    ),
    "years": (lambda: quick(trained(1), 1900 + LABELS), r"from 1900 to 1902; pass classes=.*, or real targets as"),
    "ignored": (lambda: quick(trained(3), LABELS - 100 * (LABELS == 0)), "labels must lie in 0 … 2, .* from -100 to 2"),
    "one-hot": (
        lambda: quick(trained(3), nn.functional.one_hot(LABELS)),
        r"whole numbers, one per point .*; use targets.argmax\(1\) of one-hot rows",
    ),
    "NaN": (lambda: quick(trained(1), real() / (LABELS > 0)), "targets must be finite"),
    "nothing": (lambda: attach(trained(1), []), "need data to train on, but there is no batch"),
    "equal": (
        lambda: attach(trained(1), [(0 * X, real())]),
        "features must differ between points, but those of all 80",
    ),
    "lazy": (lambda: quick(nn.LazyLinear(1), real()), "of a lazy layer without a shape"),
    "NaN input": (
        lambda: attach(trained(1), [(torch.where(X > 2, torch.nan, X), real())]),
        r"features must be finite, but those of \d of 80 points have NaN .* is point \d+; drop these points",
    ),
    "new NaN": (lambda: quick(trained(1), real(), steps=1).predict(NEW * torch.nan), "inputs must be finite"),
    "one point": (
        lambda: attach(trained(1), [(X[:1], real()[:1])]),
        "at least two points to differ on, but there is 1",
    ),
    "no batch": (
        lambda: attach(trained(1), DataLoader(TensorDataset(X, real()), 100, drop_last=True)),
        "or batch_size above the number of points with drop_last=True",
    ),
    "other inputs": (
        lambda: attach(trained(1), [(NEW[:, :3], real()[:20])]),
        r"fails on the first batch, \(20, 3\) of torch.float32, with: .*; give it inputs as in its training",
    ),
    "few classes": (
        lambda: quick(trained(3), LABELS, classes=2),
        "and above all labels, but it is 2, and labels reach",
    ),
    "no classes": (lambda: quick(trained(3), LABELS, classes=0), "classes must be at least 2"),
    "real classes": (lambda: quick(trained(1), real(), classes=3), "classes=3 needs whole-number labels or one-hot"),
    "cube": (lambda: quick(trained(1), real()[:, None, None]), r"real targets must be floating-point rows"),
    "one member": (lambda: quick(trained(1), real(), members=1), "members must be at least 2, but it is 1"),
    "no step": (lambda: quick(trained(1), real(), steps=0), "steps must be at least 1, but it is 0"),
}
NO_NETWORK = {
    "scripted": (
        lambda: quick(torch.jit.script(nn.Linear(4, 1)), real()),
        "traced network cannot be taken apart",
    ),
    "seed": (lambda: _require_generator_on(X.device, 0), r"it is a int; pass torch.Generator\('cpu'\).manual_seed"),
    "name": (lambda: _require_network("resnet18"), "must be a trained torch.nn.Module, but it is a str"),
    "arrays": (lambda: attach(trained(1), (X, real())), r"it is a Tensor; .* whole arrays as degp.data.as_batch"),
    "record": (
        lambda: quick(Recording(lambda logits: {"scores": logits}), LABELS),
        r"or a record with 'logits', but it returns scores; name the tensor to take as Unpacked",
    ),
    "tuple": (
        lambda: quick(Recording(lambda logits: (logits, logits)), LABELS),
        r"but it returns a tuple of 2, to name by 0, 1, …; name the tensor",
    ),
}


@pytest.mark.parametrize("work, message", NO_NETWORK.values(), ids=NO_NETWORK.keys())
def test_other_objects_are_refused(work, message):
    with pytest.raises(TypeError, match=message):
        work()


@pytest.mark.parametrize("work, message", BAD.values(), ids=BAD.keys())
def test_unsuitable_networks_and_targets_are_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()
