"""How many tensor-parallel collectives a micro-batch needs and how many bytes they carry: tables written out by hand.

Payload of each collective of a block is T·h·e: here T = 2·1024 tokens, h = 1024, e = 2 bytes, so 4 MiB.
"""

from __future__ import annotations

from typing import Any

import pytest
from conftest import make_scenario

from falsim.dataflow import CollectiveKind, Phase
from falsim.program import Program
from falsim.program.counts import CollectiveCounts, Tally, collective_counts

AR, AG, RS = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
PAYLOAD = 2 * 1024 * 1024 * 2.0
LAYERS = (1, 2, 12, 96)


def count(
    architecture: str, layers: int, tensor: int = 2, *, sequence: bool = False, **switches: Any
) -> CollectiveCounts:
    recompute = switches.pop("recompute", "none")
    pipeline = switches.pop("pipeline", {})
    model = {"num_layers": layers} | switches.pop("model", {})
    scenario = make_scenario(
        model=model,
        parallelism={"tensor": tensor, "sequence": sequence} | pipeline,
        training={"recompute": recompute, "global_batch_size": 16},
        implementation=switches,
    )
    return collective_counts(Program(scenario, architecture))


def check(tally: Tally, *, ar: int = 0, ag: int = 0, rs: int = 0) -> None:
    expected = {kind: number for kind, number in ((AR, ar), (AG, ag), (RS, rs)) if number}
    assert {kind: number for kind, (number, _) in tally.by_kind.items()} == pytest.approx(expected)
    assert {kind: size for kind, (_, size) in tally.by_kind.items()} == pytest.approx(
        {kind: number * PAYLOAD for kind, number in expected.items()}
    )


# (architecture, first block, merged): (forward at L = 1, 2, 12, 96), (backward at L = 1, 2, 12, 96)
# gpt, fal_plus, ladder: two sub-blocks a block, each reduced once forward; two column inputs a block backward.
# fal: block 1 is gpt's (2), each later block one: L + 1. Merged backward: block 1 two, A1 one, later one each: L + 2.
# At L = 1 nothing reads A1's signal, so fal and fal_plus are gpt.
TENSOR_PARALLEL = {
    ("gpt", "gpt", None): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("gpt", "gpt", True): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("gpt", "gpt", False): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("fal", "gpt", None): ((2, 3, 13, 97), (2, 4, 14, 98)),
    ("fal", "gpt", True): ((2, 3, 13, 97), (2, 4, 14, 98)),
    ("fal", "gpt", False): ((2, 3, 13, 97), (2, 4, 24, 192)),
    ("fal", "fal", True): ((2, 3, 13, 97), (2, 3, 13, 97)),
    ("fal", "fal", False): ((2, 3, 13, 97), (2, 4, 24, 192)),
    ("fal_plus", "gpt", None): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("fal_plus", "gpt", True): ((2, 4, 24, 192), (2, 5, 25, 193)),
    ("fal_plus", "gpt", False): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("parallel", "gpt", None): ((1, 2, 12, 96), (1, 2, 12, 96)),
    ("parallel", "gpt", True): ((1, 2, 12, 96), (1, 2, 12, 96)),
    ("parallel", "gpt", False): ((1, 2, 12, 96), (2, 4, 24, 192)),
    ("ladder", "gpt", None): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("ladder", "gpt", True): ((2, 4, 24, 192), (2, 4, 24, 192)),
    ("ladder", "gpt", False): ((2, 4, 24, 192), (2, 4, 24, 192)),
}


@pytest.mark.parametrize("tensor", [2, 8])
@pytest.mark.parametrize(("architecture", "first_block", "merge"), TENSOR_PARALLEL)
def test_all_reduces_of_the_blocks(architecture: str, first_block: str, merge: bool | None, tensor: int) -> None:
    forward, backward = TENSOR_PARALLEL[architecture, first_block, merge]
    for layers, ahead, back in zip(LAYERS, forward, backward, strict=True):
        counts = count(architecture, layers, tensor, first_block=first_block, merge_partial_gradients=merge)
        check(counts.forward, ar=ahead)
        check(counts.backward, ar=back)
        check(counts.recompute)


