"""Collectives and messages: a row of `collectives.csv` as a group of ranks on a cluster, and its seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falsim.calibration.cells import Unpredictable
from falsim.calibration.choice import calibration_for
from falsim.calibration.clusters import gpu_of, nodes_of
from falsim.calibration.configurations import Shape, Split, scenario_of
from falsim.calibration.defaults import collective_kind, interconnect, large_message
from falsim.calibration.scores import Floats
from falsim.calibration.tables import Kind, Row
from falsim.costs.prices import prices_of
from falsim.dataflow import Collective, CollectiveKind, Group, Transfer
from falsim.scenario import Scenario

NAME = "collectives"
COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(("collective", "algo", "gpu", "interconnect", "notes"), "text"),
    **dict.fromkeys(("n_gpus", "nodes", "message_bytes"), "count"),
    **dict.fromkeys(("time_us", "busbw_GBps", "algbw_GBps"), "number"),
}
REQUIRED = ("collective", "gpu", "n_gpus", "nodes")
SEND = "send_recv"
PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


@dataclass(frozen=True)
class Case:
    """One timed collective of `size` bytes over all GPUs of the scenario's cluster."""

    kind: str
    size: int
    seconds: float
    gpus: int
    nodes: int
    scenario: Scenario
    taken: tuple[str, ...]


def case_of(row: Row, calibration: str | None = None) -> Case | str:
    """The collective of a row, or the reason why it cannot be priced."""
    try:
        return _case(row, calibration)
    except Unpredictable as reason:
        return str(reason)


def seconds_of(cases: Sequence[Case]) -> Floats:
    """Predicted seconds; cases on one cluster are priced as one array."""
    found = np.zeros(len(cases))
    groups: dict[tuple[str, str], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault((case.kind, case.scenario.name), []).append(index)
    for (kind, _), members in groups.items():
        sizes = np.array([float(cases[index].size) for index in members])
        found[members] = prices_of(cases[members[0]].scenario).seconds(_work(kind, sizes))
    return found


def _work(kind: str, sizes: Floats) -> Collective | Transfer:
    if kind == SEND:
        return Transfer(sizes, Group.PIPELINE)
    group = Group.EXPERT if kind == CollectiveKind.ALL_TO_ALL else Group.TENSOR
    return Collective(CollectiveKind(kind), sizes, group)


def _case(row: Row, calibration: str | None) -> Case:
    kind = collective_kind(row.text("collective"))
    if kind is None:
        raise Unpredictable(f"{row.text('collective')!r} is not a collective of the model")
    gpu, joined = gpu_of(row.text("gpu")), interconnect(row.text("gpu"), row.text("interconnect"))
    if joined is None:
        raise Unpredictable(f"interconnect {row.text('interconnect')!r} is not known")
    gpus, nodes = row.count("n_gpus"), row.count("nodes")
    assert gpus is not None
    assert nodes is not None
    if gpus % nodes:
        raise Unpredictable("the GPUs do not divide over the nodes")
    size = row.count("message_bytes") or large_message()
    taken = () if row.count("message_bytes") else (f"message_bytes: {size}",)
    cluster = nodes_of(gpu.name, gpus // nodes, nodes, joined.wiring)
    if joined.peer_to_peer is not None:
        patched = gpu.model_copy(update={"pcie_peer_to_peer": joined.peer_to_peer})
        cluster = cluster.model_copy(update={"gpu": patched})
    tensor, pipeline, data = (gpus, 1, 1)
    if kind == SEND:
        tensor, pipeline, data = 1, 2, gpus // 2
    elif kind == CollectiveKind.ALL_TO_ALL:
        tensor, pipeline, data = 1, 1, gpus
    heads = 840 * gpus  # divisible by any number of GPUs here; nothing of the model is priced
    scenario = scenario_of(
        name=f"{gpu.name} {gpus} {nodes} {joined.wiring} {joined.peer_to_peer} {kind}",
        shape=Shape(2, heads, heads, heads, heads, "gelu", heads, 2),
        split=Split(tensor, False, 1, pipeline, 1, data, 0),
        cluster=cluster,
        training={
            "sequence_length": 2,
            "micro_batch_size": 1,
            "global_batch_size": data,
            "precision": "fp32",
        },
        implementation={},
        calibration=calibration_for(NAME, gpu, calibration),
    )
    if kind == CollectiveKind.ALL_TO_ALL:
        parallelism = scenario.parallelism.model_copy(update={"expert": gpus})
        scenario = scenario.model_copy(update={"parallelism": parallelism})
    return Case(kind, size, _measured(row, kind, size, gpus), gpus, nodes, scenario, taken)


def _measured(row: Row, kind: str, size: int, gpus: int) -> float:
    """Seconds: as timed, else from the bandwidth over links or over bytes (nccl-tests doc/PERFORMANCE.md)."""
    time, over_links, over_bytes = row.number("time_us"), row.number("busbw_GBps"), row.number("algbw_GBps")
    if time is not None:
        return time * 1e-6
    if over_bytes is not None:
        return size / (over_bytes * 1e9)
    if over_links is None:
        raise Unpredictable("neither a time nor a bandwidth is given")
    moved = 1.0 if kind == SEND else PASSES[kind] * (gpus - 1) / gpus
    return moved * size / (over_links * 1e9)
