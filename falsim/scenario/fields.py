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
from falsim.units import EXAMPLES, NUMBER_PATTERN, UNIT_PATTERNS, Dimension, UnitError, parse_quantity

MAX_COUNT = 10**9


def wrong(message: str) -> PydanticCustomError:
    """An error that pydantic reports with exactly this message."""
    return PydanticCustomError("wrong", "{message}", {"message": message})


def _integer(low: int, high: int) -> Callable[[Any], int]:
    """Accepts integers from `low` to `high`, also written 1e3; refuses text, booleans and fractions."""
    wanted = f"a whole number from {low} to {high}" if high < MAX_COUNT else f"a whole number of at least {low}"

    def validate(value: Any) -> int:
        _refuse_quoted(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise wrong(f"{shown(value)} is not {wanted}")
        if value > MAX_COUNT:
            raise wrong(f"{shown(value)} is too large (at most {MAX_COUNT:,})")
        if not low <= value <= high:
            raise wrong(f"{shown(value)} is not {wanted}")
        return int(value)

    return validate


def _real(high: float) -> Callable[[Any], float]:
    """Accepts finite numbers above zero up to `high`; refuses text and booleans."""
    wanted = "a number above 0" if math.isinf(high) else f"a number above 0 and at most {high:g}"

    def validate(value: Any) -> float:
        _refuse_quoted(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"{shown(value)} is not {wanted}")
        if not 0 < value <= high or value > 1e300:
            raise wrong(f"{shown(value)} is not {wanted}")
        return float(value)

    return validate


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


def _quantity(dimension: Dimension, zero_is_right: bool = False) -> Callable[[Any], float]:
    """Accepts text with a unit of the dimension; refuses a bare number, because its unit can only be guessed."""
    example = f"for example '{EXAMPLES[dimension]}'"

    def validate(value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise wrong(f"{shown(value)} has no unit (write a number and its unit, {example})")
        if not isinstance(value, str):
            raise wrong(f"{shown(value)} is not a quantity (write a number and its unit, {example})")
        try:
            number = parse_quantity(value, dimension)
        except UnitError as error:
            raise wrong(str(error)) from None
        if number < 0 or (number == 0 and not zero_is_right):
            raise wrong(f"{shown(value)} is not {'at least' if zero_is_right else 'above'} zero ({example})")
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


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Count: TypeAlias = Annotated[int, *_integer_field(1, MAX_COUNT)]
Whole: TypeAlias = Annotated[int, *_integer_field(0, MAX_COUNT)]
ZeroStage: TypeAlias = Annotated[int, *_integer_field(0, 3)]
Positive: TypeAlias = Annotated[
    float, BeforeValidator(_real(math.inf)), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
Fraction: TypeAlias = Annotated[
    float, BeforeValidator(_real(1.0)), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
]
Switch: TypeAlias = Annotated[
    bool,
    BeforeValidator(_switch),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["on", "off", "yes", "no"]}]}),
]
Memory: TypeAlias = Annotated[float, BeforeValidator(_quantity("bytes")), _quantity_schema("bytes")]
Bandwidth: TypeAlias = Annotated[float, BeforeValidator(_quantity("bandwidth")), _quantity_schema("bandwidth")]
Speed: TypeAlias = Annotated[float, BeforeValidator(_quantity("flops")), _quantity_schema("flops")]
Power: TypeAlias = Annotated[float, BeforeValidator(_quantity("power")), _quantity_schema("power")]
Duration: TypeAlias = Annotated[float, BeforeValidator(_quantity("time")), _quantity_schema("time")]
Latency: TypeAlias = Annotated[float, BeforeValidator(_quantity("time", zero_is_right=True)), _quantity_schema("time")]