# (architecture, merged): forward (AG, RS), backward (AG, RS), each at L = 1, 2, 12, 96.
# gpt: a gather per column input, a scatter per row output; backward the duals (2 + 2) and the two inputs gathered
# again. fal merged: block 1 gpt's + a gather of A1 (forward) and a scatter of its gradient; later 1 AG + 1 RS, back
# 2 AG + 1 RS. fal naive: later 2 AG + 1 RS, back 1 + 2 AG and 2 RS. parallel merged: 1 + 1, back 2 + 1; naive as
# fal's later block. ladder: its last block's two results share one output gradient, gathered once: one AG less than
# gpt.
SEQUENCE_PARALLEL = {
    ("gpt", None): (((2, 4, 24, 192), (2, 4, 24, 192)), ((4, 8, 48, 384), (2, 4, 24, 192))),
    ("fal", True): (((2, 4, 14, 98), (2, 3, 13, 97)), ((4, 6, 26, 194), (2, 4, 14, 98))),
    ("fal", False): (((2, 4, 24, 192), (2, 3, 13, 97)), ((4, 7, 37, 289), (2, 4, 24, 192))),
    ("fal_plus", False): (((2, 4, 24, 192), (2, 4, 24, 192)), ((4, 8, 48, 384), (2, 4, 24, 192))),
    ("fal_plus", True): (((2, 4, 24, 192), (2, 4, 24, 192)), ((4, 8, 48, 384), (2, 5, 25, 193))),
    ("parallel", True): (((1, 2, 12, 96), (1, 2, 12, 96)), ((2, 4, 24, 192), (1, 2, 12, 96))),
    ("parallel", False): (((2, 4, 24, 192), (1, 2, 12, 96)), ((3, 6, 36, 288), (2, 4, 24, 192))),
    ("ladder", None): (((2, 4, 24, 192), (2, 4, 24, 192)), ((3, 7, 47, 383), (2, 4, 24, 192))),
}


@pytest.mark.parametrize("tensor", [2, 8])
@pytest.mark.parametrize(("architecture", "merge"), SEQUENCE_PARALLEL)
def test_gathers_and_scatters_under_sequence_parallelism(architecture: str, merge: bool | None, tensor: int) -> None:
    (gathers, scatters), (gathers_back, scatters_back) = SEQUENCE_PARALLEL[architecture, merge]
    for i, layers in enumerate(LAYERS):
        counts = count(architecture, layers, tensor, sequence=True, merge_partial_gradients=merge)
        check(counts.forward, ag=gathers[i], rs=scatters[i])
        check(counts.backward, ag=gathers_back[i], rs=scatters_back[i])


def test_fal_first_block_works_under_sequence_parallelism() -> None:
    """Block 1: x gathered once, A1 scattered and gathered for g, MLP scattered: 2 AG + 2 RS; later 1 + 1."""
    counts = count("fal", 12, sequence=True, first_block="fal", merge_partial_gradients=True)
    check(counts.forward, ag=13, rs=13)
    assert counts.backward.by_kind[RS][0] == 13  # one for A1's gradient, one a block


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("architecture", ["gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync"])
def test_one_gpu_has_no_tensor_collective(architecture: str, sequence: bool) -> None:
    for recompute in ("none", "full"):
        counts = count(architecture, 12, 1, sequence=sequence, recompute=recompute)
        for tally in (counts.forward, counts.backward, counts.other_forward, counts.other_backward):
            check(tally)
        check(counts.other_per_step)


# In all (forward + replay + backward) at L blocks, tensor parallel. Replayed: F + F + B; early stop leaves out one
# of each block's: gpt 6 and 5 a block; fal merged 3 and 2 a later block, naive 4 and 3.
RECOMPUTED = {
    ("gpt", None): (lambda n: 6 * n, lambda n: 5 * n),
    ("fal", True): (lambda n: 3 * n + 4, lambda n: 2 * n + 4),  # 2(L + 1) + L + 2
    ("fal", False): (lambda n: 4 * n + 2, lambda n: 3 * n + 2),  # 2(L + 1) + 2L
    ("fal_plus", False): (lambda n: 6 * n, lambda n: 5 * n),
    ("parallel", True): (lambda n: 3 * n, lambda n: 2 * n),
    ("parallel", False): (lambda n: 4 * n, lambda n: 3 * n),
}


