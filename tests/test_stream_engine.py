"""The stream engine against an unrolled placement of every op, and its closed forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falsim.dataflow import (
    Collective,
    CollectiveKind,
    Elementwise,
    Gemm,
    Graph,
    Group,
    Op,
    Phase,
    Stream,
    Transfer,
    Work,
)
from falsim.engines.stream import PARTS, run_pass
from falsim.program.async_tensor import chunk_collectives


@dataclass(frozen=True)
class Table:
    """Prices that read seconds off the work itself: `bytes` (or m of a product) seconds, `host` seconds an op."""

    host: object = 0.0

    def seconds(self, work: Work | None) -> object:
        match work:
            case None:
                return 0.0
            case Gemm():
                return work.m
            case _:
                return work.bytes

    def host_seconds(self, work: Work | None) -> object:
        return 0.0 if work is None else self.host


@dataclass(frozen=True)
class Pieces:
    kind: str
    graph: Graph
    count: int


def compute(seconds: object) -> Gemm:
    return Gemm(seconds, 1.0, 1.0)


def reduction(seconds: object, group: Group = Group.TENSOR) -> Collective:
    return Collective(CollectiveKind.ALL_REDUCE, seconds, group)


def graph(*ops: tuple[Work | None, tuple[int, ...]], inputs: dict[str, int], outputs: dict[str, int]) -> Graph:
    return Graph(tuple(Op(str(i), work, Phase.FORWARD, deps) for i, (work, deps) in enumerate(ops)), inputs, outputs)


def unrolled(pieces: list[tuple[Graph, int]], prices: Table) -> float:
    """Every op of every piece placed one by one in one flat list: the slow, obvious engine."""
    free = dict.fromkeys(Stream, 0.0)
    issued = 0.0
    carried: dict[str, float] = {}
    for piece, count in pieces:
        for _ in range(count):
            given = {index: carried.get(name, 0.0) for name, index in piece.inputs.items()}
            end: list[float] = []
            for index, op in enumerate(piece.ops):
                after = max([end[d] for d in op.deps], default=0.0)
                if op.work is None:
                    end.append(given.get(index, after))
                    continue
                issued += op.share * prices.host_seconds(op.work)
                free[op.stream] = max(free[op.stream], after, issued) + op.share * prices.seconds(op.work)
                end.append(free[op.stream])
            carried |= {name: end[index] for name, index in piece.outputs.items()}
    return max(free.values())


TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 7.0])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A random block of two carried tensors; its last op, on the compute stream, waits for every collective.

    That is what blocks do: a result nobody reads is not computed.
    """
    ops: list[Op] = [Op("a", None, Phase.FORWARD), Op("b", None, Phase.FORWARD)]
    for i in range(draw(st.integers(1, 6))):
        seconds = draw(TIMES)
        work = draw(
            st.sampled_from([compute(seconds), compute(seconds), reduction(seconds), Transfer(seconds, Group.CONTEXT)])
        )
        deps = tuple(sorted(draw(st.sets(st.integers(0, len(ops) - 1), max_size=3))))
        ops.append(Op(str(i), work, Phase.FORWARD, deps, share=draw(st.sampled_from([1.0, 0.25]))))
    ops.append(Op("last", compute(draw(TIMES)), Phase.FORWARD, tuple(range(len(ops)))))
    outputs = {name: draw(st.integers(2, len(ops) - 1)) for name in ("a", "b")}
    return Graph(tuple(ops), {"a": 0, "b": 1}, outputs)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(graphs(), st.integers(1, 40)), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.25, 1.0, 4.0]),
)
def test_counting_periods_gives_what_placing_every_piece_gives(pieces: list[tuple[Graph, int]], host: float) -> None:
    prices = Table(host)
    times = run_pass([Pieces("later", g, n) for g, n in pieces], prices)
    assert times.duration == pytest.approx(unrolled(pieces, prices), rel=1e-12)
    assert sum(times.parts.values()) == pytest.approx(times.duration, rel=1e-12, abs=1e-12)
    assert all(value >= -1e-12 for value in times.parts.values())
    assert set(times.parts) == set(PARTS)


def blocks(g: object, w: object, hidden: object = 0.0) -> Graph:
    """A product, its reduction, and a weight gradient beside it; the next block reads the reduced result."""
    return graph(
        (None, ()), (compute(g), (0,)), (reduction(w), (1,)), (compute(hidden), (1,)), inputs={"x": 0}, outputs={"x": 2}
    )


@pytest.mark.parametrize(
    ("g", "w", "hidden", "host", "each"),
    [
        (3.0, 2.0, 0.0, 0.0, 5.0),  # nothing hides the reduction: g + w
        (3.0, 2.0, 1.0, 0.0, 5.0),  # partly hidden: g + max(w, 1)
        (3.0, 2.0, 4.0, 0.0, 7.0),  # wholly hidden: compute-bound, g + 4
        (0.0, 9.0, 1.0, 0.0, 9.0),  # communication-bound
        (0.1, 0.1, 0.1, 2.0, 6.0),  # host-bound: three ops of 2 s to issue
    ],
)
def test_a_row_of_equal_blocks_costs_one_period_each(
    g: float, w: float, hidden: float, host: float, each: float
) -> None:
    ten, hundred = (run_pass([Pieces("later", blocks(g, w, hidden), n)], Table(host)).duration for n in (10, 100))
    assert hundred - ten == pytest.approx(90 * each)


