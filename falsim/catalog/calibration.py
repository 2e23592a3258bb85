"""Constants of the cost model that belong to software and measurements rather than to a datasheet entry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Protocol:
    """One NCCL protocol of one algorithm over one kind of link: a line α + β·bytes."""

    name: str
    base: float
    """Seconds once."""
    step: float
    """Seconds per step of the algorithm."""
    bandwidth: float
    """Share of the link's collective bandwidth."""


@dataclass(frozen=True)
class Calibration:
    """What `datasheet.yaml` and its fitted siblings hold; seconds and fractions."""

    name: str
    title: str
    kind: str
    """`measured`, `fitted` or `datasheet`."""
    gemm_tiles: tuple[tuple[int, int], ...]
    gemm_depth: float
    flash_efficiency: dict[str, float]
    flash_efficiency_other: float
    flash_half_sequence: float
    unfused_forward_passes: float
    unfused_backward_passes: float
    protocols: dict[tuple[str, str], tuple[Protocol, ...]]
    """By (algorithm, link kind): ring or tree over nvlink, pcie or network; nvls over nvlink."""
    tree_bandwidth: float
    nvls_above: int
    spreads: dict[str, float]
    """Standard deviations of the logarithm of each constant's factor; empty where there is but one member.

    Names: `compute`, `gemm`, `memory`, `launch`, `host`, `flash`; `bandwidth_` and `latency_` with the kind of link.
    """
    sources: dict[str, str]


class UnknownCalibration(LookupError):
    """No shipped calibration has this name."""


def calibration_names() -> tuple[str, ...]:
    """The shipped calibrations."""
    folder = files("falsim.catalog") / "calibrations"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache(maxsize=8)
def calibration(name: str = "datasheet") -> Calibration:
    """A shipped calibration; raises UnknownCalibration."""
    if name not in calibration_names():
        raise UnknownCalibration(f"unknown calibration {name!r} (shipped: {', '.join(calibration_names())})")
    text = (files("falsim.catalog") / "calibrations" / f"{name}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(text, Loader=loader)
    gemm, flash, unfused, nccl = (data[key] for key in ("gemm", "flash_attention", "unfused_attention", "nccl"))
    return Calibration(
        name=data["name"],
        title=data["title"],
        kind=data["kind"],
        gemm_tiles=tuple((int(rows), int(columns)) for rows, columns in gemm["tiles"]),
        gemm_depth=float(gemm["depth"]),
        flash_efficiency={key: float(value) for key, value in flash["efficiency"].items()},
        flash_efficiency_other=float(flash["other"]),
        flash_half_sequence=float(flash["half_sequence"]),
        unfused_forward_passes=float(unfused["forward_passes"]),
        unfused_backward_passes=float(unfused["backward_passes"]),
        protocols={
            (algorithm, link): tuple(
                Protocol(key, nccl["base_us"][algorithm][key] * 1e-6, step * 1e-6, nccl["bandwidth"][key])
                for key, step in steps.items()
            )
            for link, by_algorithm in nccl["step_us"].items()
            for algorithm, steps in by_algorithm.items()
        },
        tree_bandwidth=float(nccl["tree_bandwidth"]),
        nvls_above=int(nccl["nvls_above"]),
        spreads={key: float(value) for key, value in data["spreads"].items() if key != "source"},
        sources={key: str(part["source"]) for key, part in data.items() if isinstance(part, dict)},
    )
