"""What a step does around its passes: gradients reduced over replicas, small all-reduces, the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from falsim.dataflow import Collective, CollectiveKind, Elementwise, Group, Number, Work, more_than_one
from falsim.program.blocks import BlockKind
from falsim.program.step import OPTIMIZER_TRAFFIC, REDUCE_BYTES, Program

FLOAT32 = 4.0


@dataclass(frozen=True)
class StepWork:
    """Works of one rank outside its passes, by the part of the step's time they belong to."""

    reduce: Callable[[BlockKind], Work | None] | None
    """Reduction of one piece's gradients over the data-parallel ranks; None when there is nothing to reduce."""
    tail: tuple[tuple[str, Work], ...]
    other: tuple[Collective, ...]
    """The tensor-parallel and pipeline collectives among them, for the counts outside the blocks."""


def step_work(program: Program) -> StepWork:
    """The works around the passes of a step; per-rank sizes are those of the first stage, which holds most."""
    scenario = program.scenario
    parallel, training = scenario.parallelism, scenario.training
    other = tuple(_small_collectives(program))
    tail: list[tuple[str, Work]] = [
        ("tensor_communication" if work.group is Group.TENSOR else "pipeline_communication", work) for work in other
    ]
    parameters = stage_parameters(program, 0)
    shards = program.replicas if parallel.zero >= 1 else 1
    tail.append(("optimizer", Elementwise(parameters * FLOAT32 / shards)))  # gradient norm
    tail.append(("optimizer", Elementwise(parameters * OPTIMIZER_TRAFFIC[training.optimizer] / shards)))
    if more_than_one(program.replicas) and parallel.zero in (1, 2):
        gathered = Collective(CollectiveKind.ALL_GATHER, parameters * program.dims.element_bytes, Group.DATA)
        tail.append(("data_communication", gathered))
    return StepWork(_reduction(program), tuple(tail), other)


def stage_parameters(program: Program, rank: int) -> Number:
    """Parameters of one pipeline rank, all of its chunks together."""
    stages = program.stages[rank :: program.pipeline]
    return sum(sum(program.rank_parameters(s.kind)) * s.count for segments in stages for s in segments)


def _reduction(program: Program) -> Callable[[BlockKind], Work | None] | None:
    """ZeRO-1 and 2 scatter gradients instead of reducing them everywhere; ZeRO-3 has done so in its passes."""
    parallel = program.scenario.parallelism
    if not more_than_one(program.replicas) or parallel.zero == 3:
        return None
    kind = CollectiveKind.ALL_REDUCE if parallel.zero == 0 else CollectiveKind.REDUCE_SCATTER
    width = REDUCE_BYTES[program.scenario.training.gradient_reduce_dtype]

    def reduction(piece: BlockKind) -> Work | None:
        if piece == "boundary":
            return None
        dense, expert = program.rank_parameters(piece)
        return Collective(kind, (dense + expert / program.dims.expert) * width, Group.DATA)

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
    return np.max(np.stack(np.broadcast_arrays(*totals)), axis=0)
