"""Quantities with units: text such as "80 GiB" or "400 Gb/s" to SI numbers and back.

GB is 10^9 bytes and GiB is 2^30 bytes; Gb is 10^9 bits. Letter case matters only between b (bit) and B (byte).
A number without a unit is never accepted, because nobody can tell which unit its writer had in mind.
"""

import math
import re
from typing import Literal

Dimension = Literal["bytes", "bandwidth", "time", "flops", "power"]

EXAMPLES: dict[Dimension, str] = {
    "bytes": "80 GiB",
    "bandwidth": "25 GB/s",
    "time": "5 us",
    "flops": "312 TFLOP/s",
    "power": "700 W",
}

LIMITS: dict[Dimension, tuple[str, str]] = {
    "bytes": ("1 B", "1000 PB"),
    "bandwidth": ("1 B/s", "1000 PB/s"),
    "time": ("0 s", "1e6 s"),
    "flops": ("1 FLOP/s", "1000 EFLOP/s"),
    "power": ("0.001 W", "1e6 kW"),
}
"""The least and the most that a quantity of a scenario may be: far beyond any machine, and safe to compute with."""

# What a text of each dimension looks like, for the JSON Schema (an ECMA-262 regular expression) and for the parser.
NUMBER_PATTERN = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
UNIT_PATTERNS: dict[Dimension, str] = {
    "bytes": r"([kKmMgGtTpP][iI]?)?B",
    "bandwidth": r"([kKmMgGtTpP][iI]?)?([bB]/[sS]|[bB][pP][sS]|[bB][iI][tT]/[sS])",
    "time": r"[nNuUµμmM]?[sS]",
    "flops": r"[kKmMgGtTpPeE]?[fF][lL][oO][pP]([sS]|/[sS]|[sS]/[sS])",
    "power": r"[kK]?[wW]",
}

_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_BELOW_ONE = {"": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3}

# The units format_quantity writes, largest first.
_PRINTED: dict[Dimension, tuple[tuple[float, str], ...]] = {
    "bytes": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    "bandwidth": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "time": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "flops": ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    "power": ((1e3, "kW"), (1.0, "W")),
}


class UnitError(ValueError):
    """A text is not a quantity of the dimension asked for; `str` says why and shows one that would be right."""


def parse_quantity(text: str, dimension: Dimension) -> float:
    """Turn a number with a unit into SI: bytes, bytes/s, seconds, FLOP/s or watts.

    >>> parse_quantity("400 Gb/s", "bandwidth")
    50000000000.0

    Raises:
        UnitError: there is no unit, no number, a unit of something else, or the value is not finite.
    """
    match = re.fullmatch(rf"\s*({NUMBER_PATTERN})\s*(.*?)\s*", text)
    if match is None:
        raise UnitError(f"{_shown(text)} is not a number with a unit (for example {EXAMPLES[dimension]!r})")
    number, unit = match.group(1), match.group(4)
    if not unit:
        raise UnitError(f"{_shown(text)} has no unit (for example {EXAMPLES[dimension]!r})")
    if re.fullmatch(UNIT_PATTERNS[dimension], unit) is None:
        raise UnitError(_why_not(unit, dimension))
    value = float(number) * _factor(unit, dimension)
    if not math.isfinite(value):
        raise UnitError(f"{_shown(text)} is too large (for example {EXAMPLES[dimension]!r})")
    return value


def format_quantity(value: float, dimension: Dimension, digits: int = 3) -> str:
    """Write an SI value in the unit that suits its size, rounded to `digits` significant digits.

    Bytes are written in binary units (GiB), as memory is; everything else in decimal ones.

    >>> format_quantity(50e9, "bandwidth")
    '50 GB/s'
    """
    units = _PRINTED[dimension]
    smallest = units[-1][1]
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {units[0][1] if dimension == 'time' else smallest}"
    for factor, unit in units:
        rounded = _round_significant(value / factor, digits)
        if abs(rounded) >= 1 or unit == smallest:
            break
    return f"{_plain(rounded, digits)} {unit}"


def _factor(unit: str, dimension: Dimension) -> float:
    """SI value of one `unit`, which is known to match the dimension's pattern."""
    lower = unit.lower()
    if dimension == "time":
        return _BELOW_ONE[lower.removesuffix("s")]
    if dimension == "power":
        return _DECIMAL[lower.removesuffix("w")]
    if dimension == "flops":
        return _DECIMAL[lower[: lower.index("flop")]]
    position = lower.index("b")
    prefix = lower[:position]
    of_bits = unit[position] == "b" or lower[position:].startswith("bit")
    return (_BINARY.get(prefix) or _DECIMAL[prefix]) / (8.0 if of_bits else 1.0)


def _why_not(unit: str, dimension: Dimension) -> str:
    """What is wrong with a unit that does not match the dimension's pattern, and what would be right."""
    example = f"for example {EXAMPLES[dimension]!r}"
    shown = _shown(unit)
    if unit.lower().endswith("t/s") and dimension == "bandwidth":
        return f"{shown} counts transfers, not bytes ({example})"
    if dimension == "bytes" and re.fullmatch(r"(?i)([kmgtp]i?)?b(it)?", unit):
        return f"{shown} counts bits where bytes are meant (write B for bytes, {example})"
    for other, pattern in UNIT_PATTERNS.items():
        if re.fullmatch(pattern, unit):
            return f"{shown} is a unit of {_SPOKEN[other]}, not of {_SPOKEN[dimension]} ({example})"
    return f"{shown} is not a unit of {_SPOKEN[dimension]} ({example})"


_SPOKEN: dict[Dimension, str] = {
    "bytes": "memory",
    "bandwidth": "bandwidth",
    "time": "time",
    "flops": "computing speed",
    "power": "power",
}


def _shown(text: str) -> str:
    """The text quoted, cut when it is long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _round_significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _plain(value: float, digits: int) -> str:
    """`value` without an exponent unless it is too large or too small to read."""
    if 1e-3 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa
