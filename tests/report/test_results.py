"""Results record where they come from."""

import subprocess

from degp.report import save_results
from degp.report.results import environment


def test_results_record_the_commit_and_mark_uncommitted_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEGP_COMMIT", raising=False)

    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    (tmp_path / "code.py").write_text("x = 1\n")
    save_results(tmp_path / "results" / "a", config={}, records=[])
    git("add", ".")
    git("commit", "-m", "first")
    save_results(tmp_path / "results" / "a", config={}, records=[{"changed": 1}])
    assert environment()["commit"] == git("rev-parse", "HEAD")
    (tmp_path / "code.py").write_text("x = 2\n")
    assert environment()["commit"] == git("rev-parse", "HEAD") + "-dirty"


def test_results_outside_a_checkout_have_no_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEGP_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment()["commit"] is None
