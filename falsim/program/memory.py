"""Bytes of one GPU at the peak of a step, part by part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from falsim.dataflow import Number, Placement
from falsim.program.around import largest, sharded, stage_parameters
from falsim.program.pipeline_order import order
from falsim.program.step import REDUCE_BYTES, Program

FLOAT32 = 4.0
ALLOCATOR_SLACK = 0.09
"""Reserved beyond allocated: the median of 1.09 over published nanotron runs on H100 (huggingface/nanotron benchmark
tables); three runs in four stay below 1.20, nineteen in twenty below 1.72."""
OPTIMIZER_STATES = {"adamw": 8.0, "sgd": 4.0}
"""Bytes per parameter of float32 states: two moments, or one momentum; half precision adds a float32 master copy."""


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest GPU; the parts add up to `peak`."""

    parts: dict[str, Number]

    @property
    def peak(self) -> Number:
        """Bytes at the peak of the step."""
        return sum(self.parts.values())


def memory_of(program: Program) -> Memory:
    """The fullest pipeline rank's memory; arrays take the fullest rank by each configuration's own sum."""
    ranks = [_rank_memory(program, rank) for rank in range(program.pipeline)]
    peaks = np.stack(np.broadcast_arrays(*(memory.peak for memory in ranks)))
    fullest = np.argmax(peaks, axis=0)
    parts = {}
    for part in ranks[0].parts:
        column = np.stack(np.broadcast_arrays(*(np.asarray(m.parts[part]) + 0.0 * peaks[0] for m in ranks)))
        parts[part] = np.take_along_axis(column, fullest[None, ...], axis=0)[0]
    return Memory(parts)


def _rank_memory(program: Program, rank: int) -> Memory:
    scenario, dims = program.scenario, program.dims
    zero, training = scenario.parallelism.zero, scenario.training
    dense, expert = stage_parameters(program, rank)
    half = training.precision not in ("fp32", "tf32")
    states = OPTIMIZER_STATES[training.optimizer] + (FLOAT32 if half else 0.0)
    stages = range(rank, len(program.stages), program.pipeline)
    held = _in_flight(program, rank)
    kept = [sum(program.blocks[s.kind].saved_bytes * s.count for s in program.stages[stage]) for stage in stages]
    working = largest([program.blocks[s.kind].working_bytes for stage in stages for s in program.stages[stage]])
    parts: dict[str, Number] = {
        "weights": sharded(program, dense, expert, from_stage=3) * dims.element_bytes,
        "gradients": sharded(program, dense, expert, from_stage=2) * REDUCE_BYTES[training.gradient_reduce_dtype],
        "optimizer": sharded(program, dense, expert, from_stage=1) * states,
        "activations": sum(size * count for size, count in zip(kept, held, strict=True)) + working,
        "signal": _signal_bytes(program) * (_micro_batches_in_flight(program, rank) + 1),
        "communication_buffers": 2.0 * dims.activation_bytes if dims.tensor_parallel else 0.0,
    }
    if zero >= 3:
        gathered = largest([sum(program.rank_parameters(s.kind)) for stage in stages for s in program.stages[stage]])
        parts["communication_buffers"] += 2.0 * gathered * dims.element_bytes
    parts["allocator_slack"] = ALLOCATOR_SLACK * sum(parts.values())
    return Memory(parts)


def _in_flight(program: Program, rank: int) -> list[Number]:
    """By chunk of a rank: the most micro-batches whose activations it keeps at once."""
    parallel = program.scenario.parallelism
    count = program.micro_batches
    if parallel.pipeline_schedule == "1f1b":
        return [np.minimum(count, program.pipeline - rank)]
    live = [0] * program.virtual
    most = (0, live)
    for step in order(parallel.pipeline_schedule, program.pipeline, program.virtual, count, rank):
        live[step.chunk] += 1 if step.forward else -1
        most = max(most, (sum(live), list(live)))
    return most[1]


def _micro_batches_in_flight(program: Program, rank: int) -> Number:
    """The most micro-batches a rank holds anything of: one copy of a signal serves all of its chunks."""
    if program.virtual == 1:
        return sum(_in_flight(program, rank))
    live: dict[int, int] = {}
    most = 0
    schedule = program.scenario.parallelism.pipeline_schedule
    for step in order(schedule, program.pipeline, program.virtual, program.micro_batches, rank):
        live[step.micro_batch] = live.get(step.micro_batch, 0) + (1 if step.forward else -1)
        most = max(most, sum(count > 0 for count in live.values()))
    return most


def _signal_bytes(program: Program) -> Number:
    """FAL's g per micro-batch in flight; one more is the accumulator of its gradient."""
    total: Number = 0.0
    for placement in program.blocks.carried.values():
        whole = placement is Placement.REPLICATED or not program.dims.sequence_parallel
        total = total + program.dims.activation_bytes / (1.0 if whole else program.dims.tensor)
    return total
