"""Bytes of one GPU at the peak of a step, part by part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from falsim.dataflow import Number, largest, of_largest
from falsim.program.around import sharded, stage_parameters
from falsim.program.pipeline_order import Pass, order
from falsim.program.step import REDUCE_BYTES, Program

FLOAT32 = 4.0
BUFFERS = 2.0
"""Assumed: a rank of a tensor-parallel group holds two whole activation tensors for its collectives, and under ZeRO-3
two pieces' parameters, the one at work and the one being gathered."""
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
    return Memory(of_largest([memory.peak for memory in ranks], [memory.parts for memory in ranks]))


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
        "communication_buffers": BUFFERS * dims.activation_bytes if dims.tensor_parallel else 0.0,
    }
    if zero >= 3:
        pieces = [sum(program.rank_parameters(s.kind)) for stage in stages for s in program.stages[stage]]
        gathered = BUFFERS * largest(pieces) * dims.element_bytes
        parts["communication_buffers"] = parts["communication_buffers"] + gathered
    parts["allocator_slack"] = ALLOCATOR_SLACK * sum(parts.values())
    return Memory(parts)


def _in_flight(program: Program, rank: int) -> list[Number]:
    """By chunk of a rank: how many micro-batches' activations it keeps when it keeps most."""
    schedule = program.scenario.parallelism.pipeline_schedule
    if program.pipeline == 1:
        return [1.0]  # gradient accumulation: one after the other
    if schedule == "gpipe":
        return [program.micro_batches]
    if schedule == "1f1b":
        return [np.minimum(program.micro_batches, program.pipeline - rank)]
    live = [0] * program.virtual
    most = (0, live)
    for step in _first_passes(program, rank):
        live[step.chunk] += 1 if step.forward else -1
        if sum(live) > most[0]:
            most = (sum(live), list(live))
    return list(most[1])


def _micro_batches_in_flight(program: Program, rank: int) -> Number:
    """The most micro-batches a rank keeps anything of: one copy of a signal serves all of its chunks."""
    if program.virtual == 1:
        return sum(_in_flight(program, rank))
    chunks: dict[int, int] = {}
    live = most = 0
    for step in _first_passes(program, rank):
        before = chunks.get(step.micro_batch, 0)
        chunks[step.micro_batch] = before + (1 if step.forward else -1)
        live += (before == 0) - (chunks[step.micro_batch] == 0)
        most = max(most, live)
    return most


def _first_passes(program: Program, rank: int) -> list[Pass]:
    """The passes of an interleaved schedule in which a rank's peak falls: it warms up with fewer than four
    micro-batches a rank, and then frees one pass for each it starts."""
    few = min(program.micro_batches, 4 * program.pipeline)
    return order("interleaved", program.pipeline, program.virtual, few, rank)


def _signal_bytes(program: Program) -> Number:
    """FAL's g per micro-batch in flight; one more is the accumulator of its gradient."""
    total: Number = 0.0
    for placement in program.blocks.carried.values():
        total = total + program.dims.activation_bytes_at(placement)
    return total
