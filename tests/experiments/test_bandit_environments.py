"""Bandit environments pay as described, regret counts expected rewards, and tables are read and checked."""

import gzip
import hashlib
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from degp import Batch
from degp.decisions.bandits import Problem, UniformAgent
from experiments.data import DataSetError, class_tables, data_set
from experiments.data.bandits import TableBandit, classification, covertype, mushroom
from experiments.data.class_tables import read_cover_types, read_mushrooms
from experiments.data.records import DATA_SETS
from experiments.protocols.bandits import play

MUSHROOMS = "\n".join("p,x," + ",".join("a" * 21) if n % 2 else "e,b," + ",".join("a" * 21) for n in range(6)) + "\n"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# Rounds


def test_all_rows_are_used_once_before_any_is_repeated(generator):
    table = TableBandit(torch.arange(5.0)[:, None], torch.zeros(1, 5, 2))
    seen = table.rounds(12, generator=generator).contexts.flatten()
    assert all(sorted(part.tolist()) == [0, 1, 2, 3, 4] for part in (seen[:5], seen[5:10]))
    assert len(table.rounds(0, generator=generator)) == 0


def test_regret_is_counted_in_expected_rewards(generator):
    outcomes = torch.tensor([[[0.0, 5.0]], [[0.0, -35.0]]])
    rounds = TableBandit(torch.zeros(1, 1), outcomes).rounds(4000, generator=generator)
    passing, eating = (torch.full((4000,), action) for action in (0, 1))
    assert_close(rounds.regret(passing), torch.zeros(4000))
    assert_close(rounds.regret(eating), torch.full((4000,), 15.0))
    assert_close(rounds.uniform_regret(), torch.full((4000,), 7.5))
    assert_close(rounds.rewards[:, 1].mean(), torch.tensor(-15.0), atol=1.0, rtol=0)
    assert set(rounds.rewards[:, 1].tolist()) == {5.0, -35.0}


def test_uniform_choice_has_a_relative_regret_of_100():
    labels = torch.randint(3, (600,), generator=seeded())
    rounds = classification(torch.randn(600, 2, generator=seeded()), labels).rounds(1500, generator=seeded(1))
    assert abs(play(UniformAgent(Problem(2, 3), generator=seeded()), rounds).relative_regret - 100) < 6


def test_mushrooms_pay_as_they_should(monkeypatch):
    table = Batch(torch.eye(2), torch.tensor([0, 1]))  # an edible and a poisonous one
    monkeypatch.setattr(class_tables, "mushroom", lambda: table)
    rounds = mushroom().rounds(2, generator=seeded())
    edible = rounds.contexts[:, 0] == 1
    assert_close(rounds.expected[edible], torch.tensor([[0.0, 5.0]]))
    assert_close(rounds.expected[~edible], torch.tensor([[0.0, -15.0]]))


def test_numeric_columns_of_covertype_are_standardised_and_indicators_are_not(monkeypatch):
    g = seeded()
    inputs = torch.cat(
        [100 + 50 * torch.randn(80, 10, generator=g), torch.randint(2, (80, 44), generator=g).float()], 1
    )
    monkeypatch.setattr(class_tables, "covertype", lambda: Batch(inputs, torch.arange(80) % 7))
    environment = covertype()
    assert environment.problem == Problem(54, 7)
    assert_close(environment.contexts[:, :10].std(0, correction=0), torch.ones(10))
    assert_close(environment.contexts[:, 10:], inputs[:, 10:])


# Tables


def test_mushrooms_become_one_hot(tmp_path):
    (tmp_path / "m.data").write_text(MUSHROOMS)
    batch = read_mushrooms(tmp_path / "m.data")
    assert batch.inputs.shape == (6, 23) and batch.targets.tolist() == [0, 1] * 3
    assert batch.inputs[0].tolist() == [1, 0] + [1] * 21


def test_cover_types_are_read_compressed_or_not_and_counted_from_zero(tmp_path):
    rows = "\n".join(",".join(map(str, [2500 + n, -6, *range(52), 1 + n % 7])) for n in range(8)) + "\n"
    (tmp_path / "c.data").write_text(rows)
    (tmp_path / "c.data.gz").write_bytes(gzip.compress(rows.encode()))
    plain, packed = (read_cover_types(tmp_path / name) for name in ("c.data", "c.data.gz"))
    assert torch.equal(plain.inputs, packed.inputs) and plain.inputs[0, :3].tolist() == [2500, -6, 0]
    assert plain.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize(
    "reader, text, message",
    [
        (read_mushrooms, MUSHROOMS.replace("p,x,", "q,x,", 1), "labels must be integers from 0 to 1"),
        (read_mushrooms, "e,x\np,x\n", "shape"),
        (read_mushrooms, MUSHROOMS[:-3], "cannot be read"),
        (read_cover_types, "1,2,3\n", "shape"),
        (read_cover_types, "1,2\n3\n", "cannot be read"),
        (read_cover_types, ",".join(["1"] * 54 + ["8"]), "from 1 to 7"),
    ],
)
def test_damaged_tables_are_named(reader, text, message, tmp_path):
    (tmp_path / "table.data").write_text(text)
    with pytest.raises(DataSetError, match=message):
        reader(tmp_path / "table.data")


def test_a_table_of_another_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DEGP_DATA", str(tmp_path))
    (tmp_path / "mushroom").mkdir()
    (tmp_path / "mushroom" / "agaricus-lepiota.data").write_text(MUSHROOMS)
    record = data_set("mushroom")
    tiny = replace(record, files=(replace(record.files[0], sha256=hashlib.sha256(MUSHROOMS.encode()).hexdigest()),))
    monkeypatch.setitem(DATA_SETS, "mushroom", tiny)
    with pytest.raises(DataSetError, match=r"\(8124, 117\), but its shape is \(6, 23\)"):
        class_tables.mushroom()
