"""How messages about a scenario quote values and propose close names."""

import difflib
from collections.abc import Iterable


def shown(value: object) -> str:
    """A value as a message quotes it: short, and told apart from other types."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def printable(text: str) -> str:
    """A name from outside (a file's, a config's) on one line, without characters that cannot be printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "unnamed"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None when none is close."""
    by_folded = {_folded(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(_folded(name[:100]), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` when a known name is close to `name`, else the empty text."""
    close = closest(name, known)
    return f" (did you mean {close!r}?)" if close else ""


def _folded(name: str) -> str:
    """How names compare: FAL+ is written fal_plus, and case, spaces and dashes do not matter."""
    return name.lower().replace("+", "_plus").replace("-", "_").replace(" ", "_")
