"""Constants of the cost model that belong to software and measurements rather than to a datasheet entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from falsim.catalog.entries import Gpu


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
class Constant:
    """A constant measured or fitted for one GPU, in place of the catalogue's or the datasheet calibration's."""

    value: float
    spread: float
    """Standard deviation of the logarithm of measured over predicted, over the rows it was fitted on."""
    rows: int
    kind: str
    """`measured` (kernel or collective tables) or `fitted` (whole steps)."""
    source: str


@dataclass(frozen=True)
class Calibration:
    """What `datasheet.yaml` holds, and what calibrations of single GPUs replace of it; seconds and fractions."""

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
    constants: dict[str, Constant]
    """By name of the field they replace (`gemm_depth`, …) or of the GPU's (`matmul_efficiency`, …)."""

    def value(self, name: str, otherwise: float) -> float:
        """A constant of this calibration, or what the catalogue says."""
        constant = self.constants.get(name)
        return otherwise if constant is None else constant.value


class UnknownCalibration(LookupError):
    """No shipped calibration has this name."""


@lru_cache(maxsize=1)
def calibration_names() -> tuple[str, ...]:
    """The shipped calibrations."""
    folder = files("falsim.catalog") / "calibrations"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache(maxsize=8)
def calibration(name: str = "datasheet") -> Calibration:
    """A shipped calibration; raises UnknownCalibration.

    A file with `constants` is a calibration of one GPU: everything it does not replace is the datasheet calibration's.
    """
    if name not in calibration_names():
        raise UnknownCalibration(f"unknown calibration {name!r} (shipped: {', '.join(calibration_names())})")
    text = (files("falsim.catalog") / "calibrations" / f"{name}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(text, Loader=loader)
    if "constants" not in data:
        return _datasheet(data)
    constants = {key: Constant(**fields) for key, fields in data["constants"].items()}
    measured = with_constants(calibration("datasheet"), constants)
    return replace(measured, name=data["name"], title=data["title"], kind=data["kind"])


def shipped_for(gpu: Gpu) -> str:
    """The calibration that is shipped for a GPU or for another with the same chip; `datasheet` where there is none."""
    names = calibration_names()
    return next((name for name in (gpu.name, gpu.same_chip_as) if name is not None and name in names), "datasheet")


SPREAD_OF = {
    "matmul_efficiency": "gemm",
    "memory_efficiency": "memory",
    "flash_efficiency": "flash",
}
"""Which spread of the ensemble a constant's own replaces."""


def with_constants(base: Calibration, constants: Mapping[str, Constant]) -> Calibration:
    """`base` with these constants, and their spreads, in place of its own."""
    spreads = {SPREAD_OF[key]: constant.spread for key, constant in constants.items() if key in SPREAD_OF}
    flash = constants.get("flash_efficiency")
    changed = replace(base, constants=dict(constants), spreads=base.spreads | spreads)
    return replace(
        changed,
        gemm_depth=changed.value("gemm_depth", base.gemm_depth),
        flash_efficiency=base.flash_efficiency if flash is None else {},
        flash_efficiency_other=changed.value("flash_efficiency", base.flash_efficiency_other),
        flash_half_sequence=changed.value("flash_half_sequence", base.flash_half_sequence),
    )


def _datasheet(data: dict[str, Any]) -> Calibration:
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
        constants={},
    )
