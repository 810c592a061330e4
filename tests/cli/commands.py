"""Commands as a user would type them, and the tables that they are given."""

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from degp.cli import app

QUICK = ["--members", "3", "--hidden", "8", "--steps", "100"]


def run(*arguments):
    """The result of a command."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def houses(rows, seed):
    """A small table with numbers, text, missing cells and an identifier."""
    rng = np.random.default_rng(seed)
    size, city = rng.uniform(50, 150, rows), rng.choice(["Ulm", "Bonn", "Kiel"], rows)
    price = 2.5 * size + 40 * (city == "Ulm") + rng.normal(0, 10, rows)
    frame = pd.DataFrame({"id": [f"{i:04d}" for i in range(rows)], "size": size, "city": city, "price": price})
    return frame.assign(age=np.where(rng.random(rows) < 0.1, np.nan, rng.integers(0, 99, rows)), sold=price > 250)


def assert_rejected(result, *phrases):
    """Exit code 2, and one line of error that contains these phrases."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == "" or "error" not in result.stdout
    (message,) = [text for text in result.stderr.splitlines() if text.startswith("error: ")]
    for phrase in phrases:
        assert phrase in message
    assert "Traceback" not in result.output


def notes(result):
    """The notes on stderr."""
    return [text for text in result.stderr.splitlines() if text.startswith("note: ")]


def names(folder):
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())
