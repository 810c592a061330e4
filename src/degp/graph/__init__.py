"""A trained ensemble as one graph: inputs in, predictions and their uncertainty out; for ONNX, or for torch alone.

    export_ensemble(ensemble, method, inputs, "model.onnx")                     # without Python or torch
    torch.export.save(exported_program(ensemble, method, inputs), "model.pt2")  # for torch, AOTInductor, ExecuTorch

The graph takes any number of points. Its outputs are those of `predict`: `mean` or `probabilities`, and `epistemic`,
`aleatoric`, `total`; the draws of the function that probabilities need are stored in it.
"""

from degp.graph.distributions import CLASSES, NUMBERS, Classes, Numbers, graph_entropy, normal_draws
from degp.graph.ensembles import export_ensemble, exported_program
from degp.graph.writing import run_onnx, write_onnx

__all__ = [
    "CLASSES",
    "NUMBERS",
    "Classes",
    "Numbers",
    "export_ensemble",
    "exported_program",
    "graph_entropy",
    "normal_draws",
    "run_onnx",
    "write_onnx",
]
