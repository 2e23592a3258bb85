"""Collects everything that is wrong with a scenario and finds the line, or the `--set`, that each problem is about."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from falsim.scenario.wording import closest, shown
from falsim.scenario.written import ScenarioFile
from falsim.yaml_source import Data, Document, Path, Problem, SourceError, format_path


class Report:
    """The problems of one scenario.

    Attributes:
        document: the YAML the scenario was read from.
        data: what the scenario says after overrides; decides how a path is written.
        overridden: the path of each `--set` and its text; a problem at or below such a path is that override's.
    """

    def __init__(self, document: Document, data: Data, overridden: dict[Path, str]):
        self.document = document
        self.data = data
        self.overridden = overridden
        self.problems = list(document.problems)
        self._unknown: list[Path] = []

    def add(self, message: str, *paths: Path, at_key: bool = False) -> None:
        """Report a problem of the values at `paths`, most to blame first, unless one of them is wrong already."""
        if any(_overlap(path, unknown) for path in paths for unknown in self._unknown):
            return
        path = self._written(self._most_to_blame(paths))
        override = self._override_of(path)
        if override is not None:
            problem = Problem(override, None, None, format_path(path), message)
        else:
            position = self.document.key_position(path) if at_key else self.document.position(path)
            problem = Problem(self.document.name, *position, format_path(path), message)
        if problem not in self.problems:
            self.problems.append(problem)

    def add_validation_error(self, error: ErrorDetails) -> Path:
        """Report one pydantic error and mark its value as unknown; returns the path of that value."""
        path = tuple(step for step in error["loc"] if step != "[key]")
        if error["type"] == "extra_forbidden":
            known = field_names(path[:-1])
            close = closest(str(path[-1]), known)
            hint = f"did you mean {close!r}?" if close else f"known here: {', '.join(known)}"
            self.add(f"unknown key ({hint})", path, at_key=True)
            if close:
                self.mark_unknown((*path[:-1], close))
        elif error["type"] == "missing":
            self.add(f"missing ({_described(path)})", path)
        elif error["type"] == "wrong":
            self.add(error["msg"], path)
        elif error["type"] in ("tuple_type", "list_type"):
            self.add(f"{shown(error['input'])} is not a list (write [first, second])", path)
        else:
            wanted = "the name of a preset or a mapping" if "preset" in field_names(path) else "a mapping"
            self.add(f"{shown(error['input'])} is not {wanted} of fields", path)
        self.mark_unknown(path)
        return path

    def mark_unknown(self, path: Path) -> None:
        """From here on nothing is reported that depends on the value at `path`: it is a stand-in."""
        self._unknown.append(path)

    def raise_if_any(self) -> None:
        """Raise a SourceError with all problems in the order of the file, overrides last."""
        if self.problems:
            raise SourceError(sorted(self.problems, key=lambda p: (p.line is None, p.line or 0, p.col or 0)))

    def _most_to_blame(self, paths: Sequence[Path]) -> Path:
        """The first path that was overridden, else the first the document holds, else the first."""
        for path in paths:
            if self._override_of(path) is not None:
                return path
        return next((path for path in paths if self.document.has(path)), paths[0] if paths else ())

    def _override_of(self, path: Path) -> str | None:
        """The last override that set the value at `path`."""
        matching = [text for target, text in self.overridden.items() if path[: len(target)] == target]
        return matching[-1] if matching else None

    def _written(self, path: Path) -> Path:
        """The path as the scenario writes it: `model: gpt2` has no `model.preset`."""
        found: Any = self.data
        for depth, step in enumerate(path):
            if isinstance(found, str):
                return path[:depth]
            found = found.get(step) if isinstance(found, dict) else None
        return path


def field_names(path: Sequence[str | int]) -> list[str]:
    """The keys a scenario may have at `path`; none where a value stands or the path leads nowhere."""
    section = _section(path)
    if section is not None:
        return list(section.model_fields)
    parent = _section(path[:-1])
    field = parent.model_fields.get(str(path[-1])) if parent is not None and path else None
    for kind in _alternatives(field.annotation) if field else ():
        if getattr(kind, "__origin__", None) is dict:
            return list(get_args(get_args(get_args(kind)[0])[0]))
    return []


def _section(path: Sequence[str | int]) -> type[BaseModel] | None:
    """The class of the section at `path`."""
    section: type[BaseModel] = ScenarioFile
    for step in path:
        field = section.model_fields.get(str(step))
        below = [kind for kind in _alternatives(field.annotation) if _is_section(kind)] if field else []
        if not below:
            return None
        section = below[0]
    return section


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation alone."""
    return get_args(annotation) if type(None) in get_args(annotation) else (annotation,)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _described(path: Path) -> str:
    """What a missing field should say, from its description."""
    section = _section(path[:-1])
    field = section.model_fields.get(str(path[-1])) if section else None
    description = field.description if field else None
    if description is None:
        names = field_names(path)
        return "name a preset or give its fields" if "preset" in names else f"its fields are {', '.join(names)}"
    return description


def _overlap(first: Path, second: Path) -> bool:
    """Whether one path is the other or leads to it."""
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]
