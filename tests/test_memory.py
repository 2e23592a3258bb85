"""Bytes of the fullest GPU, part by part, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import make_scenario

from falsim.catalog.parameters import parameter_count
from falsim.program import Program
from falsim.program.memory import memory_of
from falsim.program.pipeline_order import order

T, H, V, L = 2048.0, 1024.0, 32000.0, 4
BLOCK = 12 * H**2 + 4 * H + 4 * H + 5 * H  # 12h², two LayerNorms, biases of attention (4h) and MLP (5h): 12h² + 13h


def parts(architecture: str = "gpt", **sections: Any) -> dict[str, float]:
    memory = memory_of(Program(make_scenario(**sections), architecture))
    assert memory.peak == pytest.approx(sum(memory.parts.values()))
    assert all(value >= 0 for value in memory.parts.values())
    return {part: float(value) for part, value in memory.parts.items()}


def parameters(**sections: Any) -> float:
    return parts(**sections)["weights"] / 2


def test_one_gpu_holds_every_parameter() -> None:
    """12h² + 13h a block, V·h embedding and head each, final norm 2h."""
    expected = L * BLOCK + 2 * V * H + 2 * H
    assert parameter_count(make_scenario().model) == expected
    assert parameters() == pytest.approx(expected)


def test_tensor_parallelism_divides_all_but_the_norms() -> None:
    """Norms whole; a row-parallel bias may be whole or shared: h a linear, 2·L·h in all."""
    whole = L * BLOCK + 2 * V * H + 2 * H
    norms = L * 4 * H + 2 * H
    expected = (whole - norms) / 8 + norms
    assert expected <= parameters(parallelism={"tensor": 8}) <= expected + 2 * L * H


def test_key_value_weights_are_replicated_above_the_key_value_heads() -> None:
    """2 KV heads of 64 over TP 8: each rank a whole head: K and V of h·64 each instead of h·16."""
    model = {"num_key_value_heads": 2, "attention_bias": False}
    eight, whole = (parameters(model=model, parallelism={"tensor": n}) for n in (8, 1))
    norms = L * 4 * H + 2 * H
    assert eight == pytest.approx((whole - norms) / 8 + norms + L * 2 * H * (64 - 16))


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer"), [(0, 1, 1, 1), (1, 1, 1, 4), (2, 1, 4, 4), (3, 4, 4, 4)]
)
def test_zero_shards_states_then_gradients_then_weights(
    zero: int, weights: int, gradients: int, optimizer: int
) -> None:
    """Rajbhandari et al. (arXiv 1910.02054): bytes a parameter 2 + 4 (float32 gradients) + 12, each over 4 replicas."""
    count = parameter_count(make_scenario().model)
    found = parts(parallelism={"data": 4, "zero": zero}, training={"global_batch_size": 8})
    assert found["weights"] == pytest.approx(2 * count / weights)
    assert found["gradients"] == pytest.approx(4 * count / gradients)
    assert found["optimizer"] == pytest.approx(12 * count / optimizer)


@pytest.mark.parametrize(
    ("precision", "optimizer", "states"),
    [("bf16", "adamw", 12), ("bf16", "sgd", 8), ("fp32", "adamw", 8), ("fp32", "sgd", 4)],
)
def test_optimizer_states(precision: str, optimizer: str, states: int) -> None:
    found = parts(training={"precision": precision, "optimizer": optimizer})
    assert found["optimizer"] == pytest.approx(states * parameter_count(make_scenario().model))


def test_activations_of_gpt_by_hand() -> None:
    """A block 32·T·h (fp16 bytes, no dropout masks) and attention statistics 4·T·16; the final norm's and the head's
    inputs 2·T·h·2, the logits' bf16 input of the loss and its float32 softmax."""
    blocks = L * (32 * T * H + 4 * T * 16)
    head = 2 * T * H * 2 + T * V * (2 + 4)
    assert parts()["activations"] == pytest.approx(blocks + head, rel=0.01)


