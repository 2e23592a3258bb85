"""Pipeline schedules against a list scheduler written from the papers, and their textbook bubbles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falsim.engines import pipeline
from falsim.engines.pipeline import PipelineTimes, run_pipeline
from falsim.program.pipeline_order import order
from falsim.program.step import deal_layers

Item = tuple[bool, int, int]  # forward, virtual stage, micro-batch


def queue(schedule: str, p: int, v: int, m: int, rank: int) -> list[Item]:
    """One rank's passes, written from the papers: GPipe all forward then all backward; 1F1B warms up with p - 1 - rank
    forwards; interleaved (Megatron-LM) with 2(p - 1 - rank) + (v - 1)p, in groups of p micro-batches a chunk."""
    ahead = [(start + j, c) for start in range(0, m, p) for c in range(v) for j in range(min(p, m - start))]
    back = [(start + j, c) for start in range(0, m, p) for c in reversed(range(v)) for j in range(min(p, m - start))]
    forwards: list[Item] = [(True, c * p + rank, k) for k, c in ahead]
    backwards: list[Item] = [(False, c * p + rank, k) for k, c in back]
    warm = {"gpipe": m, "1f1b": p - 1 - rank, "interleaved": m * v if m == p else 2 * (p - 1 - rank) + (v - 1) * p}
    head = min(warm[schedule], m * v)
    items = forwards[:head]
    for f, b in zip(forwards[head:], backwards, strict=False):
        items += [f, b]
    return items + backwards[m * v - head :]


def makespan(
    schedule: str, p: int, v: int, m: int, f: list[float], b: list[float], messages: list[float]
) -> list[float]:
    """When each rank is done: raise arrivals until nothing changes (Bellman-Ford on the schedule's graph).

    Every rank sends what it makes in the order it makes it, one message at a time forward and one at a time backward;
    messages[j] is the time from stage j - 1 to j and back.
    """
    queues = [queue(schedule, p, v, m, rank) for rank in range(p)]
    last = p * v - 1
    arrival: dict[Item, float] = {}
    ends = [0.0] * p
    changed = True
    while changed:
        changed = False
        for rank, items in enumerate(queues):
            clock = 0.0
            link = {True: 0.0, False: 0.0}
            for forward, stage, k in items:
                clock = max(clock, arrival.get((forward, stage, k), 0.0)) + (f if forward else b)[stage]
                if forward and stage == last:
                    reader, there = (False, last, k), clock
                elif not forward and stage == 0:
                    continue
                else:
                    reader = (forward, stage + 1 if forward else stage - 1, k)
                    there = link[forward] = max(link[forward], clock) + messages[stage + 1 if forward else stage]
                if there > arrival.get(reader, 0.0):
                    arrival[reader] = there
                    changed = True
            ends[rank] = clock
    return ends


SHAPES = st.tuples(
    st.sampled_from(["1f1b", "gpipe", "interleaved"]), st.integers(2, 4), st.integers(2, 3), st.integers(1, 5)
)


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.data())
def test_every_schedule_matches_a_list_scheduler(shape: tuple[str, int, int, int], data: st.DataObject) -> None:
    schedule, p, v, groups = shape
    v = v if schedule == "interleaved" else 1
    m = p * groups if schedule == "interleaved" else data.draw(st.integers(1, 12))
    seconds = st.floats(0.1, 10.0)
    f, b = (data.draw(st.lists(seconds, min_size=p * v, max_size=p * v)) for _ in range(2))
    message = st.sampled_from([0.0, 0.3, 4.0, 15.0])
    messages = data.draw(st.lists(message, min_size=p * v, max_size=p * v))
    times = run_pipeline(schedule, p, v, m, f, b, messages)
    assert list(times.end) == pytest.approx(makespan(schedule, p, v, m, f, b, messages))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 3, 8, 200])
def test_the_bubble_is_p_minus_one_passes(schedule: str, p: int, m: int) -> None:
    """Equal stages, free messages: (m + p - 1)(F + B) (GPipe; PipeDream-Flush)."""
    end = max(run_pipeline(schedule, p, 1, m, [2.0] * p, [3.0] * p, [0.0] * p).end)
    assert end == pytest.approx((m + p - 1) * 5.0)


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 8), (4, 3, 16), (8, 3, 64), (4, 2, 400)])
def test_interleaving_divides_the_bubble_by_v(p: int, v: int, m: int) -> None:
    """arXiv 2104.04473, section 2.2.2: m(F + B) + (p - 1)(F + B)/v with F, B of all chunks together."""
    end = max(run_pipeline("interleaved", p, v, m, [2.0 / v] * (p * v), [3.0 / v] * (p * v), [0.0] * (p * v)).end)
    assert end == pytest.approx(5.0 * (m + (p - 1) / v))


def test_the_heaviest_stage_sets_the_pace() -> None:
    f, b = [1.0, 1.0, 4.0, 1.0], [2.0, 2.0, 8.0, 2.0]
    few, many = (max(run_pipeline("1f1b", 4, 1, m, f, b, [0.0] * 4).end) for m in (100, 300))
    assert many - few == pytest.approx(200 * 12.0)


def test_each_boundary_has_its_own_message() -> None:
    """Stage j waits messages[j] for its input, and its gradient takes as long back; nothing arrives at stage 0."""
    assert max(run_pipeline("1f1b", 3, 1, 1, [1.0] * 3, [2.0] * 3, [100.0, 0.5, 4.0]).end) == pytest.approx(9.0 + 9.0)


def test_a_message_is_paid_on_the_way_down_and_up() -> None:
    """One micro-batch through 4 stages: all passes and 2·3 messages."""
    assert max(run_pipeline("1f1b", 4, 1, 1, [1.0] * 4, [2.0] * 4, [0.5] * 4).end) == pytest.approx(12.0 + 3.0)


def places(monkeypatch: pytest.MonkeyPatch, passes: int) -> list[int]:
    """Lets steps of up to so many passes be placed one by one; collects the micro-batches of every placement."""
    counts: list[int] = []

    def counted(schedule: str, p: int, v: int, m: int, *rest: Any) -> PipelineTimes:
        counts.append(m)
        return placed(schedule, p, v, m, *rest)

    placed = pipeline._place
    monkeypatch.setattr(pipeline, "_place", counted)
    monkeypatch.setattr(pipeline, "PLACED", passes)
    return counts


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data())
def test_a_very_long_step_equals_full_placement(schedule: str, data: st.DataObject) -> None:
    """Extrapolated over hundreds of micro-batches or, where rounds do not settle, placed after all."""
    p, v = data.draw(st.integers(2, 4)), 2 if schedule == "interleaved" else 1
    m = (24 * data.draw(st.integers(4, 5)) + data.draw(st.integers(3, 23))) * p
    m += 0 if v > 1 else data.draw(st.integers(0, p - 1))
    seconds = st.sampled_from([1.0, 1.5, 2.0, 3.5])
    f, b = (data.draw(st.lists(seconds, min_size=p * v, max_size=p * v)) for _ in range(2))
    messages = data.draw(st.lists(st.sampled_from([0.0, 0.3, 4.0]), min_size=p * v, max_size=p * v))
    with pytest.MonkeyPatch.context() as patch:
        counts = places(patch, 0)
        short = run_pipeline(schedule, p, v, m, f, b, messages)
    assert min(counts) < m
    full = run_pipeline(schedule, p, v, m, f, b, messages)
    assert list(short.end) == pytest.approx(list(full.end), rel=1e-9)
    for few, all_placed in zip(short.last_backward, full.last_backward, strict=True):
        assert list(few) == pytest.approx(list(all_placed), rel=1e-9)


@pytest.mark.parametrize(("schedule", "v"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_a_very_long_step_is_not_placed_one_by_one(schedule: str, v: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 ranks, 4000 micro-batches, messages that do not fit the passes: placed in part, right to the last second."""
    f, b, messages = [1.0] * 4 * v, [2.0] * 4 * v, [0.3] * 4 * v
    full = run_pipeline(schedule, 4, v, 4000, f, b, messages)
    counts = places(monkeypatch, 2 * 4 * v * 300)
    assert list(run_pipeline(schedule, 4, v, 4000, f, b, messages).end) == pytest.approx(list(full.end), rel=1e-12)
    assert len(counts) == 3
    assert max(counts) <= 300


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["1f1b", "gpipe"]), st.integers(2, 4), st.integers(40, 90), st.data())
def test_long_steps_are_exact(schedule: str, p: int, m: int, data: st.DataObject) -> None:
    """Free messages; with messages below."""
    seconds = st.sampled_from([1.0, 1.01, 2.0, 3.5])
    f, b = (data.draw(st.lists(seconds, min_size=p, max_size=p)) for _ in range(2))
    free = [0.0] * p
    assert list(run_pipeline(schedule, p, 1, m, f, b, free).end) == pytest.approx(
        makespan(schedule, p, 1, m, f, b, free), rel=1e-9
    )


