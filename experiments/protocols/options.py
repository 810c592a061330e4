"""Command-line options that several experiments share, and their validation before anything is trained."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer


def is_weight(word: str | float) -> bool:
    """Whether it is a finite number of at least 0; `min=0` alone would accept NaN and infinity."""
    try:
        return 0 <= float(word) < math.inf
    except ValueError:
        return False


def require_weight(value: float) -> float:
    """The value of an option, if it is a weight."""
    if not is_weight(value):
        raise typer.BadParameter(f"it must be a number of at least 0, but it is {value}")
    return value


Out = Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")]
Seeds = Annotated[str, typer.Option(help="Integers, separated by commas.")]
Methods = Annotated[str, typer.Option(help="Names, separated by commas.")]
Weight = Annotated[
    float, typer.Option(callback=require_weight, help="α of DE-GP as in the paper, the weight of the divergence.")
]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training images.")]
CheckpointFolder = Annotated[
    Path | None, typer.Option(help="For unfinished runs and trained members; `checkpoints` in OUT by default.")
]
DeviceName = Literal["cpu", "cuda"]
Device = Annotated[DeviceName, typer.Option(help="Where to train.")]
Minutes = Annotated[float | None, typer.Option(min=0, help="Save and stop after this time; the same command resumes.")]
Smoke = Annotated[bool, typer.Option(help="A quick check: tiny networks on synthetic images, into OUT/smoke.")]
DEVICE: DeviceName = "cuda" if torch.cuda.is_available() else "cpu"


def whole_numbers(text: str, option: str = "--seeds") -> list[int]:
    """Seeds from the command line."""
    words = _words(text)
    if not words or not all(word.isdecimal() for word in words):
        raise typer.BadParameter(f"{option} must be integers such as 0,1,2, but it is {text!r}")
    return [int(word) for word in words]


def weights(text: str, option: str = "--alphas") -> list[float]:
    """Values of α from the command line."""
    words = _words(text)
    if not words or not all(is_weight(word) for word in words):
        raise typer.BadParameter(f"{option} must be numbers of at least 0 such as 0.01,0.1, but it is {text!r}")
    return [float(word) for word in words]


def chosen(text: str, known: Collection[str], option: str = "--methods", *, between: str = ",") -> list[str]:
    """Names from the command line, all of them known."""
    names = _words(text, between)
    if not names:
        raise typer.BadParameter(f"{option} must have at least one of {', '.join(known)}, but it is {text!r}")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(f"{option}: there is no {', '.join(unknown)}; choose among {', '.join(known)}")
    return names


def one_of(text: str, known: Collection[str], option: str = "--network") -> str:
    """A known name from the command line."""
    if text not in known:
        raise typer.BadParameter(f"{option} must be one of {', '.join(known)}, but it is {text!r}")
    return text


def _words(text: str, between: str = ",") -> list[str]:
    return [word.strip() for word in text.split(between) if word.strip()]
