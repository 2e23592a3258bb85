"""YAML with positions: every value knows its line and column, so an error can point at it.

The text is read event by event (PyYAML's parser, but not its constructors), which keeps positions, refuses aliases that
multiply and nesting that never ends, and resolves plain scalars as YAML 1.2 does rather than as YAML 1.1: `1e9` is a
number, `010` is ten, `12:30` and dates are text, and `on`, `off`, `yes` and `no` stay text, for a field that wants a
boolean to accept.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

Data: TypeAlias = "dict[str, Data] | list[Data] | str | int | float | bool | None"
Path: TypeAlias = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 20_000


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input, and where; line and column count from 1 (None: not in a file)."""

    file: str
    line: int | None
    col: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = [self.file] if self.line is None else [self.file, str(self.line), str(self.col)]
        what = f"{self.path}: {self.message}" if self.path else self.message
        return f"{':'.join(where)}: error: {what}"


class SourceError(Exception):
    """An input is wrong; `problems` holds everything that is wrong with it, one line of `str` each."""

    def __init__(self, problems: Sequence[Problem]):
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Document:
    """A YAML document as plain data, with the position of every value and key.

    Attributes:
        data: nested dict, list, str, int, float, bool and None; mapping keys are always text.
        problems: what is wrong without hiding the rest: duplicate keys and unknown tags.
    """

    def __init__(self, name: str, root: "_Value", problems: Sequence[Problem]):
        self.name = name
        self.data = root.data
        self.problems = tuple(problems)
        self._root = root

    def position(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Line and column of the value at `path`, or of the key of the nearest parent that exists."""
        found = self._root
        for depth, step in enumerate(path):
            child = found.children.get(step)
            if child is None:
                return self._start(path[:depth])
            found = child
        return found.line, found.col

    def key_position(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Line and column of the key that leads to `path`; the value's when it has no key of its own."""
        if not path:
            return self.position(path)
        found = self._root
        for step in path[:-1]:
            child = found.children.get(step)
            if child is None:
                return self.position(path)
            found = child
        return found.keys.get(path[-1]) or self.position(path)

    def has(self, path: Sequence[str | int]) -> bool:
        """Whether the document itself says something at `path`."""
        found = self._root
        for step in path:
            child = found.children.get(step)
            if child is None:
                return False
            found = child
        return True

    def _start(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Where a reader looks for `path`: the value of a scalar, the key of anything larger."""
        found = self._root
        for step in path:
            found = found.children[step]
        return self.key_position(path) if found.children else (found.line, found.col)


def load_yaml(text: str, name: str) -> Document:
    """Read one YAML document; `name` is what problems call it.

    Raises:
        SourceError: the text is not YAML, is too large or too deep, or has duplicate keys or unknown tags.
    """
    document = compose_yaml(text, name)
    if document.problems:
        raise SourceError(document.problems)
    return document


def compose_yaml(text: str, name: str) -> Document:
    """As `load_yaml`, but duplicate keys and unknown tags are left in `Document.problems` for the caller to report.

    Raises:
        SourceError: the text is not YAML, or too large or too deep to read.
    """
    if len(text) > MAX_BYTES:
        raise SourceError([Problem(name, 1, 1, "", f"larger than {MAX_BYTES:,} bytes (is this the right file?)")])
    if forbidden := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line, col = (
            text.count("\n", 0, forbidden.start()) + 1,
            forbidden.start() - text.rfind("\n", 0, forbidden.start()),
        )
        message = f"YAML does not allow the character U+{ord(forbidden.group()):04X} (delete it)"
        raise SourceError([Problem(name, line, col, "", message)])
    composer = _Composer(text, name)
    root = composer.compose()
    return Document(name, root, composer.problems)


def format_path(path: Sequence[str | int]) -> str:
    """A path as people write it: `cluster.intra_node.bandwidth`, `architectures[1]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            shown = step if re.fullmatch(r"[\w+-]+", step) and len(step) <= 60 else repr(step[:60])
            text += f".{shown}" if text else shown
    return text


@dataclass
class _Value:
    """A composed value; children are shared between aliases, so `size` counts what expanding them would give."""

    data: Data
    line: int
    col: int
    size: int = 1
    children: "dict[str | int, _Value]" = field(default_factory=dict)
    keys: dict[str | int, tuple[int, int]] = field(default_factory=dict)


class _Composer:
    """Builds the values of one document out of the parser's events."""

    def __init__(self, text: str, name: str):
        self.name = name
        self.problems: list[Problem] = []
        self._text = text
        self._anchors: dict[str, _Value | None] = {}
        self._size = 0
        self._event: yaml.Event | None = None

    def compose(self) -> _Value:
        events = self._parse()
        next(events)  # the stream starts
        start = next(events)
        if isinstance(start, yaml.StreamEndEvent):
            return _Value(None, 1, 1)
        root = self._value(next(events), events, ())
        next(events)  # the document ends
        following = next(events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._fatal(following, "a second document starts here (one file holds one document)")
        return root

    def _parse(self) -> Iterator[yaml.Event]:
        """The events of the text, with the parser's own errors turned into problems."""
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            yield from yaml.parse(self._text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, col = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise SourceError([Problem(self.name, line, col, "", _explain(error))]) from None

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> _Value:
        if len(path) > MAX_DEPTH:
            raise self._fatal(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # being built: an alias to it from inside would never end
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(event, events, path)
        else:
            assert isinstance(event, yaml.MappingStartEvent)
            value = self._mapping(event, events, path)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _alias(self, event: yaml.AliasEvent) -> _Value:
        if event.anchor not in self._anchors:
            raise self._fatal(event, f"alias *{event.anchor} has no anchor &{event.anchor} before it")
        value = self._anchors[event.anchor]
        if value is None:
            raise self._fatal(event, f"alias *{event.anchor} stands inside its own anchor")
        self._count(event, value.size)
        return value

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> _Value:
        self._count(event, 1)
        line, col = _start(event)
        if event.tag in (None, "!", _TAG + "str"):
            plain = event.tag is None and event.implicit[0]
            return _Value(_resolve_plain(event.value) if plain else event.value, line, col)
        if event.tag not in (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"):
            self._unknown_tag(event, path)
        return _Value(_resolve_plain(event.value), line, col)

    def _sequence(self, event: yaml.SequenceStartEvent, events: Iterator[yaml.Event], path: Path) -> _Value:
        self._count(event, 1)
        if event.tag not in (None, "!", _TAG + "seq"):
            self._unknown_tag(event, path)
        before = self._size
        items: list[Data] = []
        value = _Value(items, *_start(event))
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            child = self._value(item, events, (*path, len(items)))
            value.children[len(items)] = child
            items.append(child.data)
        value.size += self._size - before
        return value

    def _mapping(self, event: yaml.MappingStartEvent, events: Iterator[yaml.Event], path: Path) -> _Value:
        self._count(event, 1)
        if event.tag not in (None, "!", _TAG + "map"):
            self._unknown_tag(event, path)
        before = self._size
        value = _Value({}, *_start(event))
        merged: list[_Value] = []
        while not isinstance(key_event := next(events), yaml.MappingEndEvent):
            if not isinstance(key_event, yaml.ScalarEvent):
                raise self._fatal(key_event, "a key must be a plain name")
            key = key_event.value
            child = self._value(next(events), events, (*path, key))
            if key == "<<" and key_event.implicit[0]:
                merged += self._merged_mappings(key_event, child)
            elif key in value.children:
                first = value.keys[key][0]
                self._add(key_event, (*path, key), f"duplicate key (the first is on line {first}; keep one)")
            else:
                value.children[key] = child
                value.keys[key] = _start(key_event)
        for source in merged:
            for step, child in source.children.items():
                value.children.setdefault(step, child)
                value.keys.setdefault(step, source.keys[step])
        value.data = {str(step): child.data for step, child in value.children.items()}
        value.size += self._size - before
        return value

    def _merged_mappings(self, event: yaml.Event, value: _Value) -> list[_Value]:
        sources = list(value.children.values()) if isinstance(value.data, list) else [value]
        if not all(isinstance(source.data, dict) for source in sources):
            raise self._fatal(event, "<< merges mappings only (write <<: *anchor)")
        return sources

    def _count(self, event: yaml.Event, size: int) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            raise self._fatal(event, f"more than {MAX_VALUES:,} values once aliases are expanded")

    def _unknown_tag(self, event: yaml.NodeEvent, path: Path) -> None:
        tag = getattr(event, "tag", "").replace(_TAG, "!!")
        self._add(event, path, f"tag {tag} is not understood (leave it out)")

    def _add(self, event: yaml.Event, path: Path, message: str) -> None:
        self.problems.append(Problem(self.name, *_start(event), format_path(path), message))

    def _fatal(self, event: yaml.Event, message: str) -> SourceError:
        return SourceError([*self.problems, Problem(self.name, *_start(event), "", message)])


_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_RADIX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


def _resolve_plain(text: str) -> str | int | float | bool | None:
    """What an unquoted scalar means (YAML 1.2 core schema, and underscores between digits)."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", "")) if len(text) < 300 else math.inf
    if _RADIX.fullmatch(text) and len(text) < 300:
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _SPECIAL.get(text.lower(), text)


def _start(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1


def _explain(error: yaml.MarkedYAMLError) -> str:
    """The parser's message with the usual remedy."""
    message = error.problem or error.context or "not valid YAML"
    if "found character that cannot start any token" in message:
        return (
            "a character that cannot start a value (indent with spaces, not tabs; quote text that starts with @ or `)"
        )
    if "mapping values are not allowed" in message:
        return "a second ':' on the line, or an indentation that does not fit (quote text that contains ': ')"
    return f"not valid YAML: {message}"
