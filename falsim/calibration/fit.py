"""Constants of one GPU from its kernel table: what a cost model must not learn from whole steps.

Robust least squares on the logarithm of predicted over measured seconds, with the model's own formulas. Matrix products
and element-wise kernels share the memory bandwidth, so they are fitted together; flash attention has its own two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import yaml

from falsim import catalog
from falsim.calibration.kernels import COLUMNS, REQUIRED, Case, case_of
from falsim.calibration.scores import Floats
from falsim.calibration.tables import read_table
from falsim.catalog.calibration import Constant, calibration, with_constants
from falsim.costs.prices import prices_of
from falsim.dataflow import Attention, Elementwise, Gemm

FEWEST = 20
"""Rows of a kind of kernel below which nothing is fitted."""
ROUNDED = 4
"""Significant digits written: more would only be noise."""
DOUBT = 0.1
"""Residual beyond which a row counts less (soft L1): about the scatter of the tables themselves."""


@dataclass(frozen=True)
class Unknown:
    """A constant to be found: its start and the bounds physics sets."""

    name: str
    start: float
    low: float
    high: float
    kind: str
    """The kind of kernel whose scatter is the constant's spread."""


PRODUCTS = (
    Unknown("matmul_efficiency", 0.8, 0.2, 1.0, "gemm"),
    Unknown("gemm_depth", 128.0, 1.0, 2000.0, "gemm"),
    Unknown("memory_efficiency", 0.8, 0.2, 1.0, "elementwise"),
    Unknown("kernel_launch", 4e-6, 5e-7, 1.2e-5, "gemm"),
)
ATTENTION = (
    Unknown("flash_efficiency", 0.6, 0.1, 1.0, "attention"),
    Unknown("flash_half_sequence", 400.0, 1.0, 5000.0, "attention"),
)


class ScipyMissing(Exception):
    """scipy is not installed."""

    def __init__(self) -> None:
        super().__init__("fitting needs scipy (pip install 'falsim[calibration]')")


def fit_kernels(cases: Sequence[Case]) -> dict[str, Constant]:
    """Constants of the one GPU the cases are of; those without enough rows are left out."""
    products = [case for case in cases if case.kind in ("gemm", "elementwise")]
    attention = [case for case in cases if case.kind == "attention"]
    found: dict[str, Constant] = {}
    if sum(case.kind == "gemm" for case in products) >= FEWEST:
        found |= _fit(PRODUCTS, products, found)
    if len(attention) >= FEWEST:
        found |= _fit(ATTENTION, attention, found)
    return found


def _fit(unknowns: Sequence[Unknown], cases: Sequence[Case], known: Mapping[str, Constant]) -> dict[str, Constant]:
    from scipy.optimize import least_squares  # two seconds to import: only when fitting

    predict = _predictor(cases, {name: constant.value for name, constant in known.items()})
    measured = np.array([case.seconds for case in cases])

    def residuals(logarithms: Floats) -> Floats:
        values = {unknown.name: float(np.exp(x)) for unknown, x in zip(unknowns, logarithms, strict=True)}
        return np.asarray(np.log(predict(values) / measured))

    bounds = np.log([unknown.low for unknown in unknowns]), np.log([unknown.high for unknown in unknowns])
    start = np.log([unknown.start for unknown in unknowns])
    best = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=DOUBT, x_scale=1.0)
    free = [unknown for unknown, x in zip(unknowns, best.x, strict=True) if not _at_bound(unknown, float(np.exp(x)))]
    if len(free) < len(unknowns):  # the table does not tell it: the catalogue's value stands
        return _fit(free, cases, known) if free else {}
    final = residuals(best.x)
    source = "; ".join(sorted({case.source for case in cases}))
    constants = {}
    for unknown, x in zip(unknowns, best.x, strict=True):
        own = np.array([case.kind == unknown.kind for case in cases])
        scatter = float(np.std(final[own] if own.any() else final))
        constants[unknown.name] = Constant(_round(float(np.exp(x))), _round(scatter), len(cases), "measured", source)
    return constants


def _at_bound(unknown: Unknown, value: float) -> bool:
    return value < unknown.low * 1.001 or value > unknown.high * 0.999


def _predictor(cases: Sequence[Case], known: Mapping[str, float]) -> Callable[[Mapping[str, float]], Floats]:
    """Seconds of every case as a function of the constants; cases that differ only in size are one array."""
    groups: dict[tuple[str, bool, int], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault((case.scenario.name, case.causal, len(case.works)), []).append(index)
    datasheet = calibration()

    def predict(values: Mapping[str, float]) -> Floats:
        constants = {name: Constant(value, 0.0, 0, "measured", "") for name, value in {**known, **values}.items()}
        tried = with_constants(datasheet, constants)
        seconds = np.zeros(len(cases))
        for key, members in groups.items():
            prices = prices_of(cases[members[0]].scenario, constants=tried)
            prices = replace(prices, device=replace(prices.device, causal=key[1]))
            for place in range(key[2]):
                for kind in (Gemm, Elementwise, Attention):
                    own = [m for m in members if isinstance(cases[m].works[place], kind)]
                    for indices, work in _alike([(m, cases[m].works[place]) for m in own]):
                        seconds[indices] += prices.seconds(work)
        return seconds

    return predict


def _alike(works: Sequence[tuple[int, Any]]) -> list[tuple[list[int], Any]]:
    """Works stacked into works of arrays; forward and backward attention stay apart."""
    stacks: dict[bool, list[tuple[int, Any]]] = {}
    for index, work in works:
        stacks.setdefault(getattr(work, "backward", False), []).append((index, work))
    numbers = {Gemm: ("m", "n", "k", "batch"), Elementwise: ("bytes",)}
    stacked = []
    for members in stacks.values():
        first = members[0][1]
        names = numbers.get(type(first), ("batch", "sequence_q", "sequence_kv", "heads", "kv_heads", "head_dim"))
        columns = {name: np.array([float(getattr(work, name)) for _, work in members]) for name in names}
        stacked.append(([index for index, _ in members], replace(first, **columns)))
    return stacked


def _round(value: float) -> float:
    return float(f"{value:.{ROUNDED}g}")


def calibrations_of(path: str, gpus: Collection[str] | None = None) -> dict[str, str | None]:
    """Calibration files as text by GPU of a kernel table; None for a GPU with too few rows.

    Raises SourceError for a table that cannot be read, ScipyMissing without scipy.
    """
    if find_spec("scipy") is None:
        raise ScipyMissing
    cases: dict[str, list[Case]] = {}
    for row in read_table(path, COLUMNS, REQUIRED):
        case = case_of(row, "datasheet")
        if not isinstance(case, str) and (gpus is None or case.gpu in gpus):
            cases.setdefault(case.gpu, []).append(case)
    return {gpu: _file(gpu, fit_kernels(own)) for gpu, own in sorted(cases.items())}


def _file(gpu: str, constants: Mapping[str, Constant]) -> str | None:
    if not constants:
        return None
    data = {
        "name": gpu,
        "title": f"{catalog.gpu(gpu).title}: kernels measured, the rest from datasheets",
        "kind": "measured",
        "constants": {name: asdict(constant) for name, constant in constants.items()},
    }
    head = "# Written by `falsim calibrate fit`; what is not here is the datasheet calibration's.\n"
    return head + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=118)
