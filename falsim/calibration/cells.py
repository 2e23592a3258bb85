"""The cells of one row as its set reads them: stated values, else what is taken for blanks, which is remembered."""

from __future__ import annotations

from typing import cast

from falsim.calibration.defaults import Reading, meaning
from falsim.calibration.tables import Row, Value


class Unpredictable(Exception):
    """A row that cannot be predicted; its text is the reason, in the same words for all rows alike."""


class Cells:
    """Looks values up for one row and keeps what was taken, as `column: value`."""

    def __init__(self, row: Row, reading: Reading) -> None:
        self.row = row
        self.reading = reading
        self.taken: list[str] = []

    def value(self, column: str, otherwise: Value = None) -> Value:
        """The stated value, or what the set, then `otherwise`, then everyone takes; None where nobody knows."""
        reading = self.reading
        if column in reading.replace:
            return self.take(column, reading.replace[column])
        stated = self.row.values.get(column)
        if stated is not None:
            return stated
        for default in (reading.take.get(column), otherwise, reading.general.get(column)):
            if default is not None:
                return self.take(column, default)
        return None

    def take(self, column: str, value: Value) -> Value:
        """Remember that `value` stands for `column`."""
        self.taken.append(f"{column}: {value}")
        return value

    def count(self, column: str, otherwise: int | None = None) -> int:
        """A whole number; raises Unpredictable where nobody knows it."""
        value = self.value(column, otherwise)
        if value is None:
            raise Unpredictable(f"{column} is not given")
        return cast(int, value)

    def word(self, column: str, kind: str) -> str | int:
        """What the words of a cell mean; raises Unpredictable for unknown ones."""
        text = str(self.value(column))
        means = meaning(kind, text.lower())
        if means is None:
            raise Unpredictable(f"{column} {text!r} is not a known kind")
        return means
