"""Collectives by hand: rings, trees, hierarchies, and what each topology gives a ring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import ideal_calibration, make_scenario
from hypothesis import given
from hypothesis import strategies as st

from falsim.catalog.calibration import Protocol, calibration
from falsim.costs.network import Fabric, Layout, Network, passes, ring
from falsim.costs.prices import prices_of
from falsim.costs.topology import layout
from falsim.dataflow import Collective, CollectiveKind, Group, Transfer

AR, AG, RS, A2A = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)


def network(
    per_node: int,
    nodes: int = 1,
    *,
    inside: Fabric | None = None,
    inter: Fabric | None = None,
    constants: Any = None,
) -> Network:
    spread = Layout(float(per_node * nodes), float(per_node), inside=per_node > 1, across=nodes > 1)
    fabric = inside or Fabric("nvlink", 50e9, 50e9)
    return Network(dict.fromkeys(Group, fabric), inter, dict.fromkeys(Group, spread), constants or ideal_calibration())


def seconds(net: Network, size: float, kind: CollectiveKind = AR) -> float:
    return float(net.collective_seconds(Collective(kind, size, Group.TENSOR)))


def busbw(net: Network, size: float, ranks: int) -> float:
    return 2 * (ranks - 1) / ranks * size / seconds(net, size)


def test_a_ring_all_reduce_by_hand() -> None:
    """8 GPUs, 100 MB, 50 GB/s, 10 ns a step: 2·7/8·100 MB / 50 GB/s = 3.5 ms and 14 steps."""
    fabric = Fabric("nvlink", 50e9, 50e9, latency=10e-9)
    assert seconds(network(8, inside=fabric), 100e6) == pytest.approx(3.5e-3 + 14 * 10e-9, rel=1e-12)
    real = seconds(network(8, inside=fabric, constants=calibration()), 100e6)
    assert 3.5e-3 <= real <= 3.5e-3 + 14 * 10e-9 + 15e-6  # NCCL's base latency is 6.6 to 14 µs


def test_a_gather_or_scatter_is_half_an_all_reduce() -> None:
    net = network(8)
    assert seconds(net, 1e8, AG) == seconds(net, 1e8, RS) == pytest.approx(seconds(net, 1e8) / 2)


def test_an_all_to_all_keeps_a_share_at_home() -> None:
    """Each of 8 ranks sends 7/8 of its 80 MB at 50 GB/s: 1.4 ms."""
    assert seconds(network(8), 80e6, A2A) == pytest.approx(1.4e-3)


def test_nccl_latencies_decide_small_messages() -> None:
    """1 KB over 8 NVLink GPUs: ring LL, 6.6 + 14·0.6 = 15.0 µs (NVIDIA/nccl tuning constants)."""
    net = network(8, inside=Fabric("nvlink", 300e9, 300e9), constants=calibration())
    assert seconds(net, 1e3) == pytest.approx(15.0e-6, rel=1e-2)
    net = network(8, inside=Fabric("pcie", 20e9, 20e9), constants=calibration())
    assert seconds(net, 1e3) == pytest.approx(6.6e-6 + 14e-6, rel=1e-2)


def test_across_nodes_with_one_gpu_each() -> None:
    """4 nodes: the flat ring moves 2·3/4·S at the card's rate; a tree of the ideal link 2·S / 0.92."""
    slow = Fabric("network", 10e9, 10e9)
    assert seconds(network(1, 4, inter=slow), 1e8) == pytest.approx(1.5 * 1e8 / 10e9)


