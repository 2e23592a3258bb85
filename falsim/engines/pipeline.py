"""When every pass of a pipeline happens: a pass waits for its message, the sender does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falsim.dataflow import Number
from falsim.program.pipeline_order import Pass, order


@dataclass(frozen=True)
class PipelineTimes:
    """When the passes of a step end."""

    end: tuple[Number, ...]
    """By rank: the end of its last backward pass."""
    last_backward: tuple[tuple[Number, ...], ...]
    """By rank and chunk: the start of the chunk's backward pass of the last micro-batch."""


def run_pipeline(
    schedule: str,
    ranks: int,
    virtual: int,
    micro_batches: int,
    forward: Sequence[Number],
    backward: Sequence[Number],
    messages: Sequence[Number],
) -> PipelineTimes:
    """Place all passes; `forward` and `backward` are seconds by virtual stage (chunk·ranks + rank), `messages` those of
    what it gets from the stage before and later sends back.

    A step of many micro-batches is linear in their number once it is long; that is checked, and only then used.
    """
    if ranks == 1 and virtual == 1:
        end = micro_batches * (forward[0] + backward[0])
        return PipelineTimes((end,), ((end - backward[0],),))
    settle = ranks * (4 * virtual + 4)
    if micro_batches > settle + 3 * ranks:
        short = settle + (micro_batches - settle) % ranks
        few = [
            _place(schedule, ranks, virtual, short + extra * ranks, forward, backward, messages) for extra in (0, 1, 2)
        ]
        first, second, third = ([*t.end, *_flat(t.last_backward)] for t in few)
        if all(np.allclose(b - a, c - b, rtol=1e-12, atol=0.0) for a, b, c in zip(first, second, third, strict=True)):
            rounds = (micro_batches - short) // ranks
            values = [a + (b - a) * rounds for a, b in zip(first, second, strict=True)]
            return PipelineTimes(
                tuple(values[:ranks]),
                tuple(tuple(values[ranks + r * virtual : ranks + (r + 1) * virtual]) for r in range(ranks)),
            )
    return _place(schedule, ranks, virtual, micro_batches, forward, backward, messages)


def _flat(rows: Sequence[Sequence[Number]]) -> list[Number]:
    return [value for row in rows for value in row]


def _place(
    schedule: str,
    ranks: int,
    virtual: int,
    micro_batches: int,
    forward: Sequence[Number],
    backward: Sequence[Number],
    messages: Sequence[Number],
) -> PipelineTimes:
    queues = [order(schedule, ranks, virtual, micro_batches, rank) for rank in range(ranks)]
    stages = ranks * virtual
    ended: dict[tuple[bool, int, int], Number] = {}
    clock: list[Number] = [0.0] * ranks
    last_start: list[list[Number]] = [[0.0] * virtual for _ in range(ranks)]
    position = [0] * ranks
    waiting = set(range(ranks))
    while waiting:
        progressed = False
        for rank in sorted(waiting):
            queue = queues[rank]
            while position[rank] < len(queue):
                step = queue[position[rank]]
                stage = step.chunk * ranks + rank
                arrived = _arrival(ended, step, stage, stages, messages)
                if arrived is None:
                    break
                start = _later(clock[rank], arrived)
                clock[rank] = start + (forward if step.forward else backward)[stage]
                ended[step.forward, stage, step.micro_batch] = clock[rank]
                if not step.forward and step.micro_batch == micro_batches - 1:
                    last_start[rank][step.chunk] = start
                position[rank] += 1
                progressed = True
            if position[rank] == len(queue):
                waiting.discard(rank)
        if not progressed:
            stuck = {rank: queues[rank][position[rank]] for rank in sorted(waiting)}
            raise RuntimeError(f"pipeline schedule {schedule} cannot go on: {stuck}")
    return PipelineTimes(tuple(clock), tuple(tuple(row) for row in last_start))


def _arrival(
    ended: dict[tuple[bool, int, int], Number], step: Pass, stage: int, stages: int, messages: Sequence[Number]
) -> Number | None:
    """When a pass has its input; None if what makes it has not been placed yet."""
    if step.forward and stage == 0:
        return 0.0
    if not step.forward and stage == stages - 1:
        return ended.get((True, stage, step.micro_batch))
    source = ended.get((step.forward, stage - 1 if step.forward else stage + 1, step.micro_batch))
    return None if source is None else source + messages[stage if step.forward else stage + 1]


def _later(a: Number, b: Number) -> Number:
    """The later of two times; plain floats stay plain, which is many times faster than numpy scalars."""
    if isinstance(a, float) and isinstance(b, float):
        return a if a >= b else b
    return np.maximum(a, b)
