"""From a scenario's cluster to the fabrics its process groups see: who shares which root, bridge or network card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    cluster = scenario.cluster
    groups = process_groups(scenario)
    layouts = {group: layout(size, stride, cluster.gpus_per_node) for group, (size, stride) in groups.items()}
    if more_than_one(cluster.nodes):  # the first and the last stage share a node only where all stages do
        layouts[Group.EMBEDDING] = replace(layouts[Group.EMBEDDING], per_node=1.0, inside=False, across=True)
    intra = {
        group: intra_fabric(
            cluster.intra_node,
            Span(layouts[group].per_node, stride, cluster.gpus_per_node),
            peer_to_peer=cluster.gpu.pcie_peer_to_peer,
        ).scaled(factors)
        for group, (_, stride) in groups.items()
    }
    inter = None
    if cluster.inter_node is not None:
        inter = inter_fabric(cluster.inter_node, cluster.gpus_per_node).scaled(factors)
    return Network(intra, inter, layouts, constants)


def process_groups(scenario: Scenario) -> dict[Group, tuple[Number, Number]]:
    """Ranks of each process group and how far apart they are; those of the embedding group are one pipeline apart."""
    parallel = scenario.parallelism
    replicas = parallel.context * parallel.data
    return {
        Group.TENSOR: (parallel.tensor, 1),
        Group.CONTEXT: (parallel.context, parallel.tensor),
        Group.EXPERT: (parallel.expert, parallel.tensor),
        Group.EXPERT_DATA: (replicas // parallel.expert, parallel.tensor * parallel.expert),
        Group.DATA: (replicas, parallel.tensor),
        Group.PIPELINE: (parallel.pipeline, parallel.tensor * replicas),
        Group.EMBEDDING: (np.minimum(parallel.pipeline, 2), 1),
    }


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
    nodes = nodes_spanned(size, stride, gpus_per_node)
    per_node = size / nodes
    return Layout(1.0 * size, per_node, inside=more_than_one(per_node), across=more_than_one(nodes))


def nodes_spanned(size: Number, stride: Number, gpus_per_node: Number) -> Number:
    """Most nodes that one group touches.

    Groups start at every multiple of size·stride, plus 0 … stride - 1; the one that starts latest in its node reaches
    furthest. Ranks less than a node apart skip no node; others have one each.
    """
    step = np.gcd(size * stride, gpus_per_node)
    latest = np.where(stride >= step, gpus_per_node - 1, gpus_per_node - step + stride - 1)
    return np.where(stride >= gpus_per_node, size, (latest + (size - 1) * stride) // gpus_per_node + 1)


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
