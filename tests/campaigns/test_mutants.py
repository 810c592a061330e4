"""The mutants apply to the current tree, and the campaign tells caught ones from survivors."""

from pathlib import Path

import pytest

from campaigns.mutants import ROOT, Mutant, Result, apply, campaign, load_mutants, selected, table

MUTANTS = load_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_and_names_existing_tests(mutant):
    mutated = apply(mutant)
    compile(mutated, mutant.file, "exec")
    assert mutated != (ROOT / mutant.file).read_text(encoding="utf-8")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_every_package_of_the_library_has_mutants():
    package = Path("src/degp")
    parts = {path.relative_to(ROOT / package).parts[0] for path in (ROOT / package).rglob("*.py")}
    mutated = {Path(mutant.file).relative_to(package).parts[0] for mutant in MUTANTS if mutant.file.startswith("src")}
    assert parts - mutated <= {"__init__.py", "__main__.py", "sklearn.py"}


def test_a_text_that_occurs_twice_is_an_error(tmp_path):
    (tmp_path / "m.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(ValueError, match=r"must occur exactly once in m\.py, but it occurs 2 times"):
        apply(Mutant("m", "", "m.py", "x = 1", "x = 2", ()), tmp_path)


def test_mutants_are_selected_by_pattern():
    assert {mutant.name.partition("-")[0] for mutant in selected(MUTANTS, ["gaussian-*", "export-*"])} == {
        "gaussian",
        "export",
    }
    assert selected(MUTANTS, None) == MUTANTS


@pytest.mark.slow
def test_the_campaign_reports_caught_surviving_and_invalid_mutants(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src" / "sums.py").write_text(
        "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"
    )
    (tmp_path / "tests" / "test_sums.py").write_text(
        "from sums import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    )
    (tmp_path / "tests" / "test_failing.py").write_text("def test_failing():\n    assert False\n")
    mutants = [
        Mutant("add", "", "src/sums.py", "a + b", "a - b", ("tests/test_sums.py",)),
        Mutant("double", "", "src/sums.py", "2 * a", "3 * a", ("tests/test_sums.py",)),
        Mutant("loop", "", "src/sums.py", "    return a + b", "    while True: pass", ("tests/test_sums.py",)),
        Mutant("failing", "", "src/sums.py", "a + b", "a - b", ("tests/test_failing.py",)),
    ]
    results = list(campaign(mutants, jobs=2, timeout=40, root=tmp_path))
    assert [result.outcome for result in results] == ["caught", "survived", "caught", "invalid"]
    assert (tmp_path / "src" / "sums.py").read_text().startswith("def add(a, b):\n    return a + b")


def test_the_table_lists_every_mutant():
    text = table([Result(MUTANTS[0], "caught", "1 failed", 1.0), Result(MUTANTS[1], "survived", "3 passed", 1.0)])
    assert text.startswith("1 of 2 mutants caught.")
    assert f"| `{MUTANTS[1].file}` | {MUTANTS[1].bug} | survived |" in text