@pytest.mark.parametrize("layers", [2, 12, 96])
@pytest.mark.parametrize(("architecture", "merge"), RECOMPUTED)
def test_recompute_repeats_the_forward_collectives(architecture: str, merge: bool | None, layers: int) -> None:
    replayed, early = RECOMPUTED[architecture, merge]
    for early_stop, expected in ((False, replayed(layers)), (True, early(layers))):
        counts = count(
            architecture, layers, recompute="full", merge_partial_gradients=merge, recompute_early_stop=early_stop
        )
        assert counts.forward.count + counts.backward.count == pytest.approx(expected)
        plain = count(architecture, layers, merge_partial_gradients=merge)
        assert counts.recompute.count == pytest.approx(expected - plain.forward.count - plain.backward.count)


def test_ladder_replays_both_collectives_of_a_block() -> None:
    counts = count("ladder", 12, recompute="full")
    check(counts.recompute, ar=24)
    check(counts.backward, ar=48)


@pytest.mark.parametrize("architecture", ["gpt", "fal", "fal_plus", "parallel", "ladder"])
def test_switches_that_leave_the_counts_alone(architecture: str) -> None:
    """Selective recompute repeats no projection; early stop without recompute is nothing; overlap moves, not adds."""
    plain = count(architecture, 12)
    for sequence in (False, True):
        plain = count(architecture, 12, sequence=sequence)
        for switches in (
            {"recompute": "selective"},
            {"recompute_early_stop": True},
            {"overlap": "none"},
            {"overlap": "async_tp"},
        ):
            changed = count(architecture, 12, sequence=sequence, **switches)
            for name in ("forward", "backward", "other_forward", "other_backward", "other_per_step"):
                before, after = getattr(plain, name), getattr(changed, name)
                assert after.by_kind.keys() == before.by_kind.keys()
                for kind, (number, size) in before.by_kind.items():
                    assert after.by_kind[kind] == pytest.approx((number, size)), (switches, name)


@pytest.mark.parametrize("architecture", ["gpt", "fal", "fal_plus", "parallel", "ladder"])
@pytest.mark.parametrize("stages", [2, 4])
def test_a_pipeline_moves_blocks_and_adds_none(architecture: str, stages: int) -> None:
    whole, cut = (count(architecture, 12, pipeline={"pipeline": p}) for p in (1, stages))
    assert cut.forward == whole.forward
    assert cut.backward == whole.backward
    assert cut.other_forward == whole.other_forward
    assert cut.other_backward == whole.other_backward


@pytest.mark.parametrize(
    ("pipeline", "boundaries"),
    [
        ({"pipeline": 2}, 1),
        ({"pipeline": 4}, 3),
        ({"pipeline": 2, "pipeline_schedule": "interleaved", "virtual_pipeline": 3}, 1),
    ],
)
def test_a_replicated_signal_is_gathered_once_on_every_later_rank(pipeline: dict[str, Any], boundaries: int) -> None:
    """Under sequence parallelism g crosses sharded: a gather on arrival, a scatter of its gradient before it goes back;
    a rank's later chunks find it there."""
    counts = count("fal", 12, sequence=True, pipeline=pipeline)
    check(counts.forward, ag=14 + boundaries, rs=13)
    check(counts.backward, ag=26, rs=14 + boundaries)
    naive = count("fal", 12, sequence=True, merge_partial_gradients=False, pipeline=pipeline)
    check(naive.forward, ag=24, rs=13)  # g stays sharded, as its readers want it
    check(naive.backward, ag=37, rs=24)