@pytest.mark.parametrize(
    ("schedule", "p", "v", "m", "message"),
    [
        ("1f1b", 4, 1, 75, 0.3),
        ("1f1b", 4, 1, 96, 0.05),
        ("interleaved", 2, 2, 40, 4.0),
        ("interleaved", 2, 2, 40, 6.0),
        ("interleaved", 3, 2, 60, 8.0),
    ],
)
def test_long_steps_with_messages_are_exact(schedule: str, p: int, v: int, m: int, message: float) -> None:
    """F = 1, B = 2 (1 on the first stage of the 1f1b cases): some rounds of p micro-batches cost less than others."""
    f, b = [1.0] * (p * v), [1.0 if schedule == "1f1b" else 2.0, *[2.0] * (p * v - 1)]
    messages = [message] * (p * v)
    found = run_pipeline(schedule, p, v, m, f, b, messages).end
    assert list(found) == pytest.approx(makespan(schedule, p, v, m, f, b, messages), rel=1e-9)


def test_a_link_carries_one_message_at_a_time() -> None:
    """GPipe, 2 stages, 10 micro-batches, passes of 1 s, messages of 5 s. The first is ready at 1 s, so the tenth
    arrives at 1 + 10·5 = 51 s, and its forward pass ends at 52 s; ten gradients start back from 53 s, the link bound
    again: the tenth arrives at 53 + 10·5 = 103 s, its backward pass ends 1 s later."""
    end = max(run_pipeline("gpipe", 2, 1, 10, [1.0, 1.0], [1.0, 1.0], [5.0, 5.0]).end)
    assert end == pytest.approx(104.0)


