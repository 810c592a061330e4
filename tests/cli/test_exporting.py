"""`degp export`: the graph's inputs are listed in order."""

import pytest

from degp.tabular.saving import load_model
from tests.cli.commands import run


@pytest.mark.slow
def test_all_features_of_an_exported_graph_are_listed_in_order(place, tmp_path):
    pytest.importorskip("onnxscript")
    features = list(load_model(place / "numbers").preprocessing.features)
    lines = [
        text.strip() for text in run("export", place / "numbers", "--onnx", tmp_path / "m.onnx").stdout.splitlines()
    ]
    start = lines.index(f"takes features (rows, {len(features)}), in this order:") + 1
    assert lines[start : start + len(features)] == [f"{index}  {name!r}" for index, name in enumerate(features)]
