"""The image experiments' protocols: assessment, ensemble sizes, corruptions, deadlines and figures."""

import math
import multiprocessing
from dataclasses import replace

import pytest
import torch

from degp.likelihoods import Categorical
from degp.methods import with_likelihood
from degp.report.figures import save_figure
from degp.runtime.execution import Vmap
from degp.training import Checkpoints
from degp.typing import Batch
from degp.vision import PooledTemperature, TemperatureScaled, TwoTemperatures, class_scores, fit_temperatures
from experiments.data.corruptions import corrupt
from experiments.protocols import image_records
from experiments.protocols.assessment import assess, by_size, constant_share
from experiments.protocols.corruption_table import corruption_table
from experiments.protocols.deadline import Deadline, OutOfTime
from experiments.protocols.image_figures import box_panels, line_panels
from experiments.protocols.image_names import display
from experiments.protocols.image_records import add_record, add_rows, load_records, load_rows
from experiments.protocols.image_runs import Run, train_in_time
from experiments.protocols.image_sets import hold_out
from tests.vision.cases import SETS, example, recipe


def at(temperature):
    """The example's predictive distribution at this temperature."""
    return TemperatureScaled(with_likelihood(example().method, Categorical(temperature)))


def test_assessment_has_all_scores():
    assessment, labels = assess(example(), SETS), SETS.test.targets
    scores, outputs = assessment.scores, example().outputs(SETS.test.inputs)
    assert {"nll_unfitted", "ece_unfitted", "member_accuracy", "temperature", "temperature_trained"} < scores.keys()
    p = TemperatureScaled(example().method)(outputs).probabilities
    two = TwoTemperatures(at(scores["temperature_functions"]), PooledTemperature(scores["temperature_average"]))
    calibrated = class_scores(two(outputs), labels)
    assert (scores["nll_calibrated"], scores["ece_calibrated"]) == pytest.approx((calibrated["nll"], calibrated["ece"]))
    assert scores["nll_unfitted"] == pytest.approx(class_scores(p, labels)["nll"])
    held_out = at(scores["temperature"])(example().outputs(SETS.validation.inputs)).probabilities
    expected = class_scores(held_out, SETS.validation.targets)
    selected_by = (scores["accuracy_validation"], scores["nll_validation"])
    assert selected_by == pytest.approx((expected["accuracy"], expected["nll"]))
    assert scores["temperature_trained"] == pytest.approx(example().likelihood.temperature.item())
    assert assessment.error_curve is not None
    assert assess(example(), replace(SETS, ood=None)).error_curve is None


def test_assessment_has_the_temperatures_of_fit_temperatures():
    calibrated, scores = fit_temperatures(example(), SETS.validation), assess(example(), SETS).scores
    outputs = example().outputs(SETS.test.inputs)
    assert calibrated.one_temperature.temperature == pytest.approx(scores["temperature"])
    assert calibrated.scores(outputs, SETS.test.targets).items() <= scores.items()


def test_the_constant_share_of_a_spread_is_recovered():
    generator = torch.Generator().manual_seed(0)
    constants, rest = (
        torch.randn(20, *shape, generator=generator, dtype=torch.float64) for shape in ((1, 3), (5000, 3))
    )
    mean = torch.randn(1, 5000, 3, generator=generator, dtype=torch.float64)
    for share in (0.0, 0.3, 1.0):
        parts = (constants / constants.var(0).mean().sqrt(), rest / rest.var(0).mean().sqrt())
        outputs = mean + share**0.5 * parts[0] + (1 - share) ** 0.5 * parts[1]
        assert constant_share(outputs) == pytest.approx(share, abs=0.03)
        assert constant_share(5 * outputs) == pytest.approx(constant_share(outputs))


@pytest.mark.parametrize("method", ["rde", "degp"])
def test_the_last_of_the_sizes_is_the_whole_ensemble(method):
    rows = by_size(example(method), SETS)
    assert [row["size"] for row in rows] == [1, 2, 3]
    assert rows[-1]["nll"] == pytest.approx(assess(example(method), SETS).scores["nll"])


