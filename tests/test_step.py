"""A whole step: passes times micro-batches, gradient reduction, optimizer, and what a Result says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import ideal_calibration, make_scenario

from falsim.costs.prices import Prices, prices_of
from falsim.dataflow import Attention, Collective, CollectiveKind, Elementwise, Group, Transfer
from falsim.engines.schedule import STEP_PARTS, run_step
from falsim.engines.stream import run_pass
from falsim.program import Program
from falsim.program.around import step_work
from falsim.program.sharding import Run
from falsim.simulate import simulate


def step(architecture: str = "gpt", **sections: Any) -> tuple[Program, Prices, Any]:
    scenario = make_scenario(**sections)
    program, prices = Program(scenario, architecture), prices_of(scenario)
    return program, prices, run_step(program, prices)


def seconds(prices: Prices, works: tuple[Collective, ...]) -> float:
    return float(sum(prices.seconds(work) for work in works))


def tail(program: Program, prices: Prices) -> float:
    return float(sum(prices.seconds(work) for _, work in step_work(program).tail))


@pytest.mark.parametrize("architecture", ["gpt", "fal", "ladder", "no_sync"])
def test_without_a_pipeline_micro_batches_follow_each_other(architecture: str) -> None:
    program, prices, times = step(architecture, parallelism={"tensor": 2}, training={"global_batch_size": 16})
    if architecture == "no_sync":
        prices = prices.without_tensor_collectives()
    forward, backward = (run_pass(runs, prices).duration for runs in (program.forward(0), program.backward(0)))
    assert times.seconds == pytest.approx(8 * (forward + backward) + tail(program, prices), rel=1e-12)


@pytest.mark.parametrize(
    ("parallelism", "training"),
    [
        ({"tensor": 2}, {}),
        ({"tensor": 2, "pipeline": 4}, {"global_batch_size": 16}),
        ({"pipeline": 2, "pipeline_schedule": "interleaved", "virtual_pipeline": 2}, {"global_batch_size": 200}),
        ({"tensor": 2, "data": 4, "zero": 3}, {"global_batch_size": 16}),
        ({"data": 2, "context": 2}, {"global_batch_size": 16, "overlap_gradient_reduce": False}),
    ],
)
def test_the_parts_of_a_step_add_up(parallelism: dict[str, Any], training: dict[str, Any]) -> None:
    for name in ("gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync"):
        _, _, times = step(name, parallelism=parallelism, training=training)
        assert set(times.parts) == set(STEP_PARTS)
        assert sum(times.parts.values()) == pytest.approx(times.seconds, rel=1e-12)
        assert min(times.parts.values()) >= 0


def test_the_optimizer_reads_and_writes_its_states_once() -> None:
    """AdamW 30 bytes a parameter and 4 for the gradient norm, over the bandwidth of an H100: 3350 GB/s · 0.91."""
    program, prices, times = step()
    count = float(program.parameters.total)
    expected = 34 * count / (3350e9 * 0.91) + 2 * prices.device.kernel_launch
    assert times.parts["optimizer"] == pytest.approx(expected)
    _, _, sharded = step(parallelism={"data": 4, "zero": 1}, training={"global_batch_size": 8})
    launches = 2 * prices.device.kernel_launch
    assert sharded.parts["optimizer"] - launches == pytest.approx((expected - launches) / 4)


def unrolled_ends(runs: tuple[Run, ...], prices: Prices) -> list[tuple[Run, float]]:
    """When each single piece of a pass is done on the compute stream, by placing ever longer prefixes of it."""
    pieces = [replace(run, count=1) for run in runs for _ in range(run.count)]
    return [
        (piece, float(sum(run_pass(pieces[: i + 1], prices).ends[-1][-1].first for _ in "1")))
        for i, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize("bandwidth", ["400 Gb/s", "5 Gb/s"])
@pytest.mark.parametrize("zero", [0, 1])
def test_overlapped_gradient_reduction_piece_by_piece(bandwidth: str, zero: int) -> None:
    """Every piece's reduction starts when its last backward ends and the one before is done; the rest is exposed."""
    cluster = {"gpus_per_node": 1, "nodes": 4, "inter_node": {"preset": "infiniband-400g", "bandwidth": bandwidth}}
    program, prices, times = step(
        model={"num_layers": 24},
        cluster=cluster,
        parallelism={"data": 4, "zero": zero},
        training={"global_batch_size": 16},
    )
    work = step_work(program)
    forward, backward = (run_pass(runs, prices).duration for runs in (program.forward(0), program.backward(0)))
    done = float(2 * forward + backward)  # the last of two micro-batches begins its backward here
    for piece, end in unrolled_ends(program.backward(0), prices):
        done = max(done, 2 * forward + backward + end) + seconds(prices, work.reduce(piece.kind))
    expected = max(done, 2 * (forward + backward)) + tail(program, prices)
    assert times.seconds == pytest.approx(expected, rel=1e-9)


