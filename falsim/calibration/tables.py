"""Tables of measurements: CSV files with known columns, and everything that is wrong with them by line."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from falsim.yaml_source import Problem, SourceError

Kind = Literal["text", "count", "number", "switch"]
"""What a column holds: text, a whole number above zero, a finite number above zero, True or False."""
Value = str | int | float | bool | None

MAX_BYTES = 100_000_000
MOST_PROBLEMS = 20
"""Problems listed of one file before the rest is only counted."""
LARGEST = 10**15
"""No count or number of a measurement is above this; a larger one would overflow later."""


@dataclass(frozen=True)
class Row:
    """One measurement; a blank cell is None."""

    file: str
    line: int
    values: Mapping[str, Value]

    def text(self, column: str) -> str:
        """The cell of a text column, "" when it is blank."""
        return cast(str, self.values.get(column) or "")

    def count(self, column: str) -> int | None:
        """The cell of a count column."""
        return cast("int | None", self.values.get(column))

    def number(self, column: str) -> float | None:
        """The cell of a number column."""
        return cast("float | None", self.values.get(column))

    def switch(self, column: str) -> bool | None:
        """The cell of a switch column."""
        return cast("bool | None", self.values.get(column))


def read_table(path: str | Path, columns: Mapping[str, Kind], required: Sequence[str]) -> tuple[Row, ...]:
    """Read the rows of a CSV file that has at least `columns`; others are ignored.

    `required` names the columns that may not be blank; one of them, if called `id`, may not repeat either.

    Raises:
        SourceError: the file cannot be read, is not such a table, or holds cells that are not what they should be.
    """
    name = str(path)
    lines = _lines(path, name)
    header = lines[0][1]
    missing = [column for column in columns if column not in header]
    if missing:
        known = f"{len(columns) - len(missing)} of {len(columns)} expected columns are here"
        what = f"columns are missing: {', '.join(missing)} ({known}; is this the right file?)"
        raise SourceError([Problem(name, lines[0][0], 1, "", what)])
    places = [(header.index(column), column, kind, column in required) for column, kind in columns.items()]
    problems: list[Problem] = []
    rows = []
    seen: dict[Value, int] = {}
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            what = f"{len(cells)} cells in a table of {len(header)} columns (quote text that contains a comma)"
            problems.append(Problem(name, line, 1, "", what))
            continue
        values: dict[str, Value] = {}
        for place, column, kind, needed in places:
            cell = cells[place].strip()
            try:
                values[column] = _value(cell, kind) if cell else None
            except ValueError as error:
                problems.append(Problem(name, line, place + 1, column, str(error)))
                continue
            if needed and not cell:
                problems.append(Problem(name, line, place + 1, column, "is blank (every row needs a value here)"))
        key = values.get("id")
        if key is not None and seen.setdefault(key, line) != line:
            problems.append(Problem(name, line, 1, "id", f"{key!r} is the id of line {seen[key]} too"))
        rows.append(Row(name, line, values))
    if problems:
        raise SourceError(_first(problems, name))
    return tuple(rows)


def _lines(path: str | Path, name: str) -> list[tuple[int, list[str]]]:
    """The records with the line each starts on; blank lines are left out."""
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise SourceError([Problem(name, 1, 1, "", f"larger than {MAX_BYTES:,} bytes (is this the right file?)")])
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SourceError([Problem(name, None, None, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise SourceError([Problem(name, line, 1, "", "is not UTF-8 text (save the table as CSV)")]) from None
    records: list[tuple[int, list[str]]] = []
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                records.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise SourceError([Problem(name, reader.line_num, 1, "", f"is not CSV: {error}")]) from None
    if not records:
        raise SourceError([Problem(name, 1, 1, "", "is empty (the first line names the columns)")])
    return records


def _value(cell: str, kind: Kind) -> Value:
    """The cell as what its column holds; raises ValueError with what would be right."""
    if kind == "text":
        return cell
    if kind == "switch":
        if cell.lower() not in ("true", "false"):
            raise ValueError(f"{_shown(cell)} is neither True nor False")
        return cell.lower() == "true"
    try:
        number = float(cell)
    except ValueError:
        raise ValueError(f"{_shown(cell)} is not a number") from None
    if not math.isfinite(number) or not 0 < number < LARGEST:
        raise ValueError(f"{_shown(cell)} is out of range (a finite number above 0)")
    if kind == "number":
        return number
    if number != int(number):
        raise ValueError(f"{_shown(cell)} is not a whole number")
    return int(number)


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:40] + "…")


def _first(problems: list[Problem], name: str) -> list[Problem]:
    """The first problems, and how many more there are."""
    left = len(problems) - MOST_PROBLEMS
    if left <= 0:
        return problems
    return [*problems[:MOST_PROBLEMS], Problem(name, None, None, "", f"and {left} more problems")]
