"""Kernels: a row of `kernels.csv` as one piece of work on one GPU, and its seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from falsim.calibration.cells import Unpredictable
from falsim.calibration.choice import calibration_for
from falsim.calibration.clusters import cluster_of, gpu_of
from falsim.calibration.configurations import Shape, Split, scenario_of
from falsim.calibration.defaults import Wiring, meaning
from falsim.calibration.scores import Floats
from falsim.calibration.tables import Kind, Row
from falsim.costs.prices import Prices, prices_of
from falsim.dataflow import Attention, Elementwise, Gemm
from falsim.scenario import Scenario

NAME = "kernels"
COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(("kernel", "gpu", "dtype", "head_dim", "causal", "source", "notes"), "text"),
    **dict.fromkeys(("m", "n", "k", "batch", "seq", "heads", "kv_heads"), "count"),
    **dict.fromkeys(("tflops", "GBps", "time_us"), "number"),
}
REQUIRED = ("kernel", "gpu")
BYTES_PER_ELEMENT = {"rmsnorm": 4.0, "residual add": 6.0, "silu_and_mul": 6.0}
"""Half-precision bytes read and written for each element of the output: a norm reads and writes one tensor, the others
read two and write one."""
ATTENTION = {"flash_attn_fwd": (False,), "flash_attn_bwd": (True,), "flash_attn_fwd+bwd": (False, True)}
"""Which passes a kernel's row covers: backward or not."""
PLAIN = Shape(1, 2, 1, 1, 2, "gelu", 2, 2)
ALONE = Wiring(1, "nvlink3-nvswitch", "infiniband-200g")


@dataclass(frozen=True)
class Case:
    """One timed kernel."""

    kind: str
    """gemm, attention or elementwise."""
    gpu: str
    works: tuple[Gemm | Attention | Elementwise, ...]
    causal: bool
    seconds: float
    scenario: Scenario
    source: str
    """The repository or paper the row is from."""


def case_of(row: Row, calibration: str | None = None) -> Case | str:
    """The kernel of a row, or the reason why it cannot be priced."""
    try:
        return _case(row, calibration)
    except Unpredictable as reason:
        return str(reason)


def seconds_of(cases: Sequence[Case]) -> Floats:
    """Predicted seconds; kernels of one kind on one GPU are priced as one array."""
    found = np.zeros(len(cases))
    groups: dict[tuple[str, str, bool, int], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault((case.kind, case.scenario.name, case.causal, len(case.works)), []).append(index)
    for members in groups.values():
        first = cases[members[0]]
        prices = prices_of(first.scenario)
        prices = replace(prices, device=replace(prices.device, causal=first.causal))
        for place in range(len(first.works)):
            found[members] += _priced([cases[index].works[place] for index in members], prices)
    return found


def _priced(works: Sequence[Gemm | Attention | Elementwise], prices: Prices) -> Floats:
    """Seconds of works of one type; attention is priced one by one where its passes differ."""
    if all(isinstance(work, Gemm) for work in works):
        fields = ("m", "n", "k", "batch")
        return np.asarray(prices.seconds(Gemm(*(np.array([getattr(w, f) for w in works], float) for f in fields))))
    return np.array([float(prices.seconds(work)) for work in works])


def _case(row: Row, calibration: str | None) -> Case:
    kernel, gpu = row.text("kernel"), gpu_of(row.text("gpu"))
    precision = meaning("precision", row.text("dtype").lower()) if row.text("dtype") else "bf16"
    if precision is None or precision not in gpu.peak_flops:
        raise Unpredictable(f"the GPU does not compute in {row.text('dtype')!r}")
    causal = not row.text("causal").startswith("no")
    kind, works, flops = _works(kernel, row, causal=causal)
    scenario = scenario_of(
        name=f"{gpu.name} {precision}",
        shape=PLAIN,
        split=Split(1, False, 1, 1, 1, 1, 0),
        cluster=cluster_of(gpu.name, 1, ALONE),
        training={"sequence_length": 2, "micro_batch_size": 1, "global_batch_size": 1, "precision": precision},
        implementation={},
        calibration=calibration_for(NAME, gpu, calibration),
    )
    source = row.text("source").partition(" ")[0]
    return Case(kind, gpu.name, works, causal, _measured(row, works, flops), scenario, source)


def _works(kernel: str, row: Row, *, causal: bool) -> tuple[str, tuple[Gemm | Attention | Elementwise, ...], float]:
    """The kind of a kernel, what it does, and the FLOPs its table counts for it."""
    if kernel == "gemm":
        m, n, k = (_given(row, column) for column in ("m", "n", "k"))
        work = Gemm(float(m), float(n), float(k), float(row.count("batch") or 1))
        return "gemm", (work,), float(work.flops)
    if kernel in BYTES_PER_ELEMENT:
        elements = float(_given(row, "m") * _given(row, "n"))
        return "elementwise", (Elementwise(BYTES_PER_ELEMENT[kernel] * elements),), 0.0
    if kernel not in ATTENTION:
        raise Unpredictable(f"kernel {kernel!r} is not one of the model")
    batch, sequence, heads = (float(_given(row, column)) for column in ("batch", "seq", "heads"))
    parts = [float(part) for part in row.text("head_dim").split("/") if part.strip().isdigit()]
    if not parts:
        raise Unpredictable("head_dim is not given")
    size = sum(parts) / len(parts)  # keys 192 and values 128 wide: as many FLOPs as both at 160
    passes = tuple(
        Attention(batch, sequence, sequence, heads, float(row.count("kv_heads") or heads), size, True, backward)
        for backward in ATTENTION[kernel]
    )
    # Dao-AILab's benchmark halves causal FLOPs, SimuMax's tables count the whole matrix.
    halved = 0.5 if causal and "halved" in row.text("notes") else 1.0
    return "attention", passes, halved * sum(float(work.flops) for work in passes)


def _given(row: Row, column: str) -> int:
    value = row.count(column)
    if value is None:
        raise Unpredictable(f"{column} is not given")
    return value


def _measured(row: Row, works: Sequence[Gemm | Attention | Elementwise], flops: float) -> float:
    """Seconds: from the rate, which has more digits, else as timed."""
    rate, bandwidth, time = row.number("tflops"), row.number("GBps"), row.number("time_us")
    if rate is not None and flops > 0.0:
        return flops / (rate * 1e12)
    if time is not None:
        return time * 1e-6
    if bandwidth is not None and isinstance(works[0], Elementwise):
        return float(works[0].bytes) / (bandwidth * 1e9)
    raise Unpredictable("neither a time nor a rate is given")
