"""Max-plus arithmetic on one rank's streams: when each op of a graph starts and ends, for arrays of configurations.

Every stream is in order. An op starts when its stream is free, its dependencies have ended and the host has issued
it; the host issues ops in graph order and never waits inside a pass. Equal pieces in a row settle into a period,
after which they are counted instead of placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from falsim.dataflow import (
    Attention,
    Collective,
    Elementwise,
    Gemm,
    Graph,
    Group,
    Number,
    Op,
    Phase,
    Stream,
    Transfer,
    Work,
)
from falsim.engines.concurrency import concurrent_seconds

TENSOR_COMMUNICATION = "tensor_communication"
EXPERT_COMMUNICATION = "expert_communication"
CONTEXT_COMMUNICATION = "context_communication"
DATA_COMMUNICATION = "data_communication"
HOST = "host"
PARTS = (
    "matmul",
    "attention",
    "elementwise",
    "recompute",
    TENSOR_COMMUNICATION,
    EXPERT_COMMUNICATION,
    CONTEXT_COMMUNICATION,
    DATA_COMMUNICATION,
    HOST,
)
"""What a rank's compute stream spends its time on: busy by kind of op, idle by what it waited for."""

_WAITS = {
    Group.TENSOR: TENSOR_COMMUNICATION,
    Group.EXPERT: EXPERT_COMMUNICATION,
    Group.CONTEXT: CONTEXT_COMMUNICATION,
    Group.DATA: DATA_COMMUNICATION,
    Group.EXPERT_DATA: DATA_COMMUNICATION,
}


class PricesOps(Protocol):
    """What the engine needs of the cost model."""

    def seconds(self, work: Work | None) -> Number:
        """Seconds of one op on its stream."""

    def host_seconds(self, work: Work | None) -> Number:
        """Seconds of the host that issues it."""

    def demand(self, work: Work | None) -> tuple[Number, Number]:
        """Seconds of tensor cores and seconds of memory a kernel needs at full rate."""


class Pieces(Protocol):
    """A run of equal pieces."""

    @property
    def graph(self) -> Graph:
        """Ops of one piece."""

    @property
    def count(self) -> int:
        """How many in a row."""


@dataclass(frozen=True)
class Placed:
    """One op with its place in time, relative to the start of its pass."""

    op: Op
    start: Number
    end: Number


@dataclass(frozen=True)
class Ends:
    """When the compute of `count` pieces in a row ends: the first at `first`, then one every `period`."""

    first: Number
    period: Number
    count: int


@dataclass(frozen=True)
class PassTimes:
    """One pass of one rank over its pieces."""

    duration: Number
    parts: dict[str, Number]
    """Seconds of the compute stream by part; they add up to the duration."""
    ends: tuple[tuple[Ends, ...], ...]
    """For every run of pieces, when they ended."""
    communication: Number
    """Seconds of tensor-parallel collectives, hidden or not."""


@dataclass
class _Clock:
    """Where the streams and the carried tensors of a rank stand."""

    streams: dict[Stream, Number] = field(default_factory=lambda: dict.fromkeys(Stream, 0.0))
    host: Number = 0.0
    ready: dict[str, tuple[Number, str | None]] = field(default_factory=dict)
    parts: dict[str, Number] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    communication: Number = 0.0
    last: dict[Stream, str] = field(default_factory=dict)
    """What waiting for the last op of a stream counts as."""

    def vector(self) -> list[Number]:
        """Everything that repeats or not from piece to piece."""
        times = [*self.streams.values(), self.host, *(time for time, _ in self.ready.values())]
        return [*times, *self.parts.values(), self.communication]

    def advance(self, deltas: Sequence[Number], times: float) -> None:
        """Move everything on by `times` periods."""
        moves = iter(deltas)
        for stream in self.streams:
            self.streams[stream] = self.streams[stream] + times * next(moves)
        self.host = self.host + times * next(moves)
        self.ready = {name: (time + times * next(moves), wait) for name, (time, wait) in self.ready.items()}
        self.parts = {part: value + times * next(moves) for part, value in self.parts.items()}
        self.communication = self.communication + times * next(moves)


def run_pass(runs: Iterable[Pieces], prices: PricesOps, *, concurrent: bool = False) -> PassTimes:
    """Place one pass from idle streams; it ends when all streams are idle again.

    `concurrent` runs attention and MLP of a block at once where they are independent.
    """
    clock = _Clock()
    ends = [tuple(_run(clock, pieces.graph, pieces.count, prices, concurrent)) for pieces in runs]
    duration = clock.streams[Stream.COMPUTE]
    for stream, part in clock.last.items():
        late = np.maximum(clock.streams[stream] - duration, 0.0)
        clock.parts[part] = clock.parts[part] + late
        duration = duration + late
    return PassTimes(duration, clock.parts, tuple(ends), clock.communication)


