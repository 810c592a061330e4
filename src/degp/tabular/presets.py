"""Presets: how many members, and how many steps for a table of a given size."""

from enum import StrEnum

__all__ = ["Preset"]

STEPS, ROWS, SMALL, LARGE = 2000, 1000, 250, 16_000  # steps for so many rows; the table sizes beyond which none change


class Preset(StrEnum):
    """How much is trained: "fast" an eighth of "default" in members × steps, "best" six times as much."""

    FAST = "fast"
    DEFAULT = "default"
    BEST = "best"

    @property
    def members(self) -> int:
        """Networks in the ensemble."""
        return {Preset.FAST: 8, Preset.DEFAULT: 16, Preset.BEST: 32}[self]

    def steps(self, rows: int) -> int:
        """Optimiser steps: more rows support more of them, in proportion to the square root."""
        factor = {Preset.FAST: 0.25, Preset.DEFAULT: 1.0, Preset.BEST: 3.0}[self]
        return round(factor * STEPS * (min(max(rows, SMALL), LARGE) / ROWS) ** 0.5)