def test_two_nodes_of_eight_by_hand() -> None:
    """Inside 100 GB/s, 10 GB/s of network a GPU, S = 160 MB. Flat: 8 channels, min(8·10, 100) = 80 GB/s:
    2·15/16·S/80 = 3.75 ms. Hierarchical: 2·7/8·S/100 + 2·1/2·(S/8)/10 = 2.8 + 2 = 4.8 ms. The flat ring wins."""
    net = network(8, 2, inside=Fabric("nvlink", 100e9, 100e9), inter=Fabric("network", 10e9, 10e9))
    assert seconds(net, 160e6) == pytest.approx(3.75e-3)
    slower = network(8, 2, inside=Fabric("nvlink", 800e9, 800e9), inter=Fabric("network", 10e9, 10e9))
    # hierarchical at 800 GB/s: 0.35 + 2.0 = 2.35 ms beats the flat ring's 3.75
    assert seconds(slower, 160e6) == pytest.approx(2.35e-3)


def test_nothing_beats_the_lower_bound() -> None:
    """Each node must send and receive 2(N - 1)/N of S over its cards, each GPU 2(n - 1)/n over its links."""
    for per_node, nodes in ((2, 8), (8, 2), (4, 4)):
        net = network(per_node, nodes, inside=Fabric("nvlink", 100e9, 100e9), inter=Fabric("network", 10e9, 10e9))
        cards = 2 * (nodes - 1) / nodes * 1e8 / (per_node * 10e9)
        assert seconds(net, 1e8) >= cards * (1 - 1e-12)


def test_a_grid_of_equal_links_costs_the_same_either_way() -> None:
    """2 × 8 and 8 × 2: 16 GPUs whose links all carry 50 GB/s a GPU, as a ring counts them: at most 2·15/16·S/50."""
    for per_node, nodes in ((2, 8), (8, 2)):
        net = network(
            per_node, nodes, inside=Fabric("nvlink", 50e9, 50e9), inter=Fabric("network", 50e9 / per_node, 1.0)
        )
        assert seconds(net, 1e8) <= 2 * 15 / 16 * 1e8 / 50e9 * (1 + 1e-12)
        assert seconds(net, 1e8) >= 2 * (nodes - 1) / nodes * 1e8 / 50e9


def test_sharp_inside_a_switch_is_used_above_four_gpus() -> None:
    """H200 (stas00/ml-engineering): ring at four GPUs, NVLS at eight, for all-reduce only."""
    scenario = [make_scenario(parallelism={"tensor": n}) for n in (4, 8)]
    four, eight = (prices_of(s).network for s in scenario)
    for net, ranks, rate in ((four, 4, 450e9 * 0.812), (eight, 8, 450e9 * 1.051)):
        assert busbw(net, 1e10, ranks) == pytest.approx(rate, rel=2e-3)
    gather = seconds(eight, 1e10, AG)
    assert gather == pytest.approx(7 / 8 * 1e10 / (450e9 * 0.812), rel=2e-3)


