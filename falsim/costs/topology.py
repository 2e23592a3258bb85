"""From a scenario's cluster to the fabrics its process groups see: who shares which root, bridge or network card."""

from __future__ import annotations

import numpy as np

from falsim.catalog.calibration import Calibration
from falsim.costs.network import Fabric, Layout, Network
from falsim.dataflow import Group, Number
from falsim.scenario import Scenario
from falsim.scenario.schema import InterNode, IntraNode

NCCL_LINK = {"nvlink": "nvlink", "infinity_fabric": "nvlink", "memory": "nvlink", "pcie": "pcie", "network": "network"}
"""Which of NCCL's latency tables a kind of link uses; RCCL inherits NCCL's."""


def network_of(scenario: Scenario, constants: Calibration) -> Network:
    """The network of a scenario, with ranks dealt in Megatron-LM's order: tensor, context, data, pipeline."""
    cluster, parallel = scenario.cluster, scenario.parallelism
    stage = parallel.tensor * parallel.context * parallel.data
    strides = {
        Group.TENSOR: (parallel.tensor, 1),
        Group.CONTEXT: (parallel.context, parallel.tensor),
        Group.DATA: (parallel.context * parallel.data, parallel.tensor),
        Group.EXPERT: (parallel.expert, parallel.tensor * parallel.context),
        Group.PIPELINE: (parallel.pipeline, stage),
        Group.EMBEDDING: (min(parallel.pipeline, 2), stage * max(parallel.pipeline - 1, 1)),
    }
    layouts = {group: layout(size, stride, cluster.gpus_per_node) for group, (size, stride) in strides.items()}
    intra = {
        group: intra_fabric(
            cluster.intra_node, layouts[group].per_node, cluster.gpus_per_node, cluster.gpu.pcie_peer_to_peer
        )
        for group in strides
    }
    inter = inter_fabric(cluster.inter_node, cluster.gpus_per_node) if cluster.inter_node is not None else None
    return Network(intra, inter, layouts, constants)


def layout(size: int, stride: int, gpus_per_node: int) -> Layout:
    """Ranks `stride` apart: gpus_per_node / stride of them share a node, at least one."""
    per_node = max(1, min(size, gpus_per_node // stride))
    while size % per_node:
        per_node -= 1
    return Layout(float(size), float(per_node), inside=per_node > 1, across=size > per_node)


def intra_fabric(node: IntraNode, ranks: Number, active: int, peer_to_peer: bool) -> Fabric:
    """The fabric inside a node for groups of `ranks` GPUs while all `active` GPUs of the node communicate.

    * nvswitch: every GPU has its full bandwidth to any other.
    * mesh: each pair has 1/(active - 1) of a GPU's links, so a ring of n uses (n - 1)/(active - 1) of them.
    * shared_root, shared_memory: the root carries `concurrent_flows` full-rate flows, whoever sends them.
    * two_sockets: each root has half of the GPUs; a ring over both crosses the socket link once each way.
    * pairs: two bridged GPUs see their bridge; more see the links between pairs, one flow per pair each way.
    """
    bandwidth = node.bandwidth * node.efficiency
    pair: Number = bandwidth
    link, latency = node.kind, node.latency
    flows = node.concurrent_flows if peer_to_peer or node.kind != "pcie" else node.concurrent_flows_host
    share = 1.0 if flows is None else min(1.0, flows / active)
    match node.topology:
        case "mesh":
            peers = max(active - 1, 1)
            pair = bandwidth / peers
            bandwidth = bandwidth * np.minimum(1.0, (ranks - 1) / peers)
            bandwidth = np.maximum(bandwidth, pair)
        case "shared_root" | "shared_memory":
            bandwidth = pair = bandwidth * share
        case "two_sockets":
            per_socket = max(active / 2, 1.0)
            inside = 1.0 if flows is None else min(1.0, flows / per_socket)
            crossing = 1.0 if node.cross_socket_flows is None else min(1.0, node.cross_socket_flows)
            bandwidth = bandwidth * np.where(ranks > per_socket, min(inside, crossing), inside)
            pair = bandwidth
        case "pairs" if node.between_pairs is not None:
            between = node.between_pairs
            pairs = max(active / 2, 1.0)
            crossing = 1.0 if flows is None else min(1.0, flows / pairs)
            outside = between.bandwidth * between.efficiency * crossing
            if np.all(np.asarray(ranks) > 2):
                link, latency = between.kind, between.latency
            bandwidth = np.where(np.asarray(ranks) > 2, outside, bandwidth)
            pair = bandwidth
        case _:
            pass
    switched = None if node.in_network_reduction is None else node.bandwidth * node.in_network_reduction
    return Fabric(NCCL_LINK[link], bandwidth, pair, latency, switched)


def inter_fabric(node: InterNode, gpus_per_node: int) -> Fabric:
    """The network as one GPU sees it: its share of the node's cards, since all GPUs of a node send at once."""
    bandwidth = node.bandwidth * node.efficiency * node.nics_per_node / gpus_per_node
    return Fabric("network", bandwidth, bandwidth, node.latency)