def test_a_reduction_that_is_not_overlapped_is_paid_in_full() -> None:
    """4 ranks, 4 bytes a gradient, one message a piece; everything on the critical path."""
    sections: dict[str, Any] = {"parallelism": {"data": 4}, "training": {"global_batch_size": 8}}
    sections["training"]["overlap_gradient_reduce"] = False
    program, prices, times = step(**sections)
    reduce = step_work(program).reduce
    expected = sum(seconds(prices, reduce(s.kind)) * s.count for s in program.stages[0])
    assert times.parts["data_communication"] == pytest.approx(expected)
    works = [work for s in program.stages[0] for _ in range(s.count) for work in reduce(s.kind)]
    assert {work.group for work in works} == {Group.DATA}
    assert sum(work.bytes for work in works) == pytest.approx(4 * program.parameters.total)
    sections["training"]["overlap_gradient_reduce"] = True
    assert step(**sections)[2].seconds < times.seconds


@pytest.mark.parametrize("zero", [1, 2])
def test_zero_scatters_gradients_and_gathers_weights(zero: int) -> None:
    """float32 gradients scattered, bf16 weights gathered: 4 + 2 bytes a parameter once round instead of 4 twice
    round."""
    program, _, _ = step(parallelism={"data": 4, "zero": zero}, training={"global_batch_size": 8})
    work = step_work(program)
    reduced = [w for s in program.stages[0] for _ in range(s.count) for w in work.reduce(s.kind)]
    assert {w.kind for w in reduced} == {CollectiveKind.REDUCE_SCATTER}
    assert sum(w.bytes for w in reduced) == pytest.approx(4.0 * program.parameters.total)
    (gathered,) = [w for part, w in work.tail if part == "data_communication"]
    assert isinstance(gathered, Collective)
    assert (gathered.kind, gathered.bytes) == (CollectiveKind.ALL_GATHER, 2.0 * program.parameters.total)


def test_zero_three_gathers_twice_and_scatters_once_a_micro_batch() -> None:
    program, _, _ = step(parallelism={"data": 4, "zero": 3}, training={"global_batch_size": 8})
    total = float(program.parameters.total)
    moved: dict[CollectiveKind, float] = {}
    for runs in (program.forward(0), program.backward(0)):
        for run in runs:
            for op in run.graph.collectives():
                assert isinstance(op.work, Collective)
                moved[op.work.kind] = moved.get(op.work.kind, 0.0) + run.count * op.work.bytes
    assert moved[CollectiveKind.ALL_GATHER] == pytest.approx(2 * 2.0 * total)
    assert moved[CollectiveKind.REDUCE_SCATTER] == pytest.approx(4.0 * total)
    assert [work for s in program.stages[0] for work in step_work(program).reduce(s.kind)] == []


def test_expert_gradients_are_reduced_over_the_ranks_that_hold_the_expert() -> None:
    """Expert parallel 4 with 8 experts, two a rank. Of 8 replicas two hold the same experts, and reduce 2·1/2 of their
    float32 gradients, after 2·7/8 of the dense ones; of 4 replicas nobody shares an expert, and only the dense
    gradients move, 2·3/4 of them."""
    for data, holders in ((8, 2), (4, 1)):
        scenario = make_scenario(
            model={"num_experts": 8, "num_experts_per_token": 2},
            cluster={"intra_node": "nvlink3-nvswitch"},  # a ring, no in-switch reduction
            parallelism={"data": data, "expert": 4},
            training={"global_batch_size": 16},
        )
        program, prices = Program(scenario, "gpt"), prices_of(scenario)
        reduced = step_work(program).reduce("later")
        dense, experts = program.rank_parameters("later")
        assert experts == 2 * (8 * 1024**2 + 5 * 1024)  # two experts: h·4h and 4h·h, their biases 4h and h
        groups = {work.group: work.bytes for work in reduced}
        wanted = {Group.DATA: 4.0 * dense} | ({Group.EXPERT_DATA: 4.0 * experts} if holders > 1 else {})
        assert groups == pytest.approx(wanted)
        moved = 4.0 * (2 * (data - 1) / data * dense + 2 * (holders - 1) / holders * experts)
        network = replace(prices.network, constants=ideal_calibration())
        assert seconds(replace(prices, network=network), reduced) == pytest.approx(moved / (300e9 * 0.783))


