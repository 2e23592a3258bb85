"""Quantities mean what a person means by their units, and nothing is guessed."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falsim.units import (
    EXAMPLES,
    NUMBER_PATTERN,
    UNIT_PATTERNS,
    Dimension,
    UnitError,
    format_quantity,
    parse_quantity,
)

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("80 GiB", "bytes", 80 * 1024**3),
        ("80 GB", "bytes", 80_000_000_000),
        ("80GB", "bytes", 80_000_000_000),
        ("1 kB", "bytes", 1000),
        ("1 KiB", "bytes", 1024),
        ("512 B", "bytes", 512),
        ("1.5 TiB", "bytes", 1.5 * 1024**4),
        ("25 GB/s", "bandwidth", 25_000_000_000),
        ("25 gB/s", "bandwidth", 25_000_000_000),
        ("25 Gb/s", "bandwidth", 3_125_000_000),
        ("25 gb/s", "bandwidth", 3_125_000_000),
        ("400 Gbps", "bandwidth", 50_000_000_000),
        ("400 Gbit/s", "bandwidth", 50_000_000_000),
        ("1 GiB/s", "bandwidth", 1024**3),
        ("3.35e3 GB/s", "bandwidth", 3.35e12),
        ("5 us", "time", 5e-6),
        ("5 µs", "time", 5e-6),
        ("5 μs", "time", 5e-6),
        ("5us", "time", 5e-6),
        ("250 ns", "time", 250e-9),
        ("1.5 ms", "time", 1.5e-3),
        ("18.13 s", "time", 18.13),
        (" 5 us ", "time", 5e-6),
        ("312 TFLOP/s", "flops", 312e12),
        ("312 TFLOPS", "flops", 312e12),
        ("312 tflops", "flops", 312e12),
        ("19.5 GFLOP/s", "flops", 19.5e9),
        ("2 PFLOP/s", "flops", 2e15),
        ("700 W", "power", 700),
        ("1.2 kW", "power", 1200),
    ],
)
def test_a_quantity_has_its_si_value(text: str, dimension: Dimension, si: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(si, rel=1e-12)


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize(
    "text", ["80", "", "GB", "nan s", "inf GB/s", "1e999 s", "-", "1,000 GB/s", "5 parsecs", "1 2 s"]
)
def test_what_is_no_quantity_is_an_error_that_shows_one(text: str, dimension: Dimension) -> None:
    with pytest.raises(UnitError, match=re.escape(EXAMPLES[dimension])):
        parse_quantity(text, dimension)


def test_transfers_are_not_bytes() -> None:
    with pytest.raises(UnitError, match="counts transfers"):
        parse_quantity("32 GT/s", "bandwidth")


def test_memory_in_bits_is_a_slip() -> None:
    with pytest.raises(UnitError, match="bits"):
        parse_quantity("80 Gb", "bytes")


def test_a_unit_of_another_dimension_is_named() -> None:
    with pytest.raises(UnitError, match="unit of time, not of bandwidth"):
        parse_quantity("5 us", "bandwidth")


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (80 * 1024**3, "bytes", "80 GiB"),
        (1023.9 * 1024**2, "bytes", "1 GiB"),
        (1000, "bytes", "1000 B"),
        (50e9, "bandwidth", "50 GB/s"),
        (999.9e9, "bandwidth", "1 TB/s"),
        (18.13, "time", "18.1 s"),
        (0.0123456, "time", "12.3 ms"),
        (5e-6, "time", "5 µs"),
        (2e-10, "time", "0.2 ns"),
        (0.0, "time", "0 s"),
        (123456.0, "time", "123000 s"),
        (1.234e9, "time", "1.23e9 s"),
        (312e12, "flops", "312 TFLOP/s"),
        (700, "power", "700 W"),
        (-5e-6, "time", "-5 µs"),
    ],
)
def test_a_quantity_is_written_in_the_unit_of_its_size(value: float, dimension: Dimension, text: str) -> None:
    assert format_quantity(value, dimension) == text


@given(st.floats(1e-8, 1e17), st.sampled_from(DIMENSIONS))
def test_what_is_written_reads_back_to_three_digits(value: float, dimension: Dimension) -> None:
    assert parse_quantity(format_quantity(value, dimension), dimension) == pytest.approx(value, rel=0.0051)


@given(st.text(max_size=20), st.sampled_from(DIMENSIONS))
def test_the_schema_pattern_accepts_only_what_is_parsed(text: str, dimension: Dimension) -> None:
    if re.fullmatch(rf"[ ]*{NUMBER_PATTERN}[ ]*{UNIT_PATTERNS[dimension]}[ ]*", text):
        parse_quantity(text, dimension)