def test_full_recompute_keeps_a_blocks_input_and_one_block_at_work() -> None:
    """2·T·h a block and, while one is recomputed, the rest of what a block keeps."""
    head = 2 * T * H * 2 + T * V * (2 + 4)
    expected = L * 2 * T * H + (30 * T * H + 4 * T * 16) + head
    assert parts(training={"recompute": "full"})["activations"] == pytest.approx(expected, rel=0.01)


def test_a_recomputed_ladder_block_keeps_all_it_was_given() -> None:
    """u, n and m, three tensors a block where gpt has x alone; block 1 has only x. The rest differs by less than four
    tensors, of the one block at work."""
    gpt, ladder = (
        parts(name, model={"num_layers": 64}, training={"recompute": "full"})["activations"]
        for name in ("gpt", "ladder")
    )
    assert ladder - gpt == pytest.approx(63 * 2 * 2 * T * H, abs=4 * 2 * T * H)


@pytest.mark.parametrize("architecture", ["gpt", "parallel", "ladder", "no_sync"])
def test_only_fal_keeps_a_signal(architecture: str) -> None:
    assert parts(architecture)["signal"] == 0


@pytest.mark.parametrize("tensor", [1, 8])
def test_fals_signal_is_one_tensor_and_its_gradient(tensor: int) -> None:
    assert parts("fal", parallelism={"tensor": tensor})["signal"] == pytest.approx(2 * T * H * 2)


def test_fal_saves_one_tensor_in_every_later_block() -> None:
    """Against that, block 1 keeps A1 for the norm on it."""
    gpt, fal = (parts(name)["activations"] for name in ("gpt", "fal"))
    assert gpt - fal == pytest.approx((L - 1) * 2 * T * H - 2 * T * H)


@pytest.mark.parametrize(("schedule", "held"), [("1f1b", 4), ("gpipe", 16)])
def test_the_first_stage_holds_the_micro_batches_in_flight(schedule: str, held: int) -> None:
    """4 stages of 8 blocks, 16 micro-batches: 1F1B keeps 4 on the first stage (PipeDream), GPipe all 16."""
    found = parts(
        model={"num_layers": 32, "vocab_size": 100},
        parallelism={"pipeline": 4, "pipeline_schedule": schedule},
        training={"global_batch_size": 32},
    )
    assert found["activations"] == pytest.approx(held * 8 * (32 * T * H + 4 * T * 16), rel=0.05)


def test_interleaving_holds_more_than_1f1b() -> None:
    """arXiv 2205.05198, section 4.2.3: L·(1 + (p - 1)/(p·v)) layers' activations on the first stage: p = 4, v = 2:
    1.375."""
    model = {"num_layers": 32, "vocab_size": 100}
    found = parts(
        model=model,
        parallelism={"pipeline": 4, "pipeline_schedule": "interleaved", "virtual_pipeline": 2},
        training={"global_batch_size": 32},
    )
    assert found["activations"] == pytest.approx(1.375 * 32 * (32 * T * H + 4 * T * 16), rel=0.05)


def test_zero_shards_experts_over_the_ranks_that_hold_them() -> None:
    """8 experts, expert parallel 4 of data 4: every rank holds 2 experts alone, so ZeRO-1 shards none of their
    states."""
    found = parts(
        model={"num_experts": 8, "num_experts_per_token": 2},
        parallelism={"data": 4, "expert": 4, "zero": 1},
        training={"global_batch_size": 8},
    )
    assert found["optimizer"] >= 12 * L * 2 * 8 * H**2


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("virtual", [2, 3, 5])
def test_an_interleaved_rank_keeps_most_within_four_micro_batches_a_rank(ranks: int, virtual: int) -> None:
    """So the peak of a long step is that of a short one."""

    def peaks(micro_batches: int, rank: int) -> tuple[int, int]:
        passes = live = most = 0
        chunks: dict[int, int] = {}
        for step in order("interleaved", ranks, virtual, micro_batches, rank):
            live += 1 if step.forward else -1
            chunks[step.micro_batch] = chunks.get(step.micro_batch, 0) + (1 if step.forward else -1)
            passes = max(passes, live)
            most = max(most, sum(count > 0 for count in chunks.values()))
        return passes, most

    for rank in range(ranks):
        for rounds in (4, 5, 7):
            assert peaks(rounds * ranks, rank) == peaks(4 * ranks, rank)
