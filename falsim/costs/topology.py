"""From a scenario's cluster to the fabrics its process groups see: who shares which root, bridge or network card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from falsim.catalog.calibration import Calibration
from falsim.costs.network import Fabric, Layout, Network
from falsim.dataflow import Group, Number, more_than_one
from falsim.scenario import Scenario
from falsim.scenario.schema import InterNode, IntraNode

NCCL_LINK = {"nvlink": "nvlink", "infinity_fabric": "nvlink", "memory": "nvlink", "pcie": "pcie", "network": "network"}
"""Which of NCCL's latency tables a kind of link uses; RCCL inherits NCCL's."""


def network_of(scenario: Scenario, constants: Calibration, factors: Mapping[str, Number]) -> Network:
    """The network of a scenario, with ranks dealt in Megatron-LM's order: tensor, context, data, pipeline.

    Experts are spread over neighbouring replicas of the other weights. `factors` multiply bandwidths and latencies by
    kind of link.
    """
    cluster, parallel = scenario.cluster, scenario.parallelism
    stage = parallel.tensor * parallel.context * parallel.data
    strides = {
        Group.TENSOR: (parallel.tensor, 1),
        Group.CONTEXT: (parallel.context, parallel.tensor),
        Group.DATA: (parallel.context * parallel.data, parallel.tensor),
        Group.EXPERT_DATA: (
            parallel.context * parallel.data // parallel.expert,
            parallel.tensor * parallel.expert,
        ),
        Group.EXPERT: (parallel.expert, parallel.tensor),
        Group.PIPELINE: (parallel.pipeline, stage),
        Group.EMBEDDING: (np.minimum(parallel.pipeline, 2), stage * np.maximum(parallel.pipeline - 1, 1)),
    }
    layouts = {group: layout(size, stride, cluster.gpus_per_node) for group, (size, stride) in strides.items()}
    intra = {
        group: intra_fabric(
            cluster.intra_node,
            Span(layouts[group].per_node, stride, cluster.gpus_per_node),
            peer_to_peer=cluster.gpu.pcie_peer_to_peer,
        ).scaled(factors)
        for group, (_, stride) in strides.items()
    }
    inter = None
    if cluster.inter_node is not None:
        inter = inter_fabric(cluster.inter_node, cluster.gpus_per_node).scaled(factors)
    return Network(intra, inter, layouts, constants)


@dataclass(frozen=True)
class Span:
    """A process group inside a node: `ranks` GPUs, `stride` apart, while all `active` GPUs communicate."""

    ranks: Number
    stride: Number
    active: Number

    @property
    def groups(self) -> Number:
        """Groups of this kind in the node, all communicating at once."""
        return self.active / self.ranks

    @property
    def is_bridged_pair(self) -> bool:
        """Whether the group is two neighbours, which a bridge joins."""
        return bool(np.all((np.asarray(self.ranks) <= 2) & (np.asarray(self.stride) == 1)))

    @property
    def crosses_sockets(self) -> bool:
        """Whether the group has GPUs on both sockets, each of which holds one half of the node."""
        return bool(np.all((self.ranks - 1) * self.stride >= np.maximum(self.active / 2, 1.0)))


def layout(size: Number, stride: Number, gpus_per_node: Number) -> Layout:
    """Ranks `stride` apart on nodes of so many GPUs: the group that spans most nodes, its ranks shared out equally."""
    nodes = np.vectorize(_nodes_spanned, otypes=[float])(size, stride, gpus_per_node)
    per_node = size / nodes
    return Layout(1.0 * size, per_node, inside=more_than_one(per_node), across=more_than_one(nodes))


@lru_cache(maxsize=4096)
def _nodes_spanned(size: int, stride: int, gpus_per_node: int) -> int:
    """Most nodes that one group touches. Groups start at every multiple of size·stride, plus 0 … stride - 1."""
    span = size * stride
    if gpus_per_node % span == 0:
        return 1
    starts = range(0, span * gpus_per_node // gcd(span, gpus_per_node), span)
    firsts = {(start + offset) % gpus_per_node for start in starts for offset in range(min(stride, gpus_per_node))}
    if gpus_per_node % stride == 0 and span % gpus_per_node == 0:
        firsts = {0}  # aligned: all groups are alike
    return max(len({(first + rank * stride) // gpus_per_node for rank in range(size)}) for first in firsts)


def intra_fabric(node: IntraNode, span: Span, *, peer_to_peer: bool) -> Fabric:
    """The fabric inside a node as one kind of group sees it.

    * nvswitch: every GPU has its full bandwidth to any other.
    * mesh: each pair has 1/(active - 1) of a GPU's links, so a ring of n uses (n - 1)/(active - 1) of them.
    * shared_root, shared_memory: the root carries so many full-rate flows, whoever sends them.
    * two_sockets: each root has half of the GPUs; rings over both share the link between the sockets.
    * pairs: two bridged neighbours see their bridge; other groups see the links between pairs.
    """
    link, latency, pair = node.kind, node.latency, None
    bandwidth: Number = node.bandwidth * node.efficiency
    match node.topology:
        case "mesh":
            peers = np.maximum(span.active - 1, 1)
            pair = bandwidth / peers
            bandwidth = bandwidth * np.maximum(span.ranks - 1, 1.0) / peers
        case "shared_root" | "shared_memory":
            bandwidth = bandwidth * _share(_flows(node, link, peer_to_peer), span.active)
        case "two_sockets":
            root = _share(_flows(node, link, peer_to_peer), np.maximum(span.active / 2, 1.0))
            crossing = _share(node.cross_socket_flows, span.groups) if span.crosses_sockets else 1.0
            bandwidth = bandwidth * np.minimum(root, crossing)
        case "pairs" if node.between_pairs is not None and not span.is_bridged_pair:
            between = node.between_pairs
            link, latency = between.kind, between.latency
            crossing = span.active / np.where(np.asarray(span.stride) == 1, 2, 1)
            bandwidth = between.bandwidth * between.efficiency * _share(_flows(node, link, peer_to_peer), crossing)
        case _:
            pass
    switched = None if node.in_network_reduction is None else node.bandwidth * node.in_network_reduction
    return Fabric(NCCL_LINK[link], bandwidth, bandwidth if pair is None else pair, latency, switched)


def _flows(node: IntraNode, link: str, peer_to_peer: bool) -> float | None:
    """Full-rate flows a PCIe root carries: fewer where every message is staged through host memory."""
    return node.concurrent_flows_host if link == "pcie" and not peer_to_peer else node.concurrent_flows


def _share(flows: float | None, wanted: Number) -> Number:
    """The share of its full rate each of `wanted` flows gets."""
    return 1.0 if flows is None else np.minimum(1.0, flows / wanted)


def inter_fabric(node: InterNode, gpus_per_node: int) -> Fabric:
    """The network as one GPU sees it: its share of the node's cards, since all GPUs of a node send at once."""
    bandwidth = node.bandwidth * node.efficiency * node.nics_per_node / gpus_per_node
    return Fabric("network", bandwidth, bandwidth, node.latency)
