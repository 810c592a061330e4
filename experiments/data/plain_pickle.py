"""Plain values from a pickle, without executing any code that it names.

A pickle is a program for a stack machine and may name any function. This machine supports the few instructions that
encode a dict of lists, numbers, text and arrays of bytes, in protocols 2 to 5, and the names that NumPy writes for such
an array; these stand for functions of this file, and nothing is imported or called by name. All else is rejected.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.parsing import parsing, read_bytes

__all__ = ["read_plain"]

NEW_ARRAY = object()  # an array whose shape and bytes come with the next BUILD
UINT8 = object()  # the only supported dtype


def read_plain(path: Path, limit: int) -> Any:
    """The dict, list, number, text or bytes in a pickle of at most `limit` bytes, with arrays of uint8 inside.

    Strings of Python 2 are decoded as Latin-1.
    """
    with parsing(path):
        return _run(read_bytes(path, limit))


@dataclass
class _Machine:
    """The stack of values, the positions of marks on it, and the memo."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self, count: int) -> list[Any]:
        """The last `count` values, in order."""
        start = len(self.stack) - count
        if start < 0:
            raise ValueError("it pops more values than it has pushed")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop_to_mark(self) -> list[Any]:
        return self.pop(len(self.stack) - self.marks.pop())


def _run(program: bytes) -> Any:
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name == "STOP":
            break
        if opcode.name not in INSTRUCTIONS:
            raise ValueError(f"it uses {opcode.name}, and only plain values and arrays of bytes are read from a pickle")
        INSTRUCTIONS[opcode.name](machine, argument)
    (value,) = machine.stack
    return value


def _nothing(machine: _Machine, argument: Any) -> None:
    """PROTO and FRAME only describe the encoding."""


def _mark(machine: _Machine, argument: None) -> None:
    machine.marks.append(len(machine.stack))


def _remember(machine: _Machine, place: int | None) -> None:
    machine.memo[len(machine.memo) if place is None else place] = machine.stack[-1]


def _recall(machine: _Machine, place: int) -> None:
    machine.push(machine.memo[place])


def _append(machine: _Machine, items: list[Any]) -> None:
    list.extend(machine.stack[-1], items)  # raises TypeError unless it is a list


def _set_items(machine: _Machine, items: list[Any]) -> None:
    if not all(isinstance(key, str | bytes) for key in items[::2]):
        raise ValueError("it has a dict whose keys are not text")
    dict.update(machine.stack[-1], zip(items[::2], items[1::2], strict=True))


def _name(machine: _Machine, name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"it names {name!r}, and only plain values and arrays of bytes are read from a pickle")
    machine.push(NAMES[name])


def _call(machine: _Machine, argument: None) -> None:
    function, arguments = machine.pop(2)
    if not any(function is known for known in CALLS):
        raise ValueError("it calls something that is not a function")
    machine.push(function(*arguments))


def _build(machine: _Machine, argument: None) -> None:
    target, state = machine.pop(2)
    if target is NEW_ARRAY:
        _, shape, dtype, column_major, values = state
        machine.push(_array(values, dtype, shape, "F" if column_major else "C"))
    elif target is UINT8:  # byte order and the like, which bytes do not have
        machine.push(UINT8)
    else:
        raise ValueError("it sets the state of something that is not an array")


def _new_array(*_: Any) -> object:
    return NEW_ARRAY


def _dtype(code: str, *_: Any) -> object:
    if code not in ("u1", "|u1"):
        raise ValueError(f"it has an array of {code!r}, and images are of 'u1'")
    return UINT8


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"it has bytes written as {encoding!r}, and Python writes them as 'latin1'")
    return text.encode("latin1")


def _array(values: bytes | bytearray | str, dtype: object, shape: tuple[int, ...], order: str) -> np.ndarray:
    if dtype is not UINT8 or order not in ("C", "F"):
        raise ValueError("it has an array that is not of bytes, row-major or column-major")
    raw = values.encode("latin1") if isinstance(values, str) else values
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if order == "F" else "C")


# NumPy 2 has renamed numpy.core to numpy._core.
NAMES: dict[str, Any] = {
    "numpy.core.multiarray _reconstruct": _new_array,
    "numpy._core.multiarray _reconstruct": _new_array,
    "numpy.core.numeric _frombuffer": _array,
    "numpy._core.numeric _frombuffer": _array,
    "numpy dtype": _dtype,
    "numpy ndarray": None,  # an argument of _reconstruct, never called
    "_codecs encode": _encode,
}
CALLS = (_new_array, _array, _dtype, _encode)

INSTRUCTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME"), _nothing),
    **dict.fromkeys(("BININT", "BININT1", "BININT2"), _Machine.push),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE"), _Machine.push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), _Machine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    **{f"TUPLE{n}": lambda machine, _, n=n: machine.push(tuple(machine.pop(n))) for n in (1, 2, 3)},
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "MARK": _mark,
    "APPEND": lambda machine, _: _append(machine, machine.pop(1)),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_to_mark()),
    "SETITEM": lambda machine, _: _set_items(machine, machine.pop(2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_to_mark()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _recall),
    "GLOBAL": _name,
    "STACK_GLOBAL": lambda machine, _: _name(machine, " ".join(machine.pop(2))),
    "REDUCE": _call,
    "BUILD": _build,
}
