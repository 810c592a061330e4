"""Independent runs do not depend on the number of processes, stop at the deadline, and leave no process behind."""

import json
import multiprocessing
import time
from dataclasses import dataclass

import pytest
import torch
from typer.testing import CliRunner

from experiments import __main__ as experiments
from experiments import active
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import finished


@dataclass
class Turns:
    """Time for a fixed number of tasks."""

    count: int

    def allows(self) -> bool:
        self.count -= 1
        return self.count >= 0


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def power_and_threads(base: int, exponent: int) -> tuple[int, int]:
    return base**exponent, torch.get_num_threads()


def run_active(out, *options):
    with_options = ["active", "--smoke", "--out", str(out), *options]
    result = CliRunner().invoke(experiments.app, with_options, env={"DEGP_COMMIT": "of the test"})
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def records_without_times(out):
    records = json.loads((out / "smoke" / "metrics.json").read_text(encoding="utf-8"))["records"]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def test_one_job_starts_tasks_lazily():
    started = []
    runs = finished(started.append, [(1,), (2,)], jobs=1, deadline=Deadline())
    assert started == []
    next(runs)
    assert started == [1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_tasks_started_in_time_finish_on_one_thread_and_the_rest_are_counted(jobs, capsys, one_thread):
    runs = list(finished(power_and_threads, [(base, 2) for base in range(5)], jobs=jobs, deadline=Turns(3)))
    assert sorted(runs) == [((base, 2), (base**2, 1)) for base in range(3)]
    assert "2 of 5 runs left; run the same command to resume" in capsys.readouterr().out


def test_an_error_terminates_running_tasks_at_once():
    start = time.monotonic()
    with pytest.raises(ValueError, match="must be non-negative"):
        list(finished(time.sleep, [(600,), (-1,)], jobs=2, deadline=Deadline()))
    assert time.monotonic() - start < 300
    assert not multiprocessing.active_children()


def test_the_records_of_an_experiment_do_not_depend_on_jobs(tmp_path, one_thread):
    run_active(tmp_path / "one", "--strategies", "random;DE, disagreement")
    run_active(tmp_path / "two", "--strategies", "DE, disagreement;random", "--jobs", "2")
    assert records_without_times(tmp_path / "one") == records_without_times(tmp_path / "two")


@pytest.mark.parametrize("name", ["active", "bandits", "bo"])
def test_without_time_nothing_starts_and_the_command_says_so(name, tmp_path):
    options = ["--smoke", "--out", str(tmp_path), "--minutes", "0"]
    result = CliRunner().invoke(experiments.app, [name, *options], env={"DEGP_COMMIT": "of the test"})
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    assert "run the same command to resume" in result.output
    assert not list(tmp_path.rglob("metrics.json"))


def test_a_part_of_the_strategies_has_a_summary_and_the_others_can_be_added(tmp_path):
    run_active(tmp_path, "--strategies", "joint information")
    assert "| waves | – |" in (tmp_path / "smoke" / "summary.md").read_text(encoding="utf-8")
    run_active(tmp_path)
    strategies = list(dict.fromkeys(record["strategy"] for record in records_without_times(tmp_path)))
    assert strategies == list(active.STRATEGIES)


@pytest.mark.parametrize("name", ["active", "bandits", "bo"])
def test_records_with_other_settings_are_not_extended(name, tmp_path):
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "metrics.json").write_text('{"config": {}, "records": []}', encoding="utf-8")
    result = CliRunner().invoke(experiments.app, [name, "--smoke", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds results with other settings" in " ".join(result.output.replace("│", " ").split())
