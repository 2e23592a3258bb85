"""Runs of nanotron: step time, memory, out-of-memory outcomes and ranking, from `nanotron_h100.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falsim.calibration.cells import Cells, Unpredictable
from falsim.calibration.choice import calibration_for
from falsim.calibration.clusters import cluster_of, gpu_of
from falsim.calibration.configurations import Shape, Split, scenario_of
from falsim.calibration.defaults import Wiring, family, reading_of
from falsim.calibration.scores import Floats
from falsim.calibration.tables import Kind, Row
from falsim.scenario import Scenario
from falsim.scenario.schema import InterNode

GIB = float(2**30)
NAME = "nanotron"
COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(("id", "gpu", "mlp_type", "precision", "recompute", "outcome"), "text"),
    **dict.fromkeys(
        ("n_gpus", "gpus_per_node", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab"), "count"
    ),
    **dict.fromkeys(("seq_len", "micro_batch_seqs", "micro_batches", "tp", "pp", "dp"), "count"),
    **dict.fromkeys(("sp", "tied_embeddings"), "switch"),
    "zero": "text",
    **dict.fromkeys(("tokens_per_s_per_gpu", "memory_allocated_GB", "memory_reserved_GB"), "number"),
    "all_reduce_busbw_GBps": "number",
}
REQUIRED = ("id", "gpu", "n_gpus", "outcome")
OUTCOMES = ("ok", "oom")


@dataclass(frozen=True)
class Case:
    """One run and the scenario that predicts it; a run out of memory has no other measurement."""

    id: str
    scenario: Scenario
    ran_out_of_memory: bool
    step_s: float | None
    allocated: float | None
    """Bytes allocated after the step; the table's columns hold GiB."""
    reserved: float | None
    bandwidth: float | None
    """bytes/s of the all-reduce over all GPUs that the run measured before it started: its environment."""
    model_size: int
    """Layers times hidden size: what tells the models apart."""
    taken: tuple[str, ...]


@dataclass(frozen=True)
class Skipped:
    """One run that cannot be predicted, why, and whether it has a step time."""

    id: str
    reason: str
    ran_out_of_memory: bool


def case_of(row: Row, calibration: str | None = None) -> Case | Skipped:
    """The scenario of a row, or why there is none; `calibration` None chooses by set and GPU."""
    try:
        return _case(row, calibration)
    except Unpredictable as reason:
        return Skipped(row.text("id"), str(reason), row.text("outcome") == "oom")


def with_environment(cases: Sequence[Case], stacked: Scenario, positions: Sequence[int]) -> Scenario:
    """The stacked scenario of some cases with each run's own network: the bandwidth its all-reduce reached.

    A ring over whole nodes moves as many bytes a second as the node's cards, so the share of their line rate that the
    run measured is the share its network gives; never more than the preset's, since in-network reduction inflates the
    figure. Only the bandwidth column is read, never the throughput.
    """
    inter = stacked.cluster.inter_node
    if inter is None or stacked.cluster.intra_node.kind == "memory":
        return stacked
    line_rate = inter.bandwidth * inter.nics_per_node
    measured = np.array([cases[position].bandwidth or np.inf for position in positions])
    reached = np.minimum(inter.efficiency, measured / line_rate)
    changed: InterNode = inter.model_copy(update={"efficiency": reached})
    return stacked.model_copy(update={"cluster": stacked.cluster.model_copy(update={"inter_node": changed})})


def throughput(case: Case, seconds: float) -> float:
    """Tokens per second for each GPU."""
    return case.scenario.tokens_per_step / seconds / case.scenario.world_size


def ranked(cases: Sequence[Case], seconds: Floats) -> list[tuple[Floats, Floats]]:
    """Predicted and measured tokens per second of the runs, by model and number of GPUs."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, case in enumerate(cases):
        if case.step_s is not None:
            groups.setdefault((case.model_size, case.scenario.world_size), []).append(index)
    return [
        (
            np.array([throughput(cases[i], float(seconds[i])) for i in members]),
            np.array([throughput(cases[i], cases[i].step_s or np.nan) for i in members]),
        )
        for members in groups.values()
    ]


def _case(row: Row, calibration: str | None) -> Case:
    reading = reading_of(NAME, row)
    cells = Cells(row, reading)
    gpu = gpu_of(row.text("gpu"))
    if row.text("outcome") not in OUTCOMES:
        raise Unpredictable(f"outcome {row.text('outcome')!r} is neither ok nor oom")
    tensor, pipeline = cells.count("tp"), cells.count("pp")
    gpus, heads = cells.count("n_gpus"), cells.count("heads")
    sequence, mlp = cells.count("seq_len"), str(cells.value("mlp_type"))
    tied = bool(cells.value("tied_embeddings"))
    replicas, micro_batch = cells.count("dp", max(1, gpus // (tensor * pipeline))), cells.count("micro_batch_seqs")
    zero = row.text("zero")
    if zero not in ("0", "1", "2", "3"):
        raise Unpredictable(f"ZeRO stage {zero!r} is not 0 to 3")
    shape = Shape(
        layers=cells.count("layers"),
        hidden=cells.count("hidden"),
        heads=heads,
        kv_heads=cells.count("kv_heads", heads),
        ffn_hidden=cells.count("ffn_hidden"),
        mlp=mlp,
        vocab=cells.count("vocab"),
        positions=sequence,
        extra=tuple({**family(mlp), **reading.model, "tie_word_embeddings": tied}.items()),
    )
    split = Split(tensor, bool(cells.value("sp")) and tensor > 1, 1, pipeline, 1, replicas, int(zero))
    global_batch = replicas * micro_batch * cells.count("micro_batches")
    wiring = Wiring(
        cells.count("gpus_per_node", reading.wiring.gpus_per_node),
        reading.wiring.intra_node,
        reading.wiring.inter_node,
        reading.wiring.nics_per_node,
    )
    scenario = scenario_of(
        name=row.text("id"),
        shape=shape,
        split=split,
        cluster=cluster_of(gpu.name, gpus, wiring),
        training={
            **reading.training,
            "sequence_length": sequence,
            "micro_batch_size": micro_batch,
            "global_batch_size": global_batch,
            "precision": cells.word("precision", "precision"),
            "attention": "flash",
            "recompute": cells.word("recompute", "recompute"),
            "optimizer": "adamw",
        },
        implementation={"merge_partial_gradients": None, **reading.implementation},
        calibration=calibration_for(NAME, gpu, calibration),
    )
    rate, bandwidth = row.number("tokens_per_s_per_gpu"), row.number("all_reduce_busbw_GBps")
    allocated, reserved = row.number("memory_allocated_GB"), row.number("memory_reserved_GB")
    return Case(
        id=row.text("id"),
        scenario=scenario,
        ran_out_of_memory=row.text("outcome") == "oom",
        step_s=None if rate is None else global_batch * sequence / (rate * gpus),
        allocated=None if allocated is None else allocated * GIB,
        reserved=None if reserved is None else reserved * GIB,
        bandwidth=None if bandwidth is None else bandwidth * 1e9,
        model_size=shape.layers * shape.hidden,
        taken=tuple(cells.taken),
    )