@pytest.mark.parametrize("method", ["rde", "degp"])
def test_each_size_has_the_temperature_of_its_own_members(method):
    trained = example(method)
    validation, test = (trained.outputs(part.inputs) for part in (SETS.validation, SETS.test))
    temperatures = set()
    for row in by_size(trained, SETS):
        members = slice(row["size"])
        scaled = TemperatureScaled(trained.method).fitted(validation[members], SETS.validation.targets)
        assert row["nll"] == class_scores(scaled(test[members]).probabilities, SETS.test.targets)["nll"]
        temperatures.add(round(scaled.temperature, 3))
    assert len(temperatures) == 3  # so that another size's would show


def test_the_corruption_table_has_one_row_per_type_and_severity():
    options = {"types": ("contrast", "frost", "fog"), "severities": (1, 5)}
    rows = corruption_table(example("de"), SETS, **options)
    assert [(row["corruption"], row["severity"]) for row in rows] == [
        ("none", 0),
        *((name, severity) for name in ("contrast", "fog") for severity in (1, 5)),  # no frost without overlays
    ]
    assert rows == corruption_table(example("de"), SETS, **options)
    assert rows[0]["nll"] == pytest.approx(assess(example("de"), SETS).scores["nll"])


def test_each_row_of_the_corruption_table_is_of_images_at_its_severity():
    calibrated = fit_temperatures(example("de"), SETS.validation)
    clean, *rows = corruption_table(example("de"), SETS, types=("contrast", "fog"), severities=(1, 3, 5))
    for row in rows:
        generator = torch.Generator().manual_seed(0)
        images = corrupt(SETS.test.inputs, row["corruption"], row["severity"], generator=generator)
        scores = calibrated.scores(example("de").outputs(images), SETS.test.targets)
        assert scores == {name: row[name] for name in scores}
    assert len({row["nll"] for row in (clean, *rows)}) == 7  # so that another severity would show


@pytest.mark.parametrize("progress", [True, False, None])
def test_long_corruption_tables_show_progress(capsys, monkeypatch, progress):
    monkeypatch.setattr("degp.runtime.progress.LINE_SECONDS", 0.0)
    corruption_table(example("de"), SETS, types=("contrast",), severities=(1, 2), progress=progress)
    assert ("set 2 of 2:" in capsys.readouterr().err) == bool(progress)  # the output is no terminal


def test_rows_held_out_are_not_trained_on():
    data = Batch(torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1), torch.arange(20))
    rest, held_out = hold_out(data, 5)
    assert sorted([*rest.targets.tolist(), *held_out.targets.tolist()]) == list(range(20))
    assert (len(held_out), rest.population) == (5, 15)
    with pytest.raises(ValueError, match="rows held out must be some of 20 and leave others, but they are to be 20"):
        hold_out(data, 20)


def test_a_deadline_counts_the_remaining_work():
    assert Deadline().allows(1e9)
    assert Deadline(1.0).allows(30.0)
    assert not Deadline(1.0).allows(90.0)


class AfterTheFirstEpoch(Deadline):
    """Refuses the next epoch, by the length of the last one."""

    def allows(self, seconds=0.0):
        assert seconds > 0
        return False


def test_training_out_of_time_reports_its_progress_and_resumes(tmp_path):
    run = Run("tiny", "tiny", recipe("de"), 0)
    options = {"execution": Vmap(), "progress": False, "checkpoints": Checkpoints(tmp_path)}
    with pytest.raises(OutOfTime, match="the time was up after epoch 1 of 4"):
        train_in_time(run, SETS.train, AfterTheFirstEpoch(), **options)
    resumed = train_in_time(run, SETS.train, Deadline(), **options)
    assert resumed.history.column("loss") == example("de").history.column("loss")


def test_stored_names_are_displayed_in_the_words_of_the_field():
    assert display("nll_unfitted") == "NLL uncalibrated"
    assert display("ece_calibrated") == "ECE two temperatures"
    assert display("resnet20 trunk, heads at 0.1") == "ResNet-20 backbone, heads' rate 0.1"
    assert display("lite resnet8 S=5, 16 × 16 pixels") == "lite ResNet-8, 5 networks per step, 16 × 16 pixels"