def rate(node: str, gpu: str, tensor: int, active: int) -> float:
    """Bus bandwidth in GB/s of a large all-reduce over `tensor` of `active` GPUs that all communicate."""
    scenario = make_scenario(
        parallelism={"tensor": tensor, "data": active // tensor},
        cluster={"gpu": gpu, "intra_node": node},
        training={"global_batch_size": 16},
    )
    return busbw(prices_of(scenario).network, 1e11, tensor) / 1e9


@pytest.mark.parametrize(
    ("node", "gpu", "tensor", "active", "expected"),
    [
        ("nvlink3-nvswitch", "a100-sxm-80gb", 2, 8, 300 * 0.783),  # a switch gives every GPU its links
        ("nvlink3-nvswitch", "a100-sxm-80gb", 8, 8, 300 * 0.783),
        ("pcie4-shared-root", "a100-pcie-80gb", 2, 2, 31.5 * 0.667),
        ("pcie4-shared-root", "a100-pcie-80gb", 4, 4, 31.5 * 0.667),  # 4.8 flows fit four
        ("pcie4-shared-root", "a100-pcie-80gb", 8, 8, 31.5 * 0.667 * 4.8 / 8),
        ("pcie4-shared-root", "a100-pcie-80gb", 2, 8, 31.5 * 0.667 * 4.8 / 8),  # the other six send as well
        ("pcie4-shared-root", "rtx-4090", 4, 4, 31.5 * 0.667 * 0.93 / 4),  # staged through the host
        ("pcie4-two-sockets", "a100-pcie-80gb", 4, 8, 31.5 * 0.667),  # inside one socket
        ("pcie4-two-sockets", "a100-pcie-80gb", 8, 8, 31.5 * 0.667 * 0.6),  # across
        ("a100-bridge-pairs-pcie4", "a100-pcie-80gb", 2, 4, 300 * 0.651),  # a pair has its bridge
        ("a100-bridge-pairs-pcie4", "a100-pcie-80gb", 4, 4, 31.5 * 0.667),  # PCIe between pairs
        ("infinity-fabric-mesh-mi300x", "mi300x", 8, 8, 448 * 0.7),
        ("infinity-fabric-mesh-mi300x", "mi300x", 2, 8, 448 * 0.7 / 7),  # one of seven links
        ("infinity-fabric-mesh-mi300x", "mi300x", 4, 8, 448 * 0.7 * 3 / 7),
    ],
)
def test_what_each_topology_gives_a_ring(node: str, gpu: str, tensor: int, active: int, expected: float) -> None:
    assert rate(node, gpu, tensor, active) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "stride", "gpus", "per_node"),
    [
        (8, 1, 8, 8),
        (16, 1, 8, 8),
        (4, 1, 8, 4),
        (4, 2, 8, 4),
        (8, 2, 8, 4),
        (4, 8, 8, 1),
        (2, 4, 8, 2),
    ],
)
def test_where_the_ranks_of_a_group_lie(size: int, stride: int, gpus: int, per_node: int) -> None:
    """Ranks `stride` apart on nodes of `gpus`, groups that fit or fill nodes."""
    spread = layout(size, stride, gpus)
    assert spread.per_node == per_node
    assert spread.nodes == size / per_node
    assert spread.across == (size > per_node)


def test_a_group_that_starts_in_the_middle_of_a_node_spans_nodes() -> None:
    """TP 4 on nodes of 6: ranks 4–7 lie on two nodes, so the slowest group crosses the network."""
    assert layout(4, 1, 6).across


