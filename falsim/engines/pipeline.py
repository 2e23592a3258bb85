"""When every pass of a pipeline happens: a pass waits for its message, a link carries one message at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
    micro_batches: Number,
    forward: Sequence[Number],
    backward: Sequence[Number],
    messages: Sequence[Number],
) -> PipelineTimes:
    """Place all passes.

    `forward` and `backward` are seconds by virtual stage (chunk·ranks + rank), `messages` those of what a stage gets
    from the one before and later sends back. A very long step is placed in part: it is linear in rounds of
    micro-batches once it has settled, which is checked over many rounds and only then used. Configurations with
    different numbers of `micro_batches` are placed one number after the other.
    """
    if np.ndim(micro_batches) and (ranks > 1 or virtual > 1):
        return _by_count(schedule, ranks, virtual, np.asarray(micro_batches), forward, backward, messages)
    if ranks == 1 and virtual == 1:
        end = micro_batches * (forward[0] + backward[0])
        return PipelineTimes((end,), ((end - backward[0],),))
    lag = next((r for r in ROUNDS if 6 * r * ranks * ranks * virtual <= PLACED_TO_SETTLE), ROUNDS[-1]) * ranks
    longest = max(PLACED // (2 * ranks * virtual), 3 * lag + 4 * ranks)
    if micro_batches > longest:
        rounds = -(-(micro_batches - longest) // lag)
        counts = [micro_batches - (rounds + back) * lag for back in (0, 1, 2)]
        few = [_place(schedule, ranks, virtual, count, forward, backward, messages) for count in counts]
        last, before, earlier = ([*times.end, *_flat(times.last_backward)] for times in few)
        steady = zip(last, before, earlier, strict=True)
        if all(np.all(np.abs((a - b) - (b - c)) <= ROUNDING * a) for a, b, c in steady):
            values = [a + (a - b) * rounds for a, b in zip(last, before, strict=True)]
            starts = values[ranks:]
            return PipelineTimes(
                tuple(values[:ranks]), tuple(tuple(starts[r * virtual : (r + 1) * virtual]) for r in range(ranks))
            )
    return _place(schedule, ranks, virtual, micro_batches, forward, backward, messages)


def _by_count(
    schedule: str,
    ranks: int,
    virtual: int,
    micro_batches: Number,
    forward: Sequence[Number],
    backward: Sequence[Number],
    messages: Sequence[Number],
) -> PipelineTimes:
    """The configurations of every number of micro-batches, put together again."""
    end = np.zeros((ranks, *micro_batches.shape))
    start = np.zeros((ranks, virtual, *micro_batches.shape))
    for count in np.unique(micro_batches):
        chosen = micro_batches == count
        own = ([value[chosen] if np.ndim(value) else value for value in all_] for all_ in (forward, backward, messages))
        times = run_pipeline(schedule, ranks, virtual, int(count), *own)
        for rank in range(ranks):
            end[rank][chosen] = times.end[rank]
            for chunk in range(virtual):
                start[rank, chunk][chosen] = times.last_backward[rank][chunk]
    return PipelineTimes(tuple(end), tuple(tuple(row) for row in start))


PLACED = 20_000
"""Passes placed one by one before a step counts as very long."""
ROUNDS = (24, 12, 6)
"""Rounds of `ranks` micro-batches in one checked period, the longest that is not too many passes: divisible by the
short periods schedules settle into."""
PLACED_TO_SETTLE = 400_000
ROUNDING = 1e-12
"""Relative to the end of the step: what adding up some ten thousand passes may be off by."""


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
    queues = _queues(schedule, ranks, virtual, micro_batches)
    later: Callable[[Number, Number], Number] = np.maximum
    if not any(np.ndim(value) for value in (*forward, *backward, *messages)):  # plain floats are many times faster
        forward, backward, messages = ([float(value) for value in all_] for all_ in (forward, backward, messages))
        later = max
    last = ranks * virtual - 1
    arrived: dict[tuple[bool, int, int], Number] = {(True, 0, i): 0.0 for i in range(micro_batches)}
    links: dict[tuple[bool, int], Number] = {}
    clock: list[Number] = [0.0] * ranks
    last_start: list[list[Number]] = [[0.0] * virtual for _ in range(ranks)]
    position = [0] * ranks
    waiting = list(range(ranks))
    while waiting:
        progressed = False
        for rank in waiting:
            queue = queues[rank]
            while position[rank] < len(queue):
                ahead, chunk, micro_batch = queue[position[rank]]
                stage = chunk * ranks + rank
                given = arrived.pop((ahead, stage, micro_batch), None)
                if given is None:
                    break
                start = later(clock[rank], given)
                end = clock[rank] = start + (forward if ahead else backward)[stage]
                if ahead and stage == last:
                    arrived[False, stage, micro_batch] = end
                elif ahead or stage > 0:  # one message at a time each way between two ranks
                    link = ahead, rank
                    leaves = later(end, links.get(link, 0.0))
                    links[link] = leaves + messages[stage + 1 if ahead else stage]
                    arrived[ahead, stage + 1 if ahead else stage - 1, micro_batch] = links[link]
                if not ahead and micro_batch == micro_batches - 1:
                    last_start[rank][chunk] = start
                position[rank] += 1
                progressed = True
        waiting = [rank for rank in waiting if position[rank] < len(queues[rank])]
        if not progressed:
            stuck = {rank: queues[rank][position[rank]] for rank in waiting}
            raise RuntimeError(f"pipeline schedule {schedule} cannot go on: {stuck}")
    return PipelineTimes(tuple(clock), tuple(tuple(row) for row in last_start))


@lru_cache(maxsize=32)
def _queues(schedule: str, ranks: int, virtual: int, micro_batches: int) -> tuple[tuple[Pass, ...], ...]:
    """The passes of every rank in order; sweeps ask for the same ones again and again."""
    return tuple(tuple(order(schedule, ranks, virtual, micro_batches, rank)) for rank in range(ranks))
