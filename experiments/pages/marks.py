"""Marks in Markdown, and the text between them.

A block is on lines of its own, a number is within a line; a function may have arguments, which are strings:

    <!-- begin peers.ranks(regression) -->
    …
    <!-- end peers.ranks(regression) -->

    <!--peers.num_methods(regression)-->11<!--/--> methods are ranked.
"""

import re
from collections.abc import Callable

__all__ = ["Value", "filled"]

Value = Callable[[str, list[str]], str]  # the name and the arguments of a mark ↦ its text

CALL = r"(?P<name>[\w.]+)(?:\((?P<arguments>[^()\n]*)\))?"
BLOCK = re.compile(
    rf"^<!-- begin (?P<call>{CALL}) -->\n(?P<text>.*?)^<!-- end (?P=call) -->$", re.DOTALL | re.MULTILINE
)
INLINE = re.compile(rf"<!--{CALL}-->(?P<text>[^\n]*?)<!--/-->")
MARK = re.compile(r"<!-- (?:begin|end) |<!--(?! )")  # other comments begin with a space
AT_LINE_START = re.compile(r"^[ *-]*<!--(?! ).*$", re.MULTILINE)


def filled(text: str, value: Value) -> str:
    """The text with every mark's content replaced.

    Raises:
        ValueError: a mark is incomplete, or begins a line within a paragraph, where Markdown takes the line as HTML.
    """
    broken = AT_LINE_START.search(text)
    if broken:
        raise ValueError(f"a mark within a line must not begin it, but {broken[0]!r} does; move the line break")
    all_marks, in_pairs = len(MARK.findall(text)), 2 * (len(BLOCK.findall(text)) + len(INLINE.findall(text)))
    if all_marks != in_pairs:
        raise ValueError(f"{all_marks} marks must be in pairs, but {in_pairs} are; compare the names of begin and end")
    text = BLOCK.sub(lambda mark: _block(mark, value), text)
    return INLINE.sub(lambda mark: _inline(mark, value), text)


def _block(mark: re.Match[str], value: Value) -> str:
    """Blank lines keep a table apart from the comments around it."""
    call, text = mark["call"], value(*_parts(mark)).strip()
    between = f"\n\n{text}\n\n" if text else "\n\n"
    return f"<!-- begin {call} -->{between}<!-- end {call} -->"


def _inline(mark: re.Match[str], value: Value) -> str:
    opening = mark[0][: mark[0].index("-->") + 3]
    return f"{opening}{value(*_parts(mark))}<!--/-->"


def _parts(mark: re.Match[str]) -> tuple[str, list[str]]:
    arguments = mark["arguments"]
    return mark["name"], [part.strip() for part in arguments.split(",")] if arguments else []