def test_the_pipeline_sends_what_is_carried() -> None:
    """x alone, fal also g; ladder u and m. T·h·e each; under sequence parallelism each rank sends its part."""
    payload = 2 * 1024 * 1024 * 2.0
    for name, tensors in (("gpt", 1), ("parallel", 1), ("fal", 2), ("fal_plus", 2), ("ladder", 2)):
        for sequence, share in ((False, 1), (True, 2)):
            scenario = make_scenario(
                parallelism={"tensor": 2, "pipeline": 2, "sequence": sequence}, training={"global_batch_size": 8}
            )
            program = Program(scenario, name)
            assert program.message(0) is None
            assert program.message(1) == Transfer(tensors * payload / share, Group.PIPELINE)


def test_a_signal_reaches_each_rank_once() -> None:
    """Interleaved, p = 2, v = 2: virtual stages 2 and 3 stand on ranks that have g already; u and m move every time."""
    parallelism = {"pipeline": 2, "pipeline_schedule": "interleaved", "virtual_pipeline": 2}
    scenario = make_scenario(parallelism=parallelism, training={"global_batch_size": 8})
    payload = 2 * 1024 * 1024 * 2.0
    for name, tensors in (("gpt", (1, 1, 1)), ("fal", (2, 1, 1)), ("ladder", (2, 2, 2))):
        program = Program(scenario, name)
        sent = [program.message(stage) for stage in (1, 2, 3)]
        assert sent == [Transfer(number * payload, Group.PIPELINE) for number in tensors]


@pytest.mark.parametrize("bandwidth", ["5 GB/s", "100 GB/s", "450 GB/s"])
def test_context_parallel_messages_hide_behind_all_but_the_last_block_of_attention(bandwidth: str) -> None:
    """c = 4: three messages of the local keys and values, 2·T·h·e each, run beside three quarters of the attention.

    Cutting costs nothing: the pieces are 3/4 and 1/4 of the uncut attention's time."""
    program, prices, _ = step(
        parallelism={"context": 4},
        training={"sequence_length": 8192},
        cluster={"intra_node": {"preset": "nvlink4-nvswitch", "bandwidth": bandwidth}},
    )
    messages = float(prices.seconds(Transfer(2 * (2 * 8192 / 4) * 1024 * 2.0, Group.CONTEXT, 3)))
    at_hand = 3 / 4 * float(prices.seconds(Attention(2.0, 2048.0, 8192.0, 16.0, 16.0, 64.0, flash=True)))
    (later,) = (run for run in program.forward(0) if run.kind == "later")
    times = run_pass([replace(later, count=1)], prices)
    assert times.parts["context_communication"] == pytest.approx(max(0.0, messages - at_hand), rel=1e-6, abs=1e-12)


def test_a_slow_host_sets_the_pace() -> None:
    """With 1 ms a kernel the step is the number of kernels times 1 ms (and what the last one takes)."""
    scenario = make_scenario(cluster={"gpu": {"preset": "h100-sxm", "host_launch": "1 ms"}})
    program, prices = Program(scenario, "gpt"), prices_of(scenario)
    times = run_step(program, prices)
    kernels = sum(
        run.count * sum(prices.host_seconds(op.work) for op in run.graph.ops)
        for runs in (program.forward(0), program.backward(0))
        for run in runs
    )
    assert times.seconds == pytest.approx(kernels, rel=0.02)
    assert times.parts["host"] > 0.9 * times.seconds


