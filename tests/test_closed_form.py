"""The closed form of blocks on ideal hardware: what halving the all-reduces can gain, by arithmetic.

GPT with f = 4h, no overlap, no recompute, no latency, no element-wise time, attention's s·h term negligible (h ≫ s):

* compute of a block on one of n ranks: 3·24·T·h²/(n·F);
* its communication: 4 all-reduces of T·h·e bytes: 4·2(n-1)/n·T·h·e/B;
* so ρ = (e/9)(n-1)F/(h·B) and the communication share c = ρ/(1 + ρ);
* fal needs (L + 1) + (L + 2) of gpt's 4L merged, (L + 1) + 2L naive: cut = c(2L - 3)/(4L), c(L - 1)/(4L).
"""

from __future__ import annotations

import pytest
from conftest import ideal_prices, make_scenario

from falsim.costs.prices import Prices
from falsim.engines.stream import run_pass
from falsim.program import Program
from falsim.program.sharding import Run

FLOPS = 4e14
SEQUENCE = 16
GRID = [
    (layers, hidden, n, bandwidth)
    for layers in (2, 3, 12, 96)
    for hidden in (2048, 12288)
    for n in (2, 8)
    for bandwidth in (2e9, 25e9, 400e9)
]


def blocks_seconds(program: Program, prices: Prices) -> float:
    """One micro-batch through the blocks alone: the passes without embedding and head."""

    def only_blocks(runs: tuple[Run, ...]) -> list[Run]:
        return [run for run in runs if run.kind not in ("embedding", "head")]

    passes = (only_blocks(program.forward(0)), only_blocks(program.backward(0)))
    return float(sum(run_pass(runs, prices).duration for runs in passes))


def times(layers: int, hidden: int, n: int, bandwidth: float, **switches: object) -> dict[str, float]:
    recompute = switches.pop("recompute", "none")
    scenario = make_scenario(
        model={
            "num_layers": layers,
            "hidden_size": hidden,
            "intermediate_size": 4 * hidden,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
        },
        parallelism={"tensor": n},
        training={"sequence_length": SEQUENCE, "recompute": recompute},
        implementation={"overlap": "none"} | switches,
    )
    prices = ideal_prices(flops=FLOPS, bandwidth=bandwidth, ranks=float(n))
    found = {name: blocks_seconds(Program(scenario, name), prices) for name in ("gpt", "fal", "parallel")}
    free = prices.without_tensor_collectives()
    return found | {"no_sync": blocks_seconds(Program(scenario, "no_sync"), free)}


@pytest.mark.parametrize(("layers", "hidden", "n", "bandwidth"), GRID)
def test_gains_follow_the_closed_form(layers: int, hidden: int, n: int, bandwidth: float) -> None:
    rho = 2 / 9 * (n - 1) * FLOPS / (hidden * bandwidth)
    share = rho / (1 + rho)
    found = times(layers, hidden, n, bandwidth)
    assert found["gpt"] / found["no_sync"] - 1 == pytest.approx(rho, rel=0.03)
    assert 1 - found["parallel"] / found["gpt"] == pytest.approx(share / 2, rel=0.03)
    naive = times(layers, hidden, n, bandwidth, merge_partial_gradients=False)
    assert 1 - naive["fal"] / naive["gpt"] == pytest.approx(share * (layers - 1) / (4 * layers), rel=0.03)


def test_the_gain_of_fal_follows_the_closed_form() -> None:
    for layers, hidden, n, bandwidth in GRID:
        rho = 2 / 9 * (n - 1) * FLOPS / (hidden * bandwidth)
        cut = rho / (1 + rho) * (2 * layers - 3) / (4 * layers)
        found = times(layers, hidden, n, bandwidth)
        assert 1 - found["fal"] / found["gpt"] == pytest.approx(cut, rel=0.03), (layers, hidden, n, bandwidth)


@pytest.mark.parametrize("bandwidth", [2e9, 25e9, 400e9])
def test_replayed_recompute_changes_the_ratio(bandwidth: float) -> None:
    """Four forward-equivalents of compute and six all-reduces: ρ = (e/8)(n - 1)F/(h·B)."""
    found = times(12, 4096, 8, bandwidth, recompute="full")
    rho = 2 / 8 * 7 * FLOPS / (4096 * bandwidth)
    assert found["gpt"] / found["no_sync"] - 1 == pytest.approx(rho, rel=0.03)


def test_the_compute_of_a_step_is_exact() -> None:
    """3·24·T·h²·L/(n·F) and attention: 4·T·s·h forward, 2.5 times that backward."""
    found = times(12, 4096, 8, 25e9)
    tokens = 2 * SEQUENCE
    expected = 12 * (72 * tokens * 4096**2 + 3.5 * 4 * tokens * SEQUENCE * 4096) / 8 / FLOPS
    assert found["no_sync"] == pytest.approx(expected, rel=1e-12)


def test_communication_of_a_step_is_exact() -> None:
    """48 all-reduces of 2·7/8·T·h·e/B each."""
    found = times(12, 4096, 8, 25e9)
    each = 2 * 7 / 8 * 2 * SEQUENCE * 4096 * 2 / 25e9
    assert found["gpt"] - found["no_sync"] == pytest.approx(48 * each, rel=1e-12)
    assert found["gpt"] - found["parallel"] == pytest.approx(24 * each, rel=1e-12)


def test_without_overlap_fal_pays_every_one_of_its_reductions() -> None:
    found = times(12, 4096, 8, 25e9)
    each = 2 * 7 / 8 * 2 * SEQUENCE * 4096 * 2 / 25e9
    assert found["fal"] - found["no_sync"] == pytest.approx((13 + 14) * each, rel=1e-12)


def test_overlap_takes_the_reductions_under_the_weight_gradients_off_gpt() -> None:
    """With the default overlap GPT loses less, so FAL gains less: per block GPT exposes r - w(fc1) and r - w(QKV)
    backward, FAL r - both; w(fc1) = 8·T·h²/nF, w(QKV) = 6·T·h²/nF. Here r is larger than both together."""
    bandwidth, tokens = 25e9, 2 * SEQUENCE
    r = 2 * 7 / 8 * tokens * 4096 * 2 / bandwidth
    unit = tokens * 4096**2 / 8 / FLOPS
    assert r > 14 * unit
    found, exposed = times(12, 4096, 8, bandwidth, overlap="wgrad"), times(12, 4096, 8, bandwidth)
    assert exposed["gpt"] - found["gpt"] == pytest.approx(12 * 14 * unit, rel=1e-9)
    # fal: block 1 hides as gpt, its 11 later blocks one reduction under both; 27 reductions in all
    assert found["fal"] - found["no_sync"] == pytest.approx(27 * r - 12 * 14 * unit, rel=1e-9)
