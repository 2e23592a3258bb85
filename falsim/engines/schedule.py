"""The fast engine: one training step by max-plus arithmetic, for one configuration or arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from falsim.costs.prices import Prices
from falsim.dataflow import Number, largest, of_largest
from falsim.engines.pipeline import PipelineTimes, run_pipeline
from falsim.engines.stream import DATA_COMMUNICATION, PARTS, PassTimes, run_pass
from falsim.program import Program
from falsim.program.around import StepWork, step_work
from falsim.program.blocks import BlockKind

BUBBLE = "pipeline_bubble"
PIPELINE_COMMUNICATION = "pipeline_communication"
OPTIMIZER = "optimizer"
STEP_PARTS = (*PARTS, BUBBLE, PIPELINE_COMMUNICATION, OPTIMIZER)
"""The parts of a step's time; they add up to it."""


@dataclass(frozen=True)
class StepTimes:
    """One step: its time, what the rank that ends last spent it on, and the raw cost of communication."""

    seconds: Number
    parts: dict[str, Number]
    tensor_communication: Number
    """Seconds of tensor-parallel collectives on that rank's way through the step, hidden or not: its own, and those of
    the other stages' passes that its bubble waits for (one micro-batch each, a chunk of it when interleaved)."""
    forward: tuple[PassTimes, ...]
    backward: tuple[PassTimes, ...]
    pipeline: PipelineTimes


def run_step(program: Program, prices: Prices) -> StepTimes:
    """Place one training step and say where its time goes."""
    if program.architecture.free_collectives:
        prices = prices.without_tensor_collectives()
    stages = len(program.stages)
    forward = _by_layout(program, stages, prices, backward=False)
    backward = _by_layout(program, stages, prices, backward=True)
    ranks, virtual, count = program.pipeline, program.virtual, program.micro_batches
    messages = [prices.seconds(program.message(stage)) for stage in range(stages)]
    pipeline = run_pipeline(
        program.scenario.parallelism.pipeline_schedule,
        ranks,
        virtual,
        count,
        [p.duration for p in forward],
        [p.duration for p in backward],
        messages,
    )
    work = step_work(program)
    reduction = _reduction_seconds(program, work, prices)
    after = [_after_backward(program, rank, pipeline, backward, reduction) for rank in range(ranks)]
    end = largest(after)
    mine = [
        _rank_parts(forward[rank::ranks], backward[rank::ranks], count, pipeline.end[rank], after[rank], end)
        for rank in range(ranks)
    ]
    parts = of_largest(after, mine)
    once = [sum(p.communication for p in (*forward[r::ranks], *backward[r::ranks])) for r in range(ranks)]
    raw = [count * mine_once + (sum(once) - mine_once) / virtual for mine_once in once]
    seconds = end
    for part, last in work.tail:
        extra = prices.seconds(last)
        parts[part] = parts[part] + extra
        seconds = seconds + extra
    communication = of_largest(after, [{"raw": value} for value in raw])["raw"]
    return StepTimes(seconds, parts, communication, forward, backward, pipeline)


def _by_layout(program: Program, stages: int, prices: Prices, *, backward: bool) -> tuple[PassTimes, ...]:
    """Pass times by virtual stage; stages with the same pieces are placed once."""
    known: dict[object, PassTimes] = {}
    times = []
    for stage in range(stages):
        key = tuple(run.kind for run in program.forward(stage)), program.stages[stage]
        if key not in known:
            runs = program.backward(stage) if backward else program.forward(stage)
            independent = program.architecture.independent_branches
            concurrent = independent and program.scenario.implementation.concurrent_attention_mlp
            known[key] = run_pass(runs, prices, concurrent=concurrent)
        times.append(known[key])
    return tuple(times)


def _rank_parts(
    forward: tuple[PassTimes, ...],
    backward: tuple[PassTimes, ...],
    micro_batches: int,
    last: Number,
    reduced: Number,
    end: Number,
) -> dict[str, Number]:
    """What one rank did until `end`: its passes, waiting for the pipeline, and reducing gradients."""
    parts = {part: micro_batches * sum(p.parts[part] for p in (*forward, *backward)) for part in PARTS}
    busy = micro_batches * sum(p.duration for p in (*forward, *backward))
    parts[DATA_COMMUNICATION] = parts[DATA_COMMUNICATION] + (reduced - last)
    return {**parts, BUBBLE: last - busy + (end - reduced), PIPELINE_COMMUNICATION: 0.0, OPTIMIZER: 0.0}


def _reduction_seconds(program: Program, work: StepWork, prices: Prices) -> dict[BlockKind, Number]:
    """Seconds of reducing one piece's gradients over its replicas, by kind of piece."""
    kinds: set[BlockKind] = {segment.kind for stage in program.stages for segment in stage} | {"boundary"}
    return {kind: sum(prices.seconds(reduce) for reduce in work.reduce(kind)) for kind in kinds}


def _after_backward(
    program: Program,
    rank: int,
    pipeline: PipelineTimes,
    backward: tuple[PassTimes, ...],
    reduction: Mapping[BlockKind, Number],
) -> Number:
    """When a rank's gradients are reduced over its replicas; `reduction` is the seconds of one piece's.

    Overlapped, a piece's gradients are reduced as soon as its last backward is done, in order on one stream; else all
    of them after the last backward pass. Of pieces in a row the first or the last decides, since both grow linearly.
    """
    end = pipeline.end[rank]
    overlapped = program.scenario.training.overlap_gradient_reduce
    stream: Number = 0.0
    for chunk in reversed(range(program.virtual)):
        stage = chunk * program.pipeline + rank
        start = pipeline.last_backward[rank][chunk]
        for run, ends in zip(program.backward(stage), backward[stage].ends, strict=True):
            each = reduction[run.kind]
            for piece in ends:
                first = start + piece.first if overlapped else end
                last = start + piece.first + piece.period * (piece.count - 1) if overlapped else end
                reduced = np.maximum(first + piece.count * each, last + each)
                stream = np.maximum(stream + piece.count * each, reduced)
    return np.maximum(end, stream)