def test_no_sync_frees_tensor_collectives_only() -> None:
    sections: dict[str, Any] = {
        "parallelism": {"tensor": 2, "data": 2},
        "training": {"global_batch_size": 8, "overlap_gradient_reduce": False},
    }
    _, _, bound = step("no_sync", **sections)
    _, _, gpt = step("gpt", **sections)
    assert bound.parts["tensor_communication"] == bound.tensor_communication == 0
    assert bound.parts["data_communication"] == pytest.approx(gpt.parts["data_communication"])


def test_on_one_gpu_fal_costs_its_norm_and_its_adds() -> None:
    """Nf 2 + 3 passes over T·h·e; each of 3 later blocks adds g (3 passes) and g's gradient (3); nothing is saved
    but the launches are the same two sums: fal - gpt is between those bytes and a few launches more or less."""
    _, prices, gpt = step("gpt", cluster={"gpu": {"preset": "h100-sxm", "host_launch": "0 us"}})
    program, _, fal = step("fal", cluster={"gpu": {"preset": "h100-sxm", "host_launch": "0 us"}})
    payload = program.dims.activation_bytes
    extra = float(prices.seconds(Elementwise((5 + 3 * 6) * payload)))
    launch = prices.device.kernel_launch
    # block 1 joins A1's gradient to x's (3); of later blocks the last one's g has no gradient to add to yet (-3)
    assert float(fal.seconds - gpt.seconds) == pytest.approx(
        extra, abs=3 * payload / prices.device.memory_bandwidth + 9 * launch
    )


def test_mfu_is_model_flops_over_peak() -> None:
    scenario = make_scenario(parallelism={"tensor": 2}, training={"recompute": "full"})
    gpt = simulate(scenario)["gpt"]
    tokens, hidden, layers, vocab, length = 2048, 1024, 4, 32000, 1024
    products, scores = layers * 24 * tokens * hidden**2, layers * 4 * tokens * length * hidden
    head = 2 * tokens * hidden * vocab
    available = gpt.step_time_s * 2 * 989e12
    assert gpt.mfu == pytest.approx(3 * (products + scores + head) / available)
    assert gpt.mfu_causal == pytest.approx(3 * (products + scores / 2 + head) / available)
    assert gpt.hfu == pytest.approx((4 * (products + scores) + 3 * head) / available)
    assert gpt.tokens_per_s_per_gpu == pytest.approx(tokens / gpt.step_time_s / 2)
    assert gpt.speedup_over_gpt == 1.0


def test_speedups_are_over_gpt_even_where_gpt_is_not_asked_for() -> None:
    both = simulate(make_scenario(parallelism={"tensor": 8}, architectures=("gpt", "fal")))
    alone = simulate(make_scenario(parallelism={"tensor": 8}, architectures=("fal",)))
    assert [r.architecture for r in alone.results] == ["fal"]
    assert alone["fal"].speedup_over_gpt == pytest.approx(both["gpt"].step_time_s / both["fal"].step_time_s)


@pytest.mark.parametrize("architecture", ["gpt", "ladder"])
def test_async_chunks_never_cost_more_than_no_overlap_when_products_are_large(architecture: str) -> None:
    sections: dict[str, Any] = {
        "model": {
            "hidden_size": 8192,
            "intermediate_size": 32768,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
        },
        "parallelism": {"tensor": 8, "sequence": True},
        "training": {"sequence_length": 4096},
    }
    chunked, exposed = (
        step(architecture, implementation={"overlap": overlap}, **sections)[2].seconds
        for overlap in ("async_tp", "none")
    )
    assert chunked < exposed


@pytest.mark.parametrize("expert", [1, 2, 4])
def test_zero_3_gathers_experts_over_the_ranks_that_share_them(expert: int) -> None:
    """Four replicas: 4/EP of them share 8/EP experts; a rank that shares them with nobody gathers none."""
    scenario = make_scenario(
        model={"num_experts": 8, "num_experts_per_token": 2},
        parallelism={"data": 4, "expert": expert, "zero": 3},
        training={"global_batch_size": 8},
    )
    program = Program(scenario, "gpt")
    works = [op.work for run in program.forward(0) for op in run.graph.collectives()]
    gathered = {work.bytes for work in works if isinstance(work, Collective) and work.group is Group.EXPERT_DATA}
    one_block = 8 / expert * (2 * 1024 * 4096 + 4096 + 1024) * 2  # two matrices and their biases, in bf16
    assert sorted(gathered) == pytest.approx([] if expert == 4 else [one_block])