@pytest.mark.parametrize(
    ("size", "stride", "gpus", "nodes"),
    [
        (4, 1, 6, 2),  # 4–7 on nodes 0 and 1
        (8, 1, 6, 2),  # 0–5 | 6, 7; 8–11 | 12–15; 16, 17 | 18–23
        (8, 1, 5, 3),  # 8, 9 | 10–14 | 15
        (2, 1, 3, 2),  # 2, 3
        (3, 1, 8, 2),  # 6–8
        (2, 4, 6, 2),  # 2, 6
        (4, 2, 6, 2),  # 0, 2, 4 | 6
        (3, 2, 8, 2),  # 6, 8, 10
        (2, 3, 6, 1),  # 0, 3; 1, 4; 2, 5
        (6, 1, 4, 2),  # 0–3 | 4, 5; 6, 7 | 8–11
        (5, 1, 2, 3),  # 0–4 on nodes 0, 1, 2
        (4, 3, 4, 3),  # 1 | 4, 7 | 10
        (16, 1, 8, 2),
        (3, 8, 8, 3),
        (3, 16, 8, 3),
    ],
)
def test_the_group_that_spans_most_nodes_sets_the_layout(size: int, stride: int, gpus: int, nodes: int) -> None:
    """Groups fill the machine one after the other; the ranks of the worst are shared out equally over its nodes."""
    spread = layout(size, stride, gpus)
    assert spread.nodes == pytest.approx(nodes)
    assert spread.per_node == pytest.approx(size / nodes)
    assert (spread.inside, spread.across) == (size > nodes, nodes > 1)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_no_group_spans_more_nodes_than_the_layout_says(size: int, stride: int, gpus: int) -> None:
    """Every group of a machine large enough for all alignments, one by one."""
    block = size * stride
    groups = [
        {(start + offset + rank * stride) // gpus for rank in range(size)}
        for start in range(0, block * gpus, block)
        for offset in range(stride)
    ]
    assert layout(size, stride, gpus).nodes == pytest.approx(max(len(group) for group in groups))


FABRICS = st.builds(
    Fabric,
    st.sampled_from(["nvlink", "pcie"]),
    st.sampled_from([5e9, 20e9, 300e9]),
    st.just(20e9),
    st.sampled_from([None, 0.0, 1e-6, 1e-4]),
)
GRIDS = st.sampled_from([(2, 1), (8, 1), (1, 4), (4, 2), (8, 2), (8, 16), (3, 5)])


@given(FABRICS, GRIDS, st.sampled_from([AR, AG, RS, A2A]), st.floats(1.0, 1e9), st.sampled_from([1e9, 50e9]))
def test_never_faster_with_more_bytes_less_bandwidth_or_more_latency(
    fabric: Fabric, grid: tuple[int, int], kind: CollectiveKind, size: float, wire: float
) -> None:
    outer = Fabric("network", wire, wire)

    def cost(inside: Fabric, outside: Fabric, moved: float) -> float:
        return seconds(network(*grid, inside=inside, inter=outside, constants=calibration()), moved, kind)

    base = cost(fabric, outer, size)
    assert 0 < base < float("inf")
    assert cost(fabric, outer, size * 1.5) >= base
    assert cost(replace(fabric, bandwidth=fabric.bandwidth / 2), outer, size) >= base
    assert cost(fabric, replace(outer, bandwidth=wire / 2, latency=outer.latency), size) >= base
    low, high = (cost(replace(fabric, latency=a), replace(outer, latency=a), size) for a in (1e-6, 1e-4))
    assert high >= low


@given(FABRICS, st.sampled_from([2, 4, 8, 16]), st.floats(1.0, 1e12))
def test_reported_bus_bandwidth_never_exceeds_the_link(fabric: Fabric, ranks: int, size: float) -> None:
    assert busbw(network(ranks, inside=fabric, constants=calibration()), size, ranks) <= fabric.bandwidth * (1 + 1e-9)


def test_an_all_to_all_pays_the_latency_a_scenario_gives() -> None:
    """latency replaces NCCL's step in every algorithm, so an all-to-all is slower on a slow-starting link too."""
    low, high = (
        seconds(network(8, inside=Fabric("nvlink", 50e9, 50e9, latency=a), constants=calibration()), 1e6, A2A)
        for a in (0.0, 1e-2)
    )
    assert high > low


def test_messages_of_a_ring_follow_each_other() -> None:
    """3 messages of 50 MB at 50 GB/s, 1 µs each to start: 3·(1 ms + 1 µs) beyond the ideal base of 0."""
    net = network(8, inside=Fabric("nvlink", 1e12, 50e9, latency=1e-6))
    assert net.transfer_seconds(Transfer(50e6, Group.CONTEXT, 3.0)) == pytest.approx(3 * (1e-3 + 1e-6))


def test_the_best_protocol_wins() -> None:
    """LL is quick and half as fast, Simple slow to start: 4 ranks, 6 steps; the lines cross where both cost the
    same."""
    constants = replace(
        ideal_calibration(),
        protocols={("ring", "nvlink"): (Protocol("LL", 0.0, 1e-6, 0.5), Protocol("Simple", 0.0, 10e-6, 1.0))},
    )
    fabric = Fabric("nvlink", 10e9, 10e9)
    # 6e-6 + 1.5 S/5e9 = 60e-6 + 1.5 S/10e9  →  S = 54e-6 · 10e9 / 1.5 = 360 kB
    for size, expected in ((360e3, 60e-6 + 54e-6), (36e3, 6e-6 + 10.8e-6), (3.6e6, 60e-6 + 540e-6)):
        assert float(ring(constants, fabric, AR, size, 4.0)) == pytest.approx(expected)
    assert passes(AR) == 2.0