def test_collectives_of_the_embedding_and_the_head() -> None:
    """Forward: T·h·e after the embedding, three float32 of T in the cross-entropy; backward: the head's input
    gradient."""
    counts = count("gpt", 2)
    scalars = 3 * 2048 * 4.0
    assert counts.other_forward.by_kind == {AR: (4.0, PAYLOAD + scalars)}
    assert counts.other_backward.by_kind == {AR: (1.0, PAYLOAD)}
    # Sequence parallel: the embedding scatters, the head gathers (and again for its weight gradient, and scatters the
    # gradient); the embedding's gradient is gathered.
    counts = count("gpt", 2, sequence=True)
    assert counts.other_forward.by_kind == {RS: (1.0, PAYLOAD), AG: (1.0, PAYLOAD), AR: (3.0, scalars)}
    assert counts.other_backward.by_kind == {AG: (2.0, 2 * PAYLOAD), RS: (1.0, PAYLOAD)}


# Norms whose gradients are partial sums, L = 12. Merged fal: both norms of the 11 later blocks (block 1 merges
# nothing); with first_block fal both norms of all 12. Sequence parallelism: every norm (24, fal's Nf, and the final
# one).
SMALL = [
    ("gpt", {}, False, 0),
    ("fal", {}, False, 22),
    ("fal", {"first_block": "fal"}, False, 24),
    ("fal", {"merge_partial_gradients": False}, False, 0),
    ("fal_plus", {}, False, 0),
    ("parallel", {}, False, 0),
    ("ladder", {}, False, 0),
    ("gpt", {}, True, 25),
    ("fal", {}, True, 26),
    ("fal_plus", {}, True, 26),
    ("parallel", {}, True, 13),
    ("ladder", {}, True, 25),
]


@pytest.mark.parametrize(("norm", "vectors"), [("layernorm", 2), ("rmsnorm", 1)])
@pytest.mark.parametrize(("architecture", "switches", "sequence", "norms"), SMALL)
def test_norm_gradients_that_are_partial_sums_share_one_small_all_reduce_a_step(
    architecture: str, switches: dict[str, Any], sequence: bool, norms: int, norm: str, vectors: int
) -> None:
    counts = count(architecture, 12, sequence=sequence, model={"norm": norm}, **switches)
    scalar = 4.0  # the gradient norm, one float32
    expected = (2.0, norms * vectors * 1024 * 4.0 + scalar) if norms else (1.0, scalar)
    assert counts.other_per_step.by_kind == {AR: pytest.approx(expected)}


def test_fal_of_one_block_has_no_small_all_reduce() -> None:
    assert count("fal", 1).other_per_step.by_kind == {AR: (1.0, 4.0)}


def test_a_tied_embedding_is_reduced_between_the_pipeline_ends() -> None:
    """V·h/n float32 elements over the embedding group, and one more scalar of the gradient norm over the pipeline."""
    tied = count("gpt", 12, pipeline={"pipeline": 2}, model={"tie_word_embeddings": True}).other_per_step
    untied = count("gpt", 12, pipeline={"pipeline": 2}).other_per_step
    assert untied.by_kind[AR] == (2.0, 8.0)
    assert tied.by_kind[AR] == (3.0, 8.0 + 32000 * 1024 / 2 * 4.0)


def test_the_bound_counts_no_tensor_collectives() -> None:
    counts = count("no_sync", 12)
    for tally in (counts.forward, counts.backward, counts.other_forward, counts.other_backward, counts.other_per_step):
        check(tally)


def test_experts_exchange_twice_forward_and_twice_backward() -> None:
    """Two all-to-alls each way per MoE layer, T·k·h·e bytes each; their backward does not replay them."""
    scenario = make_scenario(
        model={"num_layers": 12, "num_experts": 8, "num_experts_per_token": 2},
        parallelism={"tensor": 2, "data": 4, "expert": 4},
        training={"global_batch_size": 16},
    )
    counts = collective_counts(Program(scenario, "gpt"))
    assert counts.expert.by_kind == {CollectiveKind.ALL_TO_ALL: (48.0, 48 * 2 * PAYLOAD)}


@pytest.mark.parametrize("architecture", ["gpt", "fal", "parallel", "ladder"])
def test_every_collective_of_the_replay_is_marked_as_recompute(architecture: str) -> None:
    scenario = make_scenario(parallelism={"tensor": 2}, training={"recompute": "full"})
    program = Program(scenario, architecture)
    kinds = {op.phase for op in program.blocks["later"].backward.collectives()}
    assert kinds == {Phase.RECOMPUTE, Phase.BACKWARD}