def test_figures_are_drawn(tmp_path):
    lines = {"panel": {"DE": [([1, 2], [0.3, 0.2]), ([1, 2], [0.4, 0.2])], "DE-GP β = 0": [([1, 2], [0.1, math.nan])]}}
    boxes = {"panel": {"DE": {0: [0.1], 1: [0.2, 0.3]}, "DE-GP α = 1": {0: [0.1], 1: [0.1, 0.2]}}}
    for name, figure in (
        ("lines", line_panels(lines, x_label="members", y_label="error")),
        ("boxes", box_panels(boxes, x_label="severity", y_label="ECE")),
    ):
        assert save_figure(figure, tmp_path / f"{name}.png").stat().st_size > 1000


def test_a_label_has_one_line_style_in_all_panels_and_in_their_legend():
    line = [([1, 2], [0.3, 0.2])]
    panels = {"small": {"DE-GP a": line, "DE-GP b": line}, "large": {"DE-GP b": line}}
    figure = line_panels(panels, x_label="members", y_label="error")
    styles = {}
    for own in [*(axes.lines for axes in figure.axes), figure.legends[0].get_lines()]:
        for drawn in own:
            if not drawn.get_label().startswith("_"):
                styles.setdefault(drawn.get_label(), set()).add(drawn.get_linestyle())
    assert {len(found) for found in styles.values()} == {1}
    assert styles["DE-GP a"] != styles["DE-GP b"]


def test_nine_variants_of_a_method_look_different():
    line = [([0, 1], [0.0, 1.0])]
    figure = line_panels({"one": {f"DE-GP α = {n}": line for n in range(9)}}, x_label="x", y_label="y")
    named = [line for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    assert len({(str(line.get_color()), line.get_linestyle()) for line in named}) == 9


def test_four_variants_of_a_method_look_different_and_their_long_labels_stay_in_the_figure():
    prior = "prior lite ResNet-20, 64 networks per step, at a resolution of 16 × 16 pixels, on 64 images of the batch"
    labels = [f"DE-GP α = {number}, β = {number}, {prior} {number}" for number in range(4)]
    figure = line_panels({"panel": {label: [([1, 2], [0.3, 0.2])] for label in labels}}, x_label="x", y_label="y")
    lines = figure.legends[0].get_lines()
    assert len({drawn.get_color() for drawn in lines}) == len({drawn.get_linestyle() for drawn in lines}) == 4
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


def test_settings_that_all_variants_share_are_named_once():
    line = [([1, 2], [0.3, 0.2])]
    labels = ("DE", "DE-GP α = 0.01, β = 0.1", "DE-GP α = 0.01, β = 0")
    figure = line_panels({"panel": dict.fromkeys(labels, line)}, x_label="x", y_label="y")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["DE", "DE-GP, β = 0.1", "DE-GP, β = 0"]
    assert figure.legends[0].get_title().get_text() == "DE-GP: α = 0.01"


def add_numbered_records(folder, process):
    """Ten records with rows of their own, as one process of several adds them."""
    for seed in range(10):
        facts = {**FACTS, "method": f"of process {process}", "seed": seed}
        add_rows(folder / "curves.json", facts, [{"curve": "loss", "x": [1], "y": [math.nan]}])
        add_record(folder, facts, {"nll": 0.1}, {})


FACTS = dict.fromkeys(image_records.FACTS)


def test_processes_that_write_to_one_folder_keep_all_records(tmp_path):
    spawned = multiprocessing.get_context("fork")
    processes = [spawned.Process(target=add_numbered_records, args=(tmp_path, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = {(record["method"], record["seed"]) for record in load_records(tmp_path)}
    assert len(found) == len(load_records(tmp_path)) == len(load_rows(tmp_path / "curves.json")) == 40


def test_a_record_takes_the_place_of_an_earlier_one_of_the_same_run(tmp_path):
    for nll in (0.2, 0.1):
        add_record(tmp_path, {**FACTS, "seed": 3}, {"nll": nll, "auroc": math.nan}, {})
    assert [(record["nll"], record["auroc"]) for record in load_records(tmp_path)] == [(0.1, None)]