@pytest.mark.parametrize(("schedule", "v"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)])
def test_every_rank_runs_every_pass_once_and_backward_after_forward(schedule: str, v: int) -> None:
    for p in (2, 4):
        for rank in range(p):
            passes = order(schedule, p, v, 4 * p, rank)
            assert len(passes) == len(set(passes)) == 2 * v * 4 * p
            seen = set()
            for step in passes:
                seen.add((step.chunk, step.micro_batch)) if step.forward else None
                assert (step.chunk, step.micro_batch) in seen


def test_one_f_one_b_holds_no_more_than_p_micro_batches() -> None:
    """1F1B's point (arXiv 2104.04473, section 2.2.1): rank r has at most p - r micro-batches in flight, GPipe all."""
    for schedule, expected in (("1f1b", [4, 3, 2, 1]), ("gpipe", [16] * 4)):
        for rank in range(4):
            live = most = 0
            for step in order(schedule, 4, 1, 16, rank):
                live += 1 if step.forward else -1
                most = max(most, live)
            assert most == expected[rank]


def test_layers_are_dealt_equally_and_the_ends_may_count_as_layers() -> None:
    """Llama 3 405B: 126 layers + embedding + loss over 16 stages × 8 chunks, one layer each; the ends hold none or
    one."""
    stages = deal_layers(126, 128, embedding=True, loss=True)
    layers = [sum(s.count for s in stage if s.kind in ("first", "later", "last", "only")) for stage in stages]
    assert layers == [0, *[1] * 126, 0]
    assert [s.kind for s in stages[0]] == ["embedding"]
    assert [s.kind for s in stages[1]] == ["first"]
    assert [s.kind for s in stages[-2]] == ["last"]
    assert [s.kind for s in stages[-1]] == ["head"]
    stages = deal_layers(12, 4, embedding=False, loss=False)
    assert [[(s.kind, s.count) for s in stage] for stage in stages] == [
        [("embedding", 1), ("first", 1), ("later", 2)],
        [("later", 3)],
        [("later", 3)],
        [("later", 2), ("last", 1), ("head", 1)],
    ]
    assert [s.kind for s in deal_layers(1, 1, embedding=False, loss=False)[0]] == ["embedding", "only", "head"]