def test_a_collective_never_starts_before_its_producer_ends() -> None:
    times = run_pass([Pieces("later", blocks(3.0, 2.0), 1)], Table())
    assert times.duration == pytest.approx(5.0)
    assert times.parts["tensor_communication"] == pytest.approx(2.0)
    assert times.parts["matmul"] == pytest.approx(3.0)


def test_raw_communication_counts_hidden_collectives_too() -> None:
    times = run_pass([Pieces("later", blocks(3.0, 2.0, 4.0), 7)], Table())
    assert times.communication == pytest.approx(14.0)
    assert times.parts["tensor_communication"] == pytest.approx(0.0)


def test_the_wait_is_booked_to_the_group_that_was_waited_for() -> None:
    for group, part in (
        (Group.TENSOR, "tensor_communication"),
        (Group.EXPERT, "expert_communication"),
        (Group.DATA, "data_communication"),
    ):
        piece = graph(
            (compute(1.0), ()), (reduction(5.0, group), (0,)), (compute(1.0), (1,)), inputs={}, outputs={"x": 2}
        )
        assert run_pass([Pieces("later", piece, 1)], Table()).parts[part] == pytest.approx(5.0)


def test_arrays_give_what_scalars_give_one_by_one() -> None:
    g, w, hidden = (np.array(values) for values in ([3.0, 0.1, 5.0, 0.2], [2.0, 9.0, 0.0, 0.1], [0.0, 1.0, 4.0, 0.3]))
    host = np.array([0.0, 0.1, 1.0, 3.0])
    together = run_pass([Pieces("later", blocks(g, w, hidden), 50)], Table(host))
    for i in range(4):
        alone = run_pass([Pieces("later", blocks(g[i], w[i], hidden[i]), 50)], Table(host[i]))
        assert together.duration[i] == pytest.approx(alone.duration, rel=1e-12)
        for part, seconds in together.parts.items():
            assert np.broadcast_to(seconds, 4)[i] == pytest.approx(alone.parts[part], rel=1e-9, abs=1e-12)


def test_a_backlog_nobody_waits_for_drains() -> None:
    """Piece 0 puts 100 s on the data stream; each later one adds 1 s of data beside 3 s of compute. Data is done at 100
    + n until compute overtakes it: for n = 100 compute ends at 300, the last piece's data 1 s later."""
    backlog = graph((reduction(100.0, Group.DATA), ()), inputs={}, outputs={})
    piece = graph((compute(3.0), ()), (reduction(1.0, Group.DATA), (0,)), inputs={}, outputs={})
    pieces = [(backlog, 1), (piece, 100)]
    assert unrolled(pieces, Table()) == pytest.approx(301.0)
    assert run_pass([Pieces("later", g, n) for g, n in pieces], Table()).duration == pytest.approx(301.0)


# Async tensor parallelism, c chunks, product g, collective w (PyTorch's decomposed matmul; a two-stage pipeline).


def pipelined(g: float, w: float, chunks: int) -> float:
    """Chunk by chunk: g/c of the product, then w/c of the collective, each in order."""
    product = collective = 0.0
    for _ in range(chunks):
        product += g / chunks
        collective = max(collective, product) + w / chunks
    return collective


@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize(("g", "w"), [(8.0, 2.0), (8.0, 8.0), (2.0, 8.0), (8.0, 0.0)])
def test_a_product_and_its_all_reduce_run_in_chunks(g: float, w: float, chunks: int) -> None:
    chunked = chunk_collectives(blocks(g, w), float(chunks))
    duration = run_pass([Pieces("later", chunked, 1)], Table()).duration
    assert duration == pytest.approx(max(g + w / chunks, g / chunks + w))
    assert duration == pytest.approx(pipelined(g, w, chunks))


@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize(("g", "w"), [(8.0, 2.0), (8.0, 8.0), (2.0, 8.0), (8.0, 0.0)])
def test_scatters_and_gathers_in_chunks(g: float, w: float, chunks: int) -> None:
    scatter = Collective(CollectiveKind.REDUCE_SCATTER, w, Group.TENSOR)
    piece = graph((compute(g), ()), (scatter, (0,)), inputs={}, outputs={"x": 1})
    duration = run_pass([Pieces("later", chunk_collectives(piece, float(chunks)), 1)], Table()).duration
    assert duration == pytest.approx(max(g, g / chunks + w))
    gather = Collective(CollectiveKind.ALL_GATHER, w, Group.TENSOR)
    piece = graph((gather, ()), (compute(g), (0,)), inputs={}, outputs={"x": 1})
    duration = run_pass([Pieces("later", chunk_collectives(piece, float(chunks)), 1)], Table()).duration
    assert duration == pytest.approx(max(g, w + g / chunks))


def test_chunks_keep_the_work() -> None:
    piece = graph(
        (None, ()),
        (compute(2.0), (0,)),
        (compute(3.0), (0,)),
        (Elementwise(1.0), (1, 2)),
        (reduction(4.0), (3,)),
        (compute(5.0), (4,)),
        inputs={"x": 0},
        outputs={"x": 5},
    )
    chunked = chunk_collectives(piece, 4.0)
    for kind in (Gemm, Elementwise, Collective):
        before, after = (
            sum(op.share * Table().seconds(op.work) for op in g.ops if isinstance(op.work, kind))
            for g in (piece, chunked)
        )
        assert after == pytest.approx(before)
    for index, op in enumerate(chunked.ops):
        assert all(dep < index for dep in op.deps)
