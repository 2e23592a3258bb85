"""`--set path=value`: changes one value of a scenario before it is validated, with the same errors as a file."""

from collections.abc import Sequence
from dataclasses import dataclass

from falsim.scenario.report import field_names
from falsim.scenario.wording import closest, shown
from falsim.yaml_source import Data, Path, Problem, SourceError, load_yaml


@dataclass(frozen=True)
class Override:
    """One `--set`: the path it changes and the value it puts there (None: take the value out)."""

    text: str
    path: Path
    value: Data

    @property
    def source(self) -> str:
        """What problems call it in place of a file."""
        return _called(self.text)


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """Read overrides written `path=value`, the value as YAML; returns those that are right and what is wrong."""
    overrides, problems = [], []
    for text in texts:
        path_text, equals, value_text = text.partition("=")
        path = tuple(path_text.strip().split("."))
        message = _unknown_path(path) if equals else "expected path=value (for example parallelism.tensor=8)"
        if message is not None:
            problems.append(Problem(_called(text), None, None, path_text.strip() if equals else "", message))
            continue
        try:
            overrides.append(Override(text, path, load_yaml(value_text, text).data))
        except SourceError as error:
            problems += [Problem(_called(text), None, None, path_text.strip(), p.message) for p in error.problems]
    return overrides, problems


def apply_overrides(data: dict[str, Data], overrides: Sequence[Override]) -> list[Problem]:
    """Change `data` in place, in order; a preset named by a plain text gets fields on top. Returns what is wrong."""
    problems = []
    for override in overrides:
        section = data
        for depth, step in enumerate(override.path[:-1]):
            below = section.get(str(step))
            if isinstance(below, str) and "preset" in field_names(override.path[: depth + 1]):
                below = {"preset": below}
            elif below is None:
                below = {}
            elif not isinstance(below, dict):
                message = f"{shown(below)} has no fields to set"
                problems.append(Problem(override.source, None, None, ".".join(map(str, override.path)), message))
                break
            section[str(step)] = below
            section = below
        else:
            if override.value is None:
                section.pop(str(override.path[-1]), None)
            else:
                section[str(override.path[-1])] = override.value
    return problems


def _called(text: str) -> str:
    """What problems call an override: as it was written, cut when it is long."""
    return f"--set {text if len(text) <= 200 else text[:197] + '...'}"


def _unknown_path(path: Path) -> str | None:
    """Why no scenario has this path, and which path was probably meant; None when the path exists."""
    for depth, step in enumerate(path):
        known = field_names(path[:depth])
        if step in known:
            continue
        before = ".".join(map(str, path[:depth]))
        if not known:
            return f"{before} is a value without fields (set {before} itself)"
        close = closest(str(step), known)
        meant = ".".join(map(str, (*path[:depth], close, *path[depth + 1 :]))) if close else _path_ending_in(path)
        hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(known)}"
        return f"unknown path ({hint})"
    return None


def _path_ending_in(path: Path) -> str | None:
    """A path of a scenario whose last name is that of `path`: `tensor` is meant as `parallelism.tensor`."""
    pending: list[Path] = [(name,) for name in field_names(())]
    while pending:
        candidate = pending.pop(0)
        if candidate[-1] == path[-1]:
            return ".".join(map(str, candidate))
        pending += [(*candidate, name) for name in field_names(candidate)]
    return None
