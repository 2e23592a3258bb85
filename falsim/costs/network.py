"""Seconds of collectives and point-to-point messages: one function per algorithm, the fastest of which is taken.

Every algorithm is a line α + β·bytes for each NCCL protocol (src/graph/tuning.cc of NVIDIA/nccl); a group may lie
inside a node, across nodes, or both. All numbers may be arrays. `bytes` is the whole tensor: what an all-reduce
reduces, what an all-gather has gathered, what a reduce-scatter takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from falsim.catalog.calibration import Calibration, Protocol
from falsim.dataflow import Collective, CollectiveKind, Group, Number, Transfer


@dataclass(frozen=True)
class Fabric:
    """Links of one kind as one GPU uses them while all GPUs of the node do the same."""

    link: str
    """nvlink, pcie or network: which of NCCL's latencies apply."""
    bandwidth: Number
    """bytes/s each way that a ring through this GPU reaches (busbw)."""
    pair_bandwidth: Number
    """bytes/s each way between two neighbouring GPUs."""
    latency: Number | None = None
    """Seconds per step that replace NCCL's, where the scenario gives them."""
    switch_bandwidth: Number | None = None
    """busbw of in-switch all-reduce (NVLS), where the fabric has it."""
    slowness: Number = 1.0
    """Factor on NCCL's latencies."""

    def scaled(self, factors: Mapping[str, Number]) -> Fabric:
        """The fabric with its bandwidths and latencies multiplied by factors of its kind of link."""
        faster = factors.get(f"bandwidth_{self.link}", 1.0)
        return replace(
            self,
            bandwidth=self.bandwidth * faster,
            pair_bandwidth=self.pair_bandwidth * faster,
            switch_bandwidth=None if self.switch_bandwidth is None else self.switch_bandwidth * faster,
            slowness=factors.get(f"latency_{self.link}", 1.0),
        )

    def base(self, protocol: Protocol) -> Number:
        """Seconds a protocol takes once."""
        return protocol.base * self.slowness

    def step(self, protocol: Protocol) -> Number:
        """Seconds a protocol takes per step, unless the scenario gives them."""
        return protocol.step * self.slowness if self.latency is None else self.latency


@dataclass(frozen=True)
class Layout:
    """Where the ranks of a process group lie: `size` ranks, `per_node` of them in one node."""

    size: Number
    per_node: Number
    inside: bool
    """Whether some ranks of the group share a node."""
    across: bool
    """Whether the group spans nodes."""

    @property
    def nodes(self) -> Number:
        """Nodes the group spans."""
        return self.size / self.per_node


@dataclass(frozen=True)
class Network:
    """The fabrics of a cluster and the layout of every process group on it."""

    intra: dict[Group, Fabric]
    """The fabric inside a node as each group sees it: a bridged pair sees its bridge, a group of four sees PCIe too."""
    inter: Fabric | None
    layouts: dict[Group, Layout]
    constants: Calibration

    def collective_seconds(self, work: Collective) -> Number:
        """The fastest algorithm's time for one collective."""
        layout = self.layouts[work.group]
        if work.kind is CollectiveKind.ALL_TO_ALL:
            return self._all_to_all(work.bytes, work.group)
        if not layout.across:
            return self._inside(work.kind, work.bytes, work.group, layout.size)
        times = [flat_ring(self, work.kind, work.bytes, work.group)]
        if work.kind is CollectiveKind.ALL_REDUCE:
            times.append(tree(self, work.bytes, work.group))
        if layout.inside:
            times.append(hierarchical(self, work.kind, work.bytes, work.group))
        return minimum(times)

    def transfer_seconds(self, work: Transfer) -> Number:
        """`count` messages one after the other to the next rank."""
        fabric = self.inter_fabric if self.layouts[work.group].across else self.intra[work.group]
        return work.count * self._message_seconds(fabric, work.bytes, fabric.pair_bandwidth)

    @property
    def inter_fabric(self) -> Fabric:
        """The fabric between nodes; a group across nodes implies that there is one."""
        assert self.inter is not None
        return self.inter

    def _inside(self, kind: CollectiveKind, size: Number, group: Group, ranks: Number) -> Number:
        fabric = self.intra[group]
        times = [ring(self.constants, fabric, kind, size, ranks)]
        if kind is CollectiveKind.ALL_REDUCE and fabric.switch_bandwidth is not None:
            switched = nvls(self.constants, fabric, size, ranks)
            times.append(np.where(ranks > self.constants.nvls_above, switched, np.inf))
        return minimum(times)

    def _all_to_all(self, size: Number, group: Group) -> Number:
        """Every rank sends 1/n of its tensor to each other at once; remote and local parts move side by side."""
        layout = self.layouts[group]
        slowest: Number = 0.0
        if layout.inside or not layout.across:
            local = size * (layout.per_node - 1) / layout.size
            slowest = self._message_seconds(self.intra[group], local, self.intra[group].bandwidth)
        if layout.across:
            remote = size * (layout.size - layout.per_node) / layout.size
            there = self._message_seconds(self.inter_fabric, remote, self.inter_fabric.bandwidth)
            slowest = np.maximum(slowest, there)
        return slowest

    def _message_seconds(self, fabric: Fabric, size: Number, bandwidth: Number) -> Number:
        """NCCL send and receive: the Simple protocol's base latency, one step, and the bytes."""
        simple = self.constants.protocols["ring", fabric.link][-1]
        return fabric.base(simple) + fabric.step(simple) + size / bandwidth


