"""What is taken where a table of measurements says nothing, from `catalog/data/validation_defaults.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from falsim.calibration.tables import Row, Value

Convention = Literal["model", "causal", "hardware"]
"""Which FLOPs a set's TFLOP/s and MFU count: full attention, causal attention, or full with recomputed passes."""


@dataclass(frozen=True)
class Wiring:
    """How the GPUs of a row are joined: presets, and the GPUs and network cards of one node."""

    gpus_per_node: int
    intra_node: str
    inter_node: str
    nics_per_node: int | None = None


@dataclass(frozen=True)
class Reading:
    """How the rows of one set, or of one case within it, are read."""

    wiring: Wiring
    flops: Convention
    architecture: str
    vocab_multiple: int
    model: Mapping[str, Any]
    """Fields of the model that the tables have no column for."""
    training: Mapping[str, Any]
    implementation: Mapping[str, Any]
    take: Mapping[str, Value]
    """Values of blank cells, set by set; the general ones stand in `general`."""
    general: Mapping[str, Value]
    replace: Mapping[str, Value]
    """Values that stand in for what a cell says."""


@dataclass(frozen=True)
class Interconnect:
    """What the interconnect column of a collective means."""

    gpu: re.Pattern[str]
    matches: re.Pattern[str]
    wiring: Wiring
    peer_to_peer: bool | None


def set_of(row: Row) -> str:
    """The set a row belongs to: what its id starts with."""
    return re.sub(r"[-_]?\d+$", "", row.text("id")) or "unnamed"


def note_of(name: str) -> str:
    """Why a set's defaults are what they are; "" for a set that has none."""
    return str(_data()["sets"].get(name, {}).get("note", ""))


def reading_of(name: str, row: Row) -> Reading:
    """How to read a row of a set: its own values first, then the case's, the set's and the general ones."""
    cases = _data()["sets"].get(name, {}).get("cases", ())
    met = (
        index
        for index, case in enumerate(cases)
        if _pattern(case["matches"]).search(_text(row.values.get(case["when"])))
    )
    return _reading(name, tuple(met))


def meaning(kind: str, text: str) -> str | int | None:
    """What a word of the files means: kind is precision, attention, recompute or zero; None for an unknown word."""
    return _first_match(kind, text)


def fp4_over_fp8(gpu: str) -> float | None:
    """The fp4 rate of a GPU (its catalogue name) over its fp8 rate; None where it has none."""
    rate = _data()["fp4_over_fp8"]["gpus"].get(gpu)
    return None if rate is None else float(rate)


def family(mlp: str) -> Mapping[str, Any]:
    """What else is usual for a model with this MLP."""
    fields: Mapping[str, Any] = _data()["families"].get(mlp, {})
    return fields


def collective_kind(text: str) -> str | None:
    """The collective a table's word names: a nccl-tests name or send_recv; None for an unknown one."""
    return next((str(w["means"]) for w in _data()["collectives"]["kinds"] if _pattern(w["matches"]).search(text)), None)


def interconnect(gpu: str, text: str) -> Interconnect | None:
    """How a collective's GPUs are joined; None when the text says nothing known."""
    return next((i for i in _interconnects() if i.gpu.search(gpu) and i.matches.search(text)), None)


def large_message() -> int:
    """Bytes at which asymptotic bandwidths are compared."""
    return int(_data()["collectives"]["large_message"])


@lru_cache(maxsize=1024)
def _reading(name: str, cases: tuple[int, ...]) -> Reading:
    general, own = _data()["default"], _data()["sets"].get(name, {})
    layers = [own, *(own["cases"][index] for index in cases)]

    def merged(section: str) -> dict[str, Any]:
        values = dict(general.get(section, {}))
        for layer in layers:
            values |= layer.get(section, {})
        return values

    taken: dict[str, Value] = {}
    for layer in reversed(layers):  # the first case that says something decides, before the set itself
        taken = (taken | layer.get("take", {})) if layer is not own else layer.get("take", {}) | taken
    replaced: dict[str, Value] = {}
    for layer in layers:
        replaced |= layer.get("set", {})
    single = {
        key: layer[key] for layer in layers for key in ("flops", "architecture", "vocab_multiple") if key in layer
    }
    return Reading(
        wiring=Wiring(**merged("cluster")),
        flops=single.get("flops", general["flops"]),
        architecture=single.get("architecture", "gpt"),
        vocab_multiple=single.get("vocab_multiple", general["vocab_multiple"]),
        model=merged("model"),
        training=merged("training"),
        implementation=merged("implementation"),
        take=taken,
        general=general["take"],
        replace=replaced,
    )


@lru_cache(maxsize=4096)
def _first_match(kind: str, text: str) -> str | int | None:
    for word in _data()["words"][kind]:
        if _pattern(word["matches"]).search(text):
            means: str | int = word["means"]
            return means
    return None


@lru_cache(maxsize=1)
def _interconnects() -> tuple[Interconnect, ...]:
    general = _data()["default"]["cluster"]
    fields = ("gpus_per_node", "intra_node", "inter_node", "nics_per_node")
    return tuple(
        Interconnect(
            gpu=_pattern(entry["gpu"]),
            matches=_pattern(entry["matches"]),
            wiring=Wiring(**(general | {field: entry[field] for field in fields if field in entry})),
            peer_to_peer=entry.get("peer_to_peer"),
        )
        for entry in _data()["collectives"]["interconnects"]
    )


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def _text(value: Value) -> str:
    return "" if value is None else str(value)


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    text = (files("falsim.catalog") / "data" / "validation_defaults.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return data
