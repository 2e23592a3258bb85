"""Attention and MLP of one block at the same time on one GPU, where the dataflow lets them (FAL, parallel).

The fast engine takes the best case: both branches share the tensor cores and the memory perfectly, so together they
take as long as the busier of the two resources, but no less than the longer branch. Launches and partial waves
disappear in the other branch's work; contention does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from falsim.dataflow import Graph, Number, Stream, Work

BRANCHES = ("attention.", "mlp.")


class Demands(Protocol):
    """What the cost model says of a kernel's use of the two shared resources."""

    def demand(self, work: Work | None) -> tuple[Number, Number]:
        """Seconds of tensor cores and seconds of memory at full rate."""


def concurrent_seconds(graph: Graph, seconds: Sequence[Number], prices: Demands) -> list[Number]:
    """The ops' seconds when independent branches run at once; unchanged where one branch waits for the other."""
    first, second = (
        [i for i, op in enumerate(graph.ops) if op.name.startswith(branch) and op.stream is Stream.COMPUTE]
        for branch in BRANCHES
    )
    if not first or not second or _depends(graph, first, second) or _depends(graph, second, first):
        return list(seconds)
    alone = [sum(seconds[i] for i in branch) for branch in (first, second)]
    demands = [(graph.ops[i].share, prices.demand(graph.ops[i].work)) for i in (*first, *second)]
    busiest = np.maximum(*(sum(part * demand[resource] for part, demand in demands) for resource in (0, 1)))
    together = np.maximum(np.maximum(*alone), busiest)
    share = np.minimum(together / (alone[0] + alone[1]), 1.0)
    inside = {*first, *second}
    return [value * share if i in inside else value for i, value in enumerate(seconds)]


def _depends(graph: Graph, sources: Sequence[int], readers: Sequence[int]) -> bool:
    """Whether any of `readers` waits, directly or not, for any of `sources`."""
    reached = set(sources)
    for index, op in enumerate(graph.ops):
        if any(dep in reached for dep in op.deps):
            reached.add(index)
    return bool(reached.intersection(readers))