def minimum(times: list[Number]) -> Number:
    """The element-wise smallest of several times."""
    best = times[0]
    for time in times[1:]:
        best = np.minimum(best, time)
    return best


def passes(kind: CollectiveKind) -> float:
    """How often a ring passes the tensor round: an all-reduce is a reduce-scatter and an all-gather."""
    return 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0


def ring(constants: Calibration, fabric: Fabric, kind: CollectiveKind, size: Number, ranks: Number) -> Number:
    """Ring over `ranks` GPUs: (n - 1) steps a pass, (n - 1)/n of the bytes a pass; the best protocol."""
    rounds = passes(kind)
    return minimum(
        [
            fabric.base(protocol)
            + rounds * (ranks - 1) * fabric.step(protocol)
            + rounds * (ranks - 1) / ranks * size / (fabric.bandwidth * protocol.bandwidth)
            for protocol in constants.protocols["ring", fabric.link]
        ]
    )


def nvls(constants: Calibration, fabric: Fabric, size: Number, ranks: Number) -> Number:
    """In-switch all-reduce (NVLink SHARP): one step, at the bus bandwidth measured for it."""
    assert fabric.switch_bandwidth is not None
    protocol = constants.protocols["nvls", fabric.link][0]
    latency = (protocol.base + protocol.step) * fabric.slowness
    return latency + 2.0 * (ranks - 1) / ranks * size / fabric.switch_bandwidth


def flat_ring(network: Network, kind: CollectiveKind, size: Number, group: Group) -> Number:
    """One ring through all ranks of all nodes; NCCL opens one channel per network card of the group's ranks.

    Steps between nodes are `nodes` a pass (NVIDIA/nccl src/graph/tuning.cc), the others stay inside.
    """
    layout, inter = network.layouts[group], network.inter_fabric
    rounds = passes(kind)
    bandwidth = layout.per_node * inter.bandwidth
    if layout.inside:
        bandwidth = np.minimum(bandwidth, network.intra[group].bandwidth)
    between = rounds * layout.nodes
    times = []
    for outer in network.constants.protocols["ring", inter.link]:
        latency = between * inter.step(outer)
        if layout.inside:
            fabric = network.intra[group]
            inner = {p.name: p for p in network.constants.protocols["ring", fabric.link]}[outer.name]
            latency = latency + (rounds * (layout.size - 1) - between) * fabric.step(inner)
        moved = rounds * (layout.size - 1) / layout.size * size / (bandwidth * outer.bandwidth)
        times.append(inter.base(outer) + np.maximum(latency, 0.0) + moved)
    return minimum(times)


def tree(network: Network, size: Number, group: Group) -> Number:
    """Double binary tree across nodes, a chain inside: 2·log2(nodes) steps between nodes, 2·(per_node - 1) inside."""
    layout, inter = network.layouts[group], network.inter_fabric
    bandwidth = layout.per_node * inter.bandwidth
    if layout.inside:
        bandwidth = np.minimum(bandwidth, network.intra[group].bandwidth)
    times = []
    for outer in network.constants.protocols["tree", inter.link]:
        latency = 2.0 * np.ceil(np.log2(layout.nodes)) * inter.step(outer)
        if layout.inside:
            fabric = network.intra[group]
            inner = {p.name: p for p in network.constants.protocols["tree", fabric.link]}[outer.name]
            latency = latency + 2.0 * (layout.per_node - 1) * fabric.step(inner)
        share = network.constants.tree_bandwidth * outer.bandwidth
        times.append(inter.base(outer) + latency + 2.0 * size / (bandwidth * share))
    return minimum(times)


def hierarchical(network: Network, kind: CollectiveKind, size: Number, group: Group) -> Number:
    """Reduce-scatter inside the nodes, the collective on 1/per_node of the bytes across them, all-gather inside."""
    layout, constants = network.layouts[group], network.constants
    fabric, inner = network.intra[group], layout.per_node
    inside = 0.0
    if kind is not CollectiveKind.ALL_GATHER:
        inside = inside + ring(constants, fabric, CollectiveKind.REDUCE_SCATTER, size, inner)
    if kind is not CollectiveKind.REDUCE_SCATTER:
        inside = inside + ring(constants, fabric, CollectiveKind.ALL_GATHER, size, inner)
    return inside + ring(constants, network.inter_fabric, kind, size / inner, layout.nodes)
