"""The kinds of value a scenario file holds: counts, fractions, switches, names and quantities with units.

Each is a pydantic type that says in one sentence what is wrong and what would be right, and that describes itself in
the JSON Schema as a file writes it (a quantity is a string with a pattern there).
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from falsim.scenario.wording import shown, suggestion
from falsim.units import EXAMPLES, LIMITS, NUMBER_PATTERN, UNIT_PATTERNS, Dimension, UnitError, parse_quantity

MAX_COUNT = 10**9
LEAST = 1e-6
"""The smallest fraction, flow or price: what is nearer to zero is a slip, and would make times infinite."""


def wrong(message: str) -> PydanticCustomError:
    """An error that pydantic reports with exactly this message."""
    return PydanticCustomError("wrong", "{message}", {"message": message})


def _integer(low: int, high: int) -> Callable[[Any], int]:
    """Accepts integers from `low` to `high`, also written 1e3; refuses text, booleans and fractions."""
    wanted = f"a whole number from {low} to {high}" if high < MAX_COUNT else f"a whole number of at least {low}"

    def validate(value: Any) -> int:
        _refuse_quoted(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"{shown(value)} is not {wanted}")
        if value > MAX_COUNT:
            number = "the number" if math.isinf(value) else shown(value)  # it may have been written with 5,000 digits
            raise wrong(f"{number} is too large (at most {MAX_COUNT:,})")
        if value != value // 1:
            raise wrong(f"{shown(value)} is not {wanted}")
        if not low <= value <= high:
            raise wrong(f"{shown(value)} is not {wanted}")
        return int(value)

    return validate


def _real(high: float) -> Callable[[Any], float]:
    """Accepts numbers above zero, from LEAST up to `high`; refuses text and booleans."""
    wanted = f"a number above 0 and at most {_plain(high)}"

    def validate(value: Any) -> float:
        _refuse_quoted(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"{shown(value)} is not {wanted}")
        if not 0 < value <= high:
            raise wrong(f"{shown(value)} is not {wanted}")
        if value < LEAST:
            raise wrong(f"{shown(value)} is too small (at least {LEAST:f})")
        return float(value)

    return validate


def _plain(number: float) -> str:
    """A bound as people write it: 1,000,000 rather than 1e+06."""
    return f"{number:,.0f}"


def _refuse_quoted(value: Any) -> None:
    """A number in quotes is text; say so instead of calling it no number."""
    try:
        quoted = isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        quoted = False
    if quoted:
        raise wrong(f"the text {shown(value)} where a number is wanted (leave out the quotes)")


def _switch(value: Any) -> bool:
    """Accepts true and false, and the words YAML 1.1 took for them."""
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise wrong(f"{shown(value)} is not a switch (write true or false)")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        hint = "" if isinstance(value, dict | list) else " (put it in quotes)"
        raise wrong(f"{shown(value)} is not text{hint}")
    if not value.strip():
        raise wrong("is empty (write a text or leave the key out)")
    if not value.replace("\n", "").replace("\t", "").isprintable():
        raise wrong(f"{shown(value)} holds characters that cannot be printed (delete them)")
    return value.strip()


def _quantity(dimension: Dimension, least: str | None = None) -> Callable[[Any], float]:
    """Accepts text with a unit of the dimension, from `least` on; a bare number's unit could only be guessed."""
    example = f"for example '{EXAMPLES[dimension]}'"
    limits = (least or LIMITS[dimension][0], LIMITS[dimension][1])
    low, high = (parse_quantity(limit, dimension) for limit in limits)

    def validate(value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise wrong(f"{shown(value)} has no unit (write a number and its unit, {example})")
        if not isinstance(value, str):
            raise wrong(f"{shown(value)} is not a quantity (write a number and its unit, {example})")
        try:
            number = parse_quantity(value, dimension)
        except UnitError as error:
            raise wrong(str(error)) from None
        if not low <= number <= high:
            raise wrong(f"{shown(value)} is out of range (from {limits[0]} to {limits[1]}, {example})")
        return number

    return validate


def _quantity_schema(dimension: Dimension) -> WithJsonSchema:
    pattern = rf"^\s*{NUMBER_PATTERN}\s*{UNIT_PATTERNS[dimension]}\s*$"
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [EXAMPLES[dimension]]})


def choice(literal: Any) -> BeforeValidator:
    """Annotation of a field of this `Literal` type: the error names the allowed values and the closest one."""
    return one_of(get_args(literal))


def one_of(allowed: tuple[str | int, ...]) -> BeforeValidator:
    """The same for values that are known only when the program starts."""
    names = [str(name) for name in allowed]

    def validate(value: Any) -> str | int:
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value in allowed:
            return allowed[allowed.index(value)]
        close = suggestion(value, names) if isinstance(value, str) else ""
        raise wrong(f"{shown(value)} is not one of {', '.join(names)}{close}")

    return BeforeValidator(validate)


def _integer_field(low: int, high: int) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return BeforeValidator(_integer(low, high)), WithJsonSchema(schema)


def _real_field(high: float) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(_real(high)), WithJsonSchema({"type": "number", "minimum": LEAST, "maximum": high})


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Count: TypeAlias = Annotated[int, *_integer_field(1, MAX_COUNT)]
Whole: TypeAlias = Annotated[int, *_integer_field(0, MAX_COUNT)]
ZeroStage: TypeAlias = Annotated[int, *_integer_field(0, 3)]
Fraction: TypeAlias = Annotated[float, *_real_field(1.0)]
SwitchFactor: TypeAlias = Annotated[float, *_real_field(10.0)]
Flows: TypeAlias = Annotated[float, *_real_field(1e6)]
Price: TypeAlias = Annotated[float, *_real_field(1e6)]
Rate: TypeAlias = Annotated[float, *_real_field(1e12)]
Switch: TypeAlias = Annotated[
    bool,
    BeforeValidator(_switch),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["on", "off", "yes", "no"]}]}),
]
Memory: TypeAlias = Annotated[float, BeforeValidator(_quantity("bytes")), _quantity_schema("bytes")]
Bandwidth: TypeAlias = Annotated[float, BeforeValidator(_quantity("bandwidth")), _quantity_schema("bandwidth")]
Speed: TypeAlias = Annotated[float, BeforeValidator(_quantity("flops")), _quantity_schema("flops")]
Power: TypeAlias = Annotated[float, BeforeValidator(_quantity("power")), _quantity_schema("power")]
Duration: TypeAlias = Annotated[float, BeforeValidator(_quantity("time", least="1 ns")), _quantity_schema("time")]
Latency: TypeAlias = Annotated[float, BeforeValidator(_quantity("time")), _quantity_schema("time")]
