"""How numbers are written for people: one unit per column, as many digits as tell results apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

SIGNIFICANT = 4


@dataclass(frozen=True)
class Scale:
    """A unit of time and the decimals that give the shortest step four significant digits."""

    unit: str
    factor: float
    decimals: int

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Scale:
        """The scale for these step times: seconds from ten seconds up, else milliseconds."""
        times = list(seconds)
        unit, factor = ("s", 1.0) if max(times) >= 10.0 else ("ms", 1e3)
        digits = math.floor(math.log10(min(times) * factor))
        return cls(unit, factor, max(0, SIGNIFICANT - 1 - digits))

    def number(self, seconds: float) -> str:
        """The value without its unit."""
        return f"{seconds * self.factor:.{self.decimals}f}"

    def with_unit(self, seconds: float) -> str:
        """The value and its unit."""
        return f"{self.number(seconds)} {self.unit}"


def compact(value: float) -> str:
    """A count in four characters or so: 1234567 is 1.23M, 905 is 905."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:#.3g}".rstrip(".") + suffix
    return f"{value:#.3g}".rstrip(".")


def parameters(count: float) -> str:
    """A parameter count as model names write it."""
    size, suffix = (1e9, "billion") if count >= 1e9 else (1e6, "million")
    return f"{count / size:.4g} {suffix} parameters"


def speedup(ratio: float, interval: tuple[float, float] | None) -> str:
    """A speed-up, as an interval where one is known."""
    point = f"{ratio:.2f}×"
    if interval is None:
        return point
    low, high = (f"{bound:.2f}" for bound in interval)
    return f"{low}×" if low == high else f"{low}–{high}×"