def _run(clock: _Clock, graph: Graph, count: int, prices: PricesOps, concurrent: bool) -> list[Ends]:
    """Place `count` equal pieces; once two periods are alike and nothing drifts, count the rest."""
    seconds = [op.share * prices.seconds(op.work) for op in graph.ops]
    if concurrent:
        seconds = concurrent_seconds(graph, seconds, prices)
    host = [op.share * prices.host_seconds(op.work) for op in graph.ops]
    ends: list[Ends] = []
    before: list[Number] | None = None
    period: list[Number] | None = None
    for done in range(1, count + 1):
        place(clock, graph, seconds, host)
        ends.append(Ends(clock.streams[Stream.COMPUTE], 0.0, 1))
        now = clock.vector()
        if before is not None and len(before) == len(now):
            latest = [b - a for a, b in zip(before, now, strict=True)]
            if period is not None and _settled(period, latest, clock):
                left = count - done
                if left:
                    step = latest[list(clock.streams).index(Stream.COMPUTE)]
                    ends.append(Ends(clock.streams[Stream.COMPUTE] + step, step, left))
                    clock.advance(latest, left)
                return ends
            period = latest
        before = now
    return ends


def _settled(period: Sequence[Number], latest: Sequence[Number], clock: _Clock) -> bool:
    """Whether two periods are alike, and stay so: every clock keeps pace with compute, stands still, or is behind it
    and falls further behind."""
    timed = len(clock.streams) + 1 + len(clock.ready)
    position = list(clock.streams).index(Stream.COMPUTE)
    step, now = latest[position], clock.vector()
    slack = 1e-12 * step
    alike = all(np.all(np.abs(a - b) <= slack) for a, b in zip(period, latest, strict=True))
    return alike and all(
        np.all((np.abs(delta - step) <= slack) | (delta == 0.0) | ((delta < step) & (time <= now[position])))
        for delta, time in zip(latest[:timed], now, strict=False)
    )


def place(clock: _Clock, graph: Graph, seconds: Sequence[Number], host: Sequence[Number]) -> list[Placed]:
    """Place one graph after what the clock holds; carried tensors are handed on through `clock.ready`."""
    given = {index: clock.ready.get(name, (0.0, None)) for name, index in graph.inputs.items()}
    made: list[tuple[Number, str | None]] = []
    placed: list[Placed] = []
    for index, op in enumerate(graph.ops):
        deps = [made[dep] for dep in op.deps]
        if op.work is None:
            made.append(given.get(index) or _join(deps))
            continue
        clock.host = clock.host + host[index]
        free = clock.streams[op.stream]
        ready = free
        for time, wait in deps:
            if op.stream is Stream.COMPUTE and wait is not None:
                late = np.maximum(time - ready, 0.0)
                clock.parts[wait] = clock.parts[wait] + late
                ready = ready + late
            else:
                ready = np.maximum(ready, time)
        start = np.maximum(ready, clock.host)
        end = start + seconds[index]
        clock.streams[op.stream] = end
        if op.stream is Stream.COMPUTE:
            clock.parts[HOST] = clock.parts[HOST] + (start - ready)
            clock.parts[_part(op)] = clock.parts[_part(op)] + seconds[index]
            made.append((end, None))
        else:
            work = op.work
            assert isinstance(work, Collective | Transfer)
            if work.group is Group.TENSOR:
                clock.communication = clock.communication + seconds[index]
            clock.last[op.stream] = _WAITS[work.group]
            made.append((end, _WAITS[work.group]))
        placed.append(Placed(op, start, end))
    clock.ready |= {name: made[index] for name, index in graph.outputs.items()}
    return placed


def _join(deps: Sequence[tuple[Number, str | None]]) -> tuple[Number, str | None]:
    """A point that waits for several ops: when the last ends, and a collective among them as what was waited for."""
    time: Number = 0.0
    wait: str | None = None
    for dep, cause in deps:
        time = np.maximum(time, dep)
        wait = cause or wait
    return time, wait


def _part(op: Op) -> str:
    if op.phase is Phase.RECOMPUTE:
        return "recompute"
    match op.work:
        case Gemm():
            return "matmul"
        case Attention():
            return "attention"
        case Elementwise():
            return "elementwise"
        case _:
            raise AssertionError(op)
