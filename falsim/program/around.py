"""What a step does around its passes: gradients reduced over replicas, small all-reduces, the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from falsim.dataflow import Collective, CollectiveKind, Elementwise, Group, Number, Work, largest
from falsim.program.blocks import BlockKind
from falsim.program.step import OPTIMIZER_TRAFFIC, REDUCE_BYTES, Program

FLOAT32 = 4.0


@dataclass(frozen=True)
class StepWork:
    """Works of one rank outside its passes, by the part of the step's time they belong to."""

    reduce: Callable[[BlockKind], tuple[Collective, ...]]
    """Reductions of one piece's gradients over its replicas; none when there is nothing to reduce."""
    tail: tuple[tuple[str, Work], ...]
    other: tuple[Collective, ...]
    """The tensor-parallel and pipeline collectives among them, for the counts outside the blocks."""


def step_work(program: Program) -> StepWork:
    """The works around the passes of a step; per-rank sizes are those of the pipeline rank that holds most."""
    parallel, training = program.scenario.parallelism, program.scenario.training
    other = tuple(_small_collectives(program))
    tail: list[tuple[str, Work]] = [
        ("tensor_communication" if work.group is Group.TENSOR else "pipeline_communication", work) for work in other
    ]
    held = [stage_parameters(program, rank) for rank in range(program.pipeline)]
    dense, expert = (largest([pair[kind] for pair in held]) for kind in (0, 1))
    updated = largest([sharded(program, *pair, from_stage=1) for pair in held])
    tail.append(("optimizer", Elementwise(updated * FLOAT32)))  # gradient norm
    tail.append(("optimizer", Elementwise(updated * OPTIMIZER_TRAFFIC[training.optimizer])))
    if parallel.zero in (1, 2):
        width = program.dims.element_bytes
        gathers = program.over_replicas(CollectiveKind.ALL_GATHER, dense * width, expert * width)
        tail += [("data_communication", gather) for gather in gathers]
    return StepWork(_reduction(program), tuple(tail), other)


def stage_parameters(program: Program, rank: int) -> tuple[Number, Number]:
    """Parameters of one pipeline rank, all its chunks together; those of experts apart: they have fewer replicas."""
    stages = program.stages[rank :: program.pipeline]
    pairs = [(program.rank_parameters(s.kind), s.count) for segments in stages for s in segments]
    return sum(pair[0] * count for pair, count in pairs), sum(pair[1] * count for pair, count in pairs)


def sharded(program: Program, dense: Number, expert: Number, *, from_stage: int) -> Number:
    """Parameters a rank has to do with when ZeRO shards them from this stage on."""
    if program.scenario.parallelism.zero < from_stage:
        return dense + expert
    return dense / program.replicas + expert / (program.replicas / program.dims.expert)


def _reduction(program: Program) -> Callable[[BlockKind], tuple[Collective, ...]]:
    """ZeRO-1 and 2 scatter gradients instead of reducing them everywhere; ZeRO-3 has done so in its passes."""
    zero = program.scenario.parallelism.zero
    kind = CollectiveKind.ALL_REDUCE if zero == 0 else CollectiveKind.REDUCE_SCATTER
    width = REDUCE_BYTES[program.scenario.training.gradient_reduce_dtype]

    def reduction(piece: BlockKind) -> tuple[Collective, ...]:
        if piece == "boundary" or zero == 3:
            return ()
        dense, expert = program.rank_parameters(piece)
        return program.over_replicas(kind, dense * width, expert * width)

    return reduction


def _small_collectives(program: Program) -> list[Collective]:
    """Per step: partial norm gradients in one message, the tied embedding's gradient, the gradient norm's scalars."""
    dims, scenario = program.dims, program.scenario
    works = []
    norms = partial_norm_parameters(program)
    if dims.tensor_parallel and np.any(norms):
        works.append(Collective(CollectiveKind.ALL_REDUCE, norms * FLOAT32, Group.TENSOR))
    if program.pipeline > 1 and scenario.model.tie_word_embeddings:
        width = REDUCE_BYTES[scenario.training.gradient_reduce_dtype]
        size = program.parameters.token_embedding / dims.tensor * width
        works.append(Collective(CollectiveKind.ALL_REDUCE, size, Group.EMBEDDING))
    if dims.tensor_parallel:
        works.append(Collective(CollectiveKind.ALL_REDUCE, FLOAT32, Group.TENSOR))
    if program.pipeline > 1:
        works.append(Collective(CollectiveKind.ALL_REDUCE, FLOAT32, Group.PIPELINE))
    return works


def partial_norm_parameters(program: Program) -> Number:
    """Norm parameters of the fullest rank whose gradients are partial sums over the tensor-parallel ranks."""
    totals = [
        sum(program.blocks[s.kind].partial_norm_parameters * s.count for stage in stages for s in stage)
        for stages in (program.stages[rank :: program.pipeline] for rank in range(program.pipeline))
    ]
    return largest(totals)
