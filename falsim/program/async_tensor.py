"""Async tensor parallelism: a collective runs in chunks beside the matrix product that feeds it or reads it.

With c chunks a pipeline of two stages needs only two pieces each in max-plus arithmetic, whatever c is:

* product → reduce-scatter (or all-reduce): chunk j of the result leaves when j/c of the product is done, so the
  collective may start after the first chunk; both end no earlier than max(g, g/c + w).
* all-gather → product: a rank's own chunk is at hand, so the product waits for the gather only in its last chunk:
  max(g, w + g/c).

PyTorch, torch/distributed/_symmetric_memory/__init__.py (`fused_all_gather_matmul`, `fused_matmul_reduce_scatter`),
uses one chunk a rank. Cutting is taken to cost nothing: the baseline gets the best it could have. An all-reduce is
chunked over the tokens in the same way, its last chunk after the product's last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from falsim.dataflow import Collective, CollectiveKind, Elementwise, Gemm, Graph, Group, Number, Op


def chunk_collectives(graph: Graph, chunks: Number) -> Graph:
    """The graph with every product–collective pair on the tensor-parallel group run in `chunks` chunks."""
    return _Chunking(graph, chunks).run()


@dataclass
class _Chunking:
    """Rewrites a graph op by op; an op that was split has a first piece and a piece after which all of it is done."""

    graph: Graph
    chunks: Number
    ops: list[Op] = field(default_factory=list)
    done: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)

    def run(self) -> Graph:
        added = _adds_before_collectives(self.graph)
        feeding = _feeding_products(self.graph) | {add - 1 for add in added}
        reading = _reading_products(self.graph)
        for index, op in enumerate(self.graph.ops):
            if index + 1 in added:
                continue  # issued together with the add that follows
            if index in added:
                self._product_and_add(index)
            elif index in feeding:
                self.first[index] = self._piece(op, 1.0 / self.chunks, self._deps(op))
                self.done[index] = self._piece(op, 1.0 - 1.0 / self.chunks, self._deps(op))
            elif index in reading:
                early = [dep for dep in op.deps if dep != reading[index]]
                self._piece(op, 1.0 - 1.0 / self.chunks, [self.done[dep] for dep in early])
                self.done[index] = self._piece(op, 1.0 / self.chunks, self._deps(op))
            elif _is_tensor(op, *_REDUCING) and len(op.deps) == 1 and op.deps[0] in self.first:
                self._collective(index, op)
            else:
                self.done[index] = self._add(op, self._deps(op))
        return Graph(
            tuple(self.ops),
            {name: self.done[index] for name, index in self.graph.inputs.items()},
            {name: self.done[index] for name, index in self.graph.outputs.items()},
        )

    def _product_and_add(self, index: int) -> None:
        """A product whose result is added to another partial sum before the collective: both in chunks."""
        product, add = self.graph.ops[index - 1], self.graph.ops[index]
        others = [self.done[dep] for dep in add.deps if dep != index - 1]
        share = 1.0 / self.chunks
        first = self._piece(product, share, self._deps(product))
        self.first[index] = self._piece(add, share, [first, *others])
        self.done[index - 1] = self._piece(product, 1.0 - share, self._deps(product))
        self.done[index] = self._piece(add, 1.0 - share, [self.done[index - 1], *others])

    def _collective(self, index: int, op: Op) -> None:
        source = op.deps[0]
        if isinstance(op.work, Collective) and op.work.kind is CollectiveKind.ALL_REDUCE:
            early = self._piece(op, 1.0 - 1.0 / self.chunks, [self.first[source]])
            self.done[index] = self._piece(op, 1.0 / self.chunks, [early, self.done[source]])
        else:
            scattered = self._add(op, [self.first[source]])
            self.done[index] = self._add(Op(f"{op.name}.done", None, op.phase), [scattered, self.done[source]])

    def _deps(self, op: Op) -> list[int]:
        return [self.done[dep] for dep in op.deps]

    def _piece(self, op: Op, share: Number, deps: list[int]) -> int:
        return self._add(replace(op, share=op.share * share), deps)

    def _add(self, op: Op, deps: list[int]) -> int:
        self.ops.append(replace(op, deps=tuple(sorted(set(deps)))))
        return len(self.ops) - 1


_REDUCING = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)


def _feeding_products(graph: Graph) -> set[int]:
    """Products whose result goes straight into a reducing tensor-parallel collective."""
    return {op.deps[0] for op in graph.ops if _reduces_one(op) and isinstance(graph.ops[op.deps[0]].work, Gemm)}


def _adds_before_collectives(graph: Graph) -> set[int]:
    """Adds that join the product just before them to another partial sum, which is then reduced (FAL, parallel)."""
    adds = {op.deps[0] for op in graph.ops if _reduces_one(op)}
    return {
        add
        for add in adds
        if isinstance(graph.ops[add].work, Elementwise)
        and add - 1 in graph.ops[add].deps
        and isinstance(graph.ops[add - 1].work, Gemm)
    }


def _reduces_one(op: Op) -> bool:
    return _is_tensor(op, *_REDUCING) and len(op.deps) == 1


def _reading_products(graph: Graph) -> dict[int, int]:
    """Products that read a tensor-parallel all-gather, by the index of the gather."""
    reads: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        gathers = [dep for dep in op.deps if _is_tensor(graph.ops[dep], CollectiveKind.ALL_GATHER)]
        if isinstance(op.work, Gemm) and len(gathers) == 1:
            reads[index] = gathers[0]
    return reads


def _is_tensor(op: Op, *kinds: CollectiveKind) -> bool:
    return isinstance(op.work, Collective) and op.work.group is Group.TENSOR and op.work.kind in kinds
