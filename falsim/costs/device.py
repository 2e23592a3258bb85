"""Seconds of one rank's kernels: GEMM, attention, element-wise. Every size may be an array; everything broadcasts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from falsim.catalog.calibration import Calibration
from falsim.dataflow import Attention, Elementwise, Gemm, Number


@dataclass(frozen=True)
class Device:
    """The GPU as the kernels see it, in one precision; all numbers SI, any of them an array."""

    peak: Number
    """FLOP/s of dense matrix products in the training precision."""
    attention_peak: Number
    """FLOP/s of attention's products: fp8 training keeps them in bf16."""
    matmul_efficiency: Number
    memory_bandwidth: Number
    """bytes/s that streaming kernels reach."""
    sm_count: Number
    kernel_launch: Number
    host_launch: Number
    flash_efficiency: Number
    element_bytes: Number
    causal: bool = True
    """Whether attention kernels skip the masked half of the scores."""


def gemm_seconds(work: Gemm, device: Device, constants: Calibration) -> Number:
    """Roofline with tile and wave quantisation and a depth term, plus launch.

    NVIDIA Deep Learning Performance, Matrix Multiplication Background User's Guide, sections 3 and 4.

    A library picks the tile that wastes least: of ⌈m/tm⌉·⌈n/tn⌉·batch tiles in ⌈tiles/SMs⌉ waves, the useful share is
    m·n·batch / (waves·SMs·tm·tn). A tile of depth k spends k + depth.
    """
    useful = wave_efficiency(work, device.sm_count, constants.gemm_tiles)
    depth = work.k / (work.k + constants.gemm_depth)
    compute = work.flops / (device.peak * device.matmul_efficiency * useful * depth)
    return np.maximum(compute, gemm_traffic(work, device)) + device.kernel_launch


def gemm_traffic(work: Gemm, device: Device) -> Number:
    """Seconds to read both factors and write the product once."""
    elements = work.batch * (work.m * work.k + work.k * work.n + work.m * work.n)
    return elements * device.element_bytes / device.memory_bandwidth


def wave_efficiency(work: Gemm, sm_count: Number, tiles: tuple[tuple[int, int], ...]) -> Number:
    """Useful share of the SM-tiles a GEMM occupies, with the best of the tiles; in (0, 1]."""
    dimensions = max(np.ndim(value) for value in (work.m, work.n, work.batch, sm_count))
    rows, columns = (side.reshape(-1, *(1,) * dimensions) for side in np.array(tiles, dtype=float).T)
    blocks = np.ceil(work.m / rows) * np.ceil(work.n / columns) * work.batch
    occupied = np.ceil(blocks / sm_count) * sm_count * (rows * columns)
    return work.m * work.n * work.batch / occupied.min(axis=0)


def attention_seconds(work: Attention, device: Device, constants: Calibration) -> Number:
    """Flash: saturating in the sequence. Unfused: two products a pass, and the score matrix to memory and back."""
    if work.flash:
        flops = work.flops * (0.5 if device.causal else 1.0)
        saturation = work.sequence_kv / (work.sequence_kv + constants.flash_half_sequence)
        compute = flops / (device.attention_peak * device.flash_efficiency * saturation)
        return np.maximum(compute, attention_traffic(work, device)) + device.kernel_launch
    passes = constants.unfused_backward_passes if work.backward else constants.unfused_forward_passes
    batch = work.batch * work.heads
    device = replace(device, peak=device.attention_peak)
    scores = Gemm(work.sequence_q, work.sequence_kv, work.head_dim, batch)
    values = Gemm(work.sequence_q, work.head_dim, work.sequence_kv, batch)
    products = gemm_seconds(scores, device, constants) + gemm_seconds(values, device, constants)
    traffic = passes * batch * work.sequence_q * work.sequence_kv * device.element_bytes
    softmax = traffic / device.memory_bandwidth + device.kernel_launch
    return products * (2.0 if work.backward else 1.0) + softmax


def attention_traffic(work: Attention, device: Device) -> Number:
    """Seconds to read queries, keys and values and write the result once; backward moves their gradients as well."""
    queries = 2.0 * work.heads * work.sequence_q
    keys = 2.0 * work.kv_heads * work.sequence_kv
    moved = work.batch * work.head_dim * (queries + keys) * device.element_bytes * (2.0 if work.backward else 1.0)
    return moved / device.memory_bandwidth


def elementwise_seconds(work: Elementwise, device: Device) -> Number:
    """Bytes over the bandwidth streaming kernels reach, plus launch."""
    return work.bytes / device.memory_bandwidth + work.kernels * device.kernel_launch


def kernels(work: Gemm | Attention | Elementwise) -> int:
    """Kernels the host must issue for one op.

    Flash attention's backward is a preprocess and a main kernel; unfused attention is two products and a softmax
    forward, four products and a softmax gradient backward.
    """
    match work:
        case Gemm():
            return 1
        case Attention(flash=True):
            return 2 if work.backward else 1
        case Attention():
            return 5 if work.backward else 3
        case Elementwise():
            return work.kernels
