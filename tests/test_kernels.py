"""Seconds of kernels by hand: roofline, tiles and waves, attention, element-wise, launches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import make_scenario
from hypothesis import given
from hypothesis import strategies as st

from falsim.catalog.calibration import calibration
from falsim.costs.device import Device, attention_seconds, elementwise_seconds, gemm_seconds, kernels, wave_efficiency
from falsim.costs.prices import prices_of
from falsim.dataflow import Attention, Elementwise, Gemm

CONSTANTS = replace(calibration(), gemm_tiles=((128, 128),), gemm_depth=0.0)
DEVICE = Device(
    peak=1e15,
    attention_peak=1e15,
    matmul_efficiency=0.8,
    memory_bandwidth=3e12,
    sm_count=132.0,
    kernel_launch=2e-6,
    host_launch=5e-6,
    flash_efficiency=0.5,
    element_bytes=2.0,
)


def test_a_product_that_fills_its_waves_runs_at_the_best_measured_rate() -> None:
    """m·n = 132 tiles of 128², k = 8192: 2·m·n·k / (1e15 · 0.8) + launch; memory would take less."""
    work = Gemm(128.0 * 12, 128.0 * 11, 8192.0)
    assert wave_efficiency(work, 132.0, CONSTANTS.gemm_tiles) == pytest.approx(1.0)
    assert gemm_seconds(work, DEVICE, CONSTANTS) == pytest.approx(work.flops / 8e14 + 2e-6)


def test_one_tile_too_many_costs_a_whole_wave() -> None:
    full, over = Gemm(128.0 * 12, 128.0 * 11, 8192.0), Gemm(128.0 * 19, 128.0 * 7, 8192.0)
    assert wave_efficiency(over, 132.0, CONSTANTS.gemm_tiles) == pytest.approx(133 / 264)
    launch = DEVICE.kernel_launch
    assert over.flops / full.flops == pytest.approx(133 / 132)
    ratio = (gemm_seconds(over, DEVICE, CONSTANTS) - launch) / (gemm_seconds(full, DEVICE, CONSTANTS) - launch)
    assert ratio == pytest.approx(2.0)


def test_a_partial_tile_costs_a_whole_one() -> None:
    assert wave_efficiency(Gemm(100.0, 64.0, 512.0), 1.0, ((128, 128),)) == pytest.approx(100 * 64 / 128**2)


def test_the_library_takes_the_tile_that_wastes_least() -> None:
    """256 × 64 on one SM: one 256×64 tile is perfect, 128×128 wastes half."""
    assert wave_efficiency(Gemm(256.0, 64.0, 512.0), 1.0, ((128, 128), (256, 64))) == pytest.approx(1.0)


def test_a_shallow_product_pays_for_its_prologue() -> None:
    """Depth 128: k = 128 runs at half the rate, k = 1152 at 0.9."""
    deep, fast = replace(CONSTANTS, gemm_depth=128.0), replace(DEVICE, memory_bandwidth=1e15)
    for k, share in ((128.0, 0.5), (1152.0, 0.9)):
        work = Gemm(128.0 * 132, 1280.0, k)
        assert gemm_seconds(work, fast, deep) == pytest.approx(work.flops / 8e14 / share + 2e-6)


def test_a_thin_product_is_bound_by_memory() -> None:
    """m = 1: (k·n + k + n)·2 bytes at 3 TB/s."""
    work = Gemm(1.0, 8192.0, 8192.0)
    fast = replace(DEVICE, peak=1e18)
    assert gemm_seconds(work, fast, CONSTANTS) == pytest.approx((8192**2 + 2 * 8192) * 2 / 3e12 + 2e-6)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_parallelism_never_speeds_a_product_up_more_than_n_times(tensor: int) -> None:
    whole = Gemm(4096.0, 16384.0, 4096.0)
    for part in (Gemm(4096.0, 16384.0 / tensor, 4096.0), Gemm(4096.0, 16384.0, 4096.0 / tensor)):
        for constants in (calibration(), CONSTANTS):
            assert gemm_seconds(part, DEVICE, constants) * tensor >= gemm_seconds(whole, DEVICE, constants)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 2))
def test_a_larger_product_is_never_faster(m: int, n: int, k: int, grown: int) -> None:
    sizes = [float(m), float(n), float(k)]
    small = gemm_seconds(Gemm(*sizes), DEVICE, calibration())
    sizes[grown] += 64.0
    assert gemm_seconds(Gemm(*sizes), DEVICE, calibration()) >= small * (1 - 1e-12)


def test_no_product_beats_the_peak() -> None:
    for sizes in ((8192.0, 8192.0, 8192.0), (128.0, 128.0, 128.0), (4000.0, 3000.0, 1000.0)):
        work = Gemm(*sizes)
        assert work.flops / gemm_seconds(work, DEVICE, calibration()) <= 8e14


def test_flash_attention_by_hand() -> None:
    """b = 2, s = 2048, 16 heads of 128: 4·b·s²·16·128 = 68.7 GFLOP, half of it causal, at 1e15·0.5·2048/(2048 +
    450)."""
    work = Attention(2.0, 2048.0, 2048.0, 16.0, 16.0, 128.0, flash=True)
    assert work.flops == pytest.approx(4 * 2 * 2048**2 * 16 * 128)
    expected = work.flops / 2 / (1e15 * 0.5 * 2048 / (2048 + 450)) + 2e-6
    assert attention_seconds(work, DEVICE, calibration()) == pytest.approx(expected)
    backward = replace(work, backward=True)
    assert attention_seconds(backward, DEVICE, calibration()) - 2e-6 == pytest.approx(2.5 * (expected - 2e-6))


def test_unfused_attention_moves_its_scores_through_memory() -> None:
    """b·heads·s² = 2·16·1024² scores of 2 bytes, four passes at 3 TB/s: 89 µs; two products and a softmax kernel."""
    work = Attention(2.0, 1024.0, 1024.0, 16.0, 16.0, 128.0, flash=False)
    scores = 2 * 16 * 1024**2
    infinite = replace(DEVICE, peak=1e30)
    traffic = 4 * scores * 2 / 3e12
    products = 2 * (scores + 2 * 32 * 1024 * 128) * 2 / 3e12  # both bound by memory here: a score and two thin matrices
    assert attention_seconds(work, infinite, calibration()) == pytest.approx(traffic + products + 3 * 2e-6)


def test_grouped_queries_do_not_change_the_flops_of_attention() -> None:
    one = Attention(2.0, 1024.0, 1024.0, 16.0, 1.0, 128.0, flash=True)
    assert one.flops == replace(one, kv_heads=16.0).flops


def test_element_wise_is_bytes_over_bandwidth_and_a_launch_per_kernel() -> None:
    assert elementwise_seconds(Elementwise(3e9), DEVICE) == pytest.approx(1e-3 + 2e-6)
    assert elementwise_seconds(Elementwise(3e9, kernels=4), DEVICE) == pytest.approx(1e-3 + 8e-6)


def test_what_the_host_issues() -> None:
    flash = Attention(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, flash=True)
    assert [kernels(flash), kernels(replace(flash, backward=True))] == [1, 2]
    unfused = replace(flash, flash=False)
    assert [kernels(unfused), kernels(replace(unfused, backward=True))] == [3, 5]
    assert kernels(Gemm(1.0, 1.0, 1.0)) == 1
    assert kernels(Elementwise(1.0, kernels=3)) == 3


def test_fp8_training_keeps_attention_in_bf16() -> None:
    """H100: products at 1979 TFLOP/s, attention at 989."""
    fp8, bf16 = (prices_of(make_scenario(training={"precision": precision})) for precision in ("fp8", "bf16"))
    attention = Attention(2.0, 4096.0, 4096.0, 16.0, 16.0, 128.0, flash=True)
    assert fp8.seconds(attention) == bf16.seconds(attention)
    assert fp8.seconds(Gemm(8192.0, 8192.0, 8192.0)) < 0.6 * bf16.seconds(Gemm(8192.0, 8192.0, 8192.0))


def test_one_query_on_many_keys_waits_for_the_keys() -> None:
    """Decoding: 64 sequences, 8 key-value heads of 128, 4096 keys: 2·64·4096·8·128·2 bytes of keys and values."""
    prices = prices_of(make_scenario())
    attention = Attention(64.0, 1.0, 4096.0, 64.0, 8.0, 128.0, flash=True)
    read = 2 * 64 * 4096 * 8 * 128 * 2 + 2 * 64 * 1 * 64 * 128 * 2
    assert prices.seconds(attention) == pytest.approx(
        read / prices.device.memory_bandwidth + prices.device.kernel_launch, rel=1e-12
    )
