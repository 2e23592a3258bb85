"""What a recorded block means before it is lowered: live tensors, their readers, flattened sums, partial gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from falsim.dataflow.block import Block, Dims, NodeKind, Tensor
from falsim.dataflow.ops import Placement


@dataclass(frozen=True, eq=False)
class Expression:
    """A block with the tensors it hands on, and the switch that decides where partial gradients are reduced.

    `merge` is `merge_partial_gradients`; `carried` gives the placement of inputs other than the residual's (for FAL the
    first attention's signal, which its readers may want replicated).
    """

    block: Block
    outputs: Mapping[str, Tensor]
    merge: bool
    carried: Mapping[str, Placement]

    @property
    def dims(self) -> Dims:
        """The sizes the block was recorded with."""
        return self.block.dims

    @property
    def home(self) -> Placement:
        """Where the residual lives."""
        return self.dims.residual_placement

    @cached_property
    def nodes(self) -> tuple[Tensor, ...]:
        """The tensors the outputs need, in the order they were written; what nothing reads is dropped."""
        live: set[int] = set()
        stack = list(self.outputs.values()) + [node for node in self.block.nodes if node.kind is NodeKind.LOSS]
        while stack:
            node = stack.pop()
            if node.index not in live:
                live.add(node.index)
                stack.extend(node.inputs)
        return tuple(node for node in self.block.nodes if node.index in live and node.index not in self._joined(live))

    def _joined(self, live: set[int]) -> set[int]:
        """Sums that only a larger sum reads: they are part of it."""
        readers: dict[int, list[Tensor]] = {}
        for node in self.block.nodes:
            if node.index in live:
                for source in node.inputs:
                    readers.setdefault(source.index, []).append(node)
        given = {tensor.index for tensor in self.outputs.values()}
        return {
            node.index
            for node in self.block.nodes
            if node.kind is NodeKind.SUM
            and node.index not in given
            and [reader.kind for reader in readers.get(node.index, [])] == [NodeKind.SUM]
        }

    @cached_property
    def _terms(self) -> dict[int, tuple[Tensor, ...]]:
        live = {node.index for node in self.nodes}

        def flatten(node: Tensor) -> tuple[Tensor, ...]:
            if node.kind is NodeKind.SUM and node.index not in live:
                return tuple(term for source in node.inputs for term in flatten(source))
            return (node,)

        return {node.index: tuple(t for source in node.inputs for t in flatten(source)) for node in self.nodes}

    def inputs(self, node: Tensor) -> tuple[Tensor, ...]:
        """What a node reads; for a sum all its terms, nested ones flattened."""
        return self._terms[node.index]

    @cached_property
    def _readers(self) -> dict[int, tuple[Tensor, ...]]:
        readers: dict[int, list[Tensor]] = {node.index: [] for node in self.nodes}
        for node in self.nodes:
            for source in self.inputs(node):
                readers[source.index].append(node)
        return {index: tuple(nodes) for index, nodes in readers.items()}

    def readers(self, node: Tensor) -> tuple[Tensor, ...]:
        """The live nodes that read a tensor, in the order they were written."""
        return self._readers[node.index]

    def is_partial(self, node: Tensor) -> bool:
        """Whether the forward pass makes this tensor as a partial sum."""
        if not self.dims.tensor_parallel:
            return False
        if node.kind is NodeKind.SUM:
            return all(self.is_partial(term) for term in self.inputs(node))
        return node.kind is NodeKind.ROW

    def passes_partial(self, node: Tensor) -> bool:
        """Whether a sum hands a partial gradient on unreduced: an add of tensors that are all whole, when merging."""
        return self.merge and not any(self.is_partial(term) for term in self.inputs(node))

    def gradient_is_partial(self, node: Tensor) -> bool:
        """Whether a reader contributes a partial sum to this tensor's gradient (if nothing reduces it first)."""
        return any(
            reader.kind is NodeKind.COLUMN
            or (reader.kind is NodeKind.SUM and self.passes_partial(reader) and self.gradient_is_partial(reader))
            for reader in self.readers(node)
        )

    def merges_at(self, node: Tensor) -> bool:
        """Whether several partial gradients meet at this tensor behind norms, so that one reduction serves them all.

        A norm's backward is linear in the incoming gradient, so partial sums may pass through it; they do so only where
        that saves a reduction.
        """
        partial = [r for r in self.readers(node) if r.kind is NodeKind.NORM and self.gradient_is_partial(r)]
        return self.merge and self.dims.tensor_parallel and len(partial) >= 2

    def defers(self, node: Tensor) -> bool:
        """Whether this tensor's partial gradient is handed back as it is, to be reduced with others later."""
        if not (self.merge and self.dims.tensor_parallel):
            return False
        if node.kind is NodeKind.NORM:
            return self.merges_at(self.inputs(node)[0])
        if node.kind is NodeKind.SUM:
            return self.passes_partial(node)
        return node.kind is NodeKind.INPUT and node.name in self.carried

    def input_placement(self, node: Tensor) -> Placement:
        """Placement of a carried-in tensor."""
        return self.carried.get(node.name, self.home)


def wanted_placements(expression: Expression, names: Collection[str]) -> dict[str, Placement]:
    """The placements in which this block's readers want the inputs of these names.

    A carried tensor is wanted replicated where it is added to a norm of a gathered tensor (FAL under sequence
    parallelism with the block's input gathered once), else where the residual lives.
    """
    wanted: dict[str, Placement] = {}
    for node in expression.nodes:
        if node.kind is NodeKind.INPUT and node.name in names:
            whole = any(
                term.kind is NodeKind.NORM and expression.merges_at(expression.inputs(term)[0])
                for reader in expression.readers(node)
                if reader.kind is NodeKind.SUM
                for term in expression.inputs(reader)
            )
            wanted[node.name] = Placement.REPLICATED if whole else expression.home
    return wanted
