"""Scenarios and ideal prices for the tests of the engine: small, explicit, independent of the shipped presets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from falsim.catalog.calibration import Calibration, Protocol, calibration
from falsim.costs.device import Device
from falsim.costs.network import Fabric, Layout, Network
from falsim.costs.prices import Prices
from falsim.dataflow import Group
from falsim.scenario import Scenario, load_scenario

MODEL: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "position_embedding": "none",
    "tie_word_embeddings": False,
}


def make_scenario(
    *,
    model: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    parallelism: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    implementation: dict[str, Any] | None = None,
    architectures: tuple[str, ...] | None = None,
) -> Scenario:
    """A scenario of a small dense GPT on one NVSwitch node; every group of fields may be changed."""
    parallel = parallelism or {}
    gpus = 1
    for degree in ("tensor", "context", "pipeline", "data"):
        gpus *= parallel.get(degree, 1)
    data: dict[str, Any] = {
        "workload": "training",
        "model": MODEL | (model or {}),
        "cluster": {"gpu": "h100-sxm", "gpus_per_node": gpus, "intra_node": "nvlink4-nvswitch"} | (cluster or {}),
        "parallelism": {"data": 1} | parallel,
        "training": {"sequence_length": 1024, "micro_batch_size": 2, "global_batch_size": 2} | (training or {}),
        "implementation": implementation or {},
        "calibration": "none",
    }
    if architectures is not None:
        data["architectures"] = list(architectures)
    return load_scenario(json.dumps(data))


def ideal_calibration() -> Calibration:
    """No tile or depth loss, attention at the peak, collectives that are nothing but bytes over bandwidth."""
    line = (Protocol("Simple", 0.0, 0.0, 1.0),)
    keys = [(algorithm, link) for algorithm in ("ring", "tree") for link in ("nvlink", "pcie", "network")]
    return replace(
        calibration(),
        gemm_tiles=((1, 1),),
        gemm_depth=0.0,
        flash_half_sequence=0.0,
        protocols=dict.fromkeys(keys, line) | {("nvls", "nvlink"): line},
    )


def ideal_prices(*, flops: float, bandwidth: float, ranks: float, element_bytes: float = 2.0) -> Prices:
    """`ranks` GPUs of `flops` FLOP/s with infinite memory bandwidth, joined by `bandwidth` bytes/s without latency."""
    constants = ideal_calibration()
    device = Device(
        peak=flops,
        attention_peak=flops,
        matmul_efficiency=1.0,
        memory_bandwidth=float("inf"),
        sm_count=1.0,
        kernel_launch=0.0,
        host_launch=0.0,
        flash_efficiency=1.0,
        element_bytes=element_bytes,
        causal=False,
    )
    alone = Layout(1.0, 1.0, inside=False, across=False)
    layouts = dict.fromkeys(Group, alone) | {Group.TENSOR: Layout(ranks, ranks, inside=ranks > 1, across=False)}
    fabric = Fabric("nvlink", bandwidth, bandwidth)
    return Prices(device, Network(dict.fromkeys(Group, fabric), None, layouts, constants), constants)


@pytest.fixture
def scenario_of():
    """`make_scenario`, for tests that take fixtures."""
    return make_scenario
