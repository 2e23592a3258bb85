"""How numbers are written for people: one unit per column, as many digits as tell results apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

SIGNIFICANT = 4
COLUMN = 8
"""Characters a number may take in a table of 80 columns."""


@dataclass(frozen=True)
class Scale:
    """A unit of time and the decimals that give the shortest step four significant digits.

    `decimals` is None where such numbers would be too long for a column: each then has digits and an exponent of its
    own.
    """

    unit: str
    factor: float
    decimals: int | None

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Scale:
        """The scale for these step times: seconds from ten seconds up, else milliseconds."""
        times = list(seconds)
        unit, factor = ("s", 1.0) if max(times) >= 10.0 else ("ms", 1e3)
        decimals = max(0, SIGNIFICANT - 1 - math.floor(math.log10(min(times) * factor)))
        longest = len(f"{max(times) * factor:.{decimals}f}")
        return cls(unit, factor, decimals if longest <= COLUMN else None)

    def number(self, seconds: float) -> str:
        """The value without its unit."""
        value = seconds * self.factor
        return engineering(value, SIGNIFICANT) if self.decimals is None else f"{value:.{self.decimals}f}"

    def with_unit(self, seconds: float) -> str:
        """The value and its unit."""
        return f"{self.number(seconds)} {self.unit}"


def engineering(value: float, digits: int = 3) -> str:
    """A number of this many significant digits, its exponent a multiple of three: 1234567 is 1.23e6, 1234 is 1234."""
    if value == 0.0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    power = math.floor(math.log10(abs(rounded)))
    exponent = 0 if -3 <= power < 5 else 3 * math.floor(power / 3)
    mantissa = f"{value / 10.0**exponent:.{max(0, digits - 1 - power + exponent)}f}"
    return f"{mantissa}e{exponent}" if exponent else mantissa


def compact(value: float) -> str:
    """A count in four characters or so: 1234567 is 1.23M, 905 is 905."""
    if value >= 1e15 or value < 1e-3:
        return engineering(value)
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:#.3g}".rstrip(".") + suffix
    return f"{value:#.3g}".rstrip(".")


def parameters(count: float) -> str:
    """A parameter count as model names write it."""
    size, suffix = (1e9, "billion") if count >= 1e9 else (1e6, "million")
    return f"{count / size:.4g} {suffix} parameters"


def speedup(ratio: float, interval: tuple[float, float] | None) -> str:
    """A speed-up, as an interval where one is known and not absurd."""
    if interval is None or interval[1] >= 1e3:
        return f"{ratio:.2f}×" if ratio < 1e4 else f"{engineering(ratio)}×"
    low, high = (f"{bound:.2f}" for bound in interval)
    return f"{low}×" if low == high else f"{low}–{high}×"


def gib(size: float) -> str:
    """Bytes as a number of GiB: 12.3, or 1.23e9 where that is shorter."""
    number = size / 2**30
    return f"{number:.1f}" if number < 1e5 else engineering(number)
