"""Presets of GPUs, links, nodes and models: YAML data in which every number names its source.

A name is found whatever its case and whether its words are joined by spaces, hyphens or underscores: `H100 SXM`,
`h100_sxm` and `h100-sxm` are one entry. A data file is parsed once; an entry is validated when it is asked for.
"""

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, cast

import yaml

from falsim.catalog.entries import DIMENSIONS, Entry, Gpu, Link, Model, Node
from falsim.units import parse_quantity

__all__ = [
    "KINDS",
    "Entry",
    "Gpu",
    "Kind",
    "Link",
    "Model",
    "Node",
    "UnknownEntry",
    "entries",
    "find",
    "gpu",
    "link",
    "model",
    "node",
]

Kind = Literal["gpus", "links", "nodes", "models"]
KINDS: dict[Kind, type[Entry]] = {"gpus": Gpu, "links": Link, "nodes": Node, "models": Model}


class UnknownEntry(LookupError):
    """No entry has this name; `suggestions` holds names that look like it."""

    def __init__(self, kind: str, name: str, suggestions: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.suggestions = suggestions
        hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else "`falsim catalog list` shows all"
        super().__init__(f"no {kind} is called {name!r} ({hint})")


def gpu(name: str) -> Gpu:
    """The GPU of this name or alias; raises UnknownEntry."""
    return cast(Gpu, _entry("gpus", name))


def link(name: str) -> Link:
    """The link of this name or alias; raises UnknownEntry."""
    return cast(Link, _entry("links", name))


def node(name: str) -> Node:
    """The node of this name or alias; raises UnknownEntry."""
    return cast(Node, _entry("nodes", name))


def model(name: str) -> Model:
    """The model of this name or alias; raises UnknownEntry."""
    return cast(Model, _entry("models", name))


def find(name: str) -> Entry:
    """The entry of any kind that has this name or alias; raises UnknownEntry."""
    for kind in KINDS:
        if normalise(name) in _names(kind):
            return _entry(kind, name)
    raise UnknownEntry(
        "catalogue entry", name, _similar(name, {key: v for kind in KINDS for key, v in _names(kind).items()})
    )


def entries(kind: Kind) -> dict[str, Entry]:
    """Every entry of a kind by its canonical name, in the order of the data file."""
    return {name: _build(kind, name) for name in _load(kind)}


def normalise(name: str) -> str:
    """What two spellings of one name have in common."""
    return re.sub(r"[\s_\-]+", "", name).lower()


def _entry(kind: Kind, name: str) -> Entry:
    names = _names(kind)
    try:
        return _build(kind, names[normalise(name)])
    except KeyError:
        raise UnknownEntry(kind[:-1], name, _similar(name, names)) from None


def _similar(name: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Up to three canonical names close to `name`, closest first."""
    close = difflib.get_close_matches(normalise(name), names, n=6, cutoff=0.5)
    return tuple(dict.fromkeys(names[key] for key in close))[:3]


@lru_cache
def _names(kind: Kind) -> dict[str, str]:
    """Normalised name or alias to canonical name."""
    names: dict[str, str] = {}
    for name, fields in _load(kind).items():
        for spelling in (name, *fields.get("aliases", ())):
            if names.setdefault(normalise(spelling), name) != name:
                raise ValueError(f"{kind}: {spelling!r} names both {names[normalise(spelling)]!r} and {name!r}")
    return names


@lru_cache
def _build(kind: Kind, name: str) -> Entry:
    fields = {key: _to_si(key, value) for key, value in _load(kind)[name].items()}
    return KINDS[kind].model_validate({"name": name, **fields})


def _to_si(field: str, value: Any) -> Any:
    if field not in DIMENSIONS:
        return value
    if isinstance(value, dict):
        return {key: parse_quantity(text, DIMENSIONS[field]) for key, text in value.items()}
    return parse_quantity(value, DIMENSIONS[field])


@lru_cache
def _load(kind: Kind) -> dict[str, dict[str, Any]]:
    """The data file as written, without the keys that start with a dot (they hold YAML anchors)."""
    text = resources.files("falsim.catalog").joinpath("data", f"{kind}.yaml").read_text(encoding="utf-8")
    data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: fields for name, fields in data.items() if not name.startswith(".")}
