"""The backward pass, derived from the forward one: the dual of every placement change, and weight gradients under it.

The rules: a column-parallel input's gradient is a partial sum; a row-parallel output's gradient must
be whole; a residual read hands on what it gets. Partial sums that meet are added first and reduced once. Unmerged,
each column input is reduced on the spot, as Megatron-LM does (`LinearWithGradAccumulationAndAsyncCommunication` in
megatron/core/tensor_parallel/layers.py); there and here the weight gradient runs after the reduction was launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from falsim.dataflow.arrays import Number
from falsim.dataflow.block import NodeKind, Tensor
from falsim.dataflow.lowering import HID, SEQ, Emitter, Forward, P, R
from falsim.dataflow.ops import Attention, Collective, CollectiveKind, Graph, Group, Op, Phase, Placement, Work

Gradient = tuple[int, Placement]
"""The op that makes a contribution to a gradient, and its placement."""


@dataclass
class Backward(Emitter):
    """Lowers an expression's backward pass.

    `incoming` names the outputs whose gradient the next block hands back, with its placement. With `overlapped` off,
    compute and tensor-parallel collectives take turns.
    """

    forward: Forward = field(kw_only=True)
    incoming: Mapping[str, Placement] = field(kw_only=True)
    overlapped: bool = True
    selective_recompute: bool = False
    partial_norm_parameters: Number = 0.0
    """Norm parameters whose gradient stays a partial sum: they join one small all-reduce a step."""
    _parts: dict[int, list[Gradient]] = field(default_factory=dict)
    _whole: dict[tuple[int, Placement], int] = field(default_factory=dict)
    _done: dict[int, Gradient] = field(default_factory=dict)
    _pending: list[tuple[Tensor, int]] = field(default_factory=list)
    _again: dict[tuple[int, int], int] = field(default_factory=dict)
    _converted: dict[int, int] = field(default_factory=dict)
    _rebuilt: dict[int, int] = field(default_factory=dict)
    _outgoing: dict[int, list[Gradient]] = field(default_factory=dict)
    _blocking: int = -1
    _last_compute: int = -1

    def run(self) -> tuple[Graph, dict[str, Placement]]:
        """The backward graph, whose outputs are the gradients of the block's inputs, and their placements."""
        expression = self.expression
        for name, placement in self.incoming.items():
            self.inputs[name] = self.emit(f"{name}.gradient", None)
            target = expression.outputs[name].index
            self._outgoing.setdefault(target, []).append((self.inputs[name], placement))
        for node in reversed(self._columns):
            self._column(node)
        for node in expression.nodes:
            if node.kind is NodeKind.ROW:  # reached through its column already, unless it is the embedding
                self._local(node)
        outputs: dict[str, int] = {}
        placements: dict[str, Placement] = {}
        for node in expression.nodes:
            if node.kind is NodeKind.INPUT:
                outputs[node.name], placements[node.name] = self._gradient(node)
        self._flush()
        assert not self._pending, "a weight gradient was never issued"
        return Graph(tuple(self.ops), dict(self.inputs), outputs), placements

    def _home(self, node: Tensor) -> Placement:
        """Where a tensor's gradient lives: as the tensor itself, or as the residual where that was a partial sum."""
        native = self.forward.native[node.index]
        return self.expression.home if native is P else native

    def _gradient(self, node: Tensor) -> Gradient:
        """A tensor's gradient: partial if it may stay so, else in its home placement."""
        parts = self._contributions(node)
        if parts and all(placement is P for _, placement in parts) and self.expression.defers(node):
            return self._add(node, [op for op, _ in parts], P), P
        home = self._home(node)
        return self.whole(node, home), home

    def whole(self, node: Tensor, placement: Placement) -> int:
        """The complete gradient of a tensor in `placement`; partial contributions are added first and reduced once."""
        key = (node.index, placement)
        if key not in self._whole:
            home = self._home(node)
            if placement is not home and self.expression.dims.tensor_parallel and placement is not HID:
                self._whole[key] = self._convert(node, self.whole(node, home), home, placement)
            else:
                self._whole[key] = self._complete(node, placement)
        return self._whole[key]

    def _convert(self, node: Tensor, op: int, held: Placement, wanted: Placement) -> int:
        if held is SEQ and wanted is R:  # the dual of the forward reduce-scatter, once for all who read it
            if op not in self._converted:
                self._converted[op] = self.collective(CollectiveKind.ALL_GATHER, node, op, "output gradient")
            return self._converted[op]
        return op  # its own slice

    def _complete(self, node: Tensor, placement: Placement) -> int:
        parts = self._contributions(node)
        partial = [op for op, held in parts if held is P]
        whole = [self._convert(node, op, held, placement) for op, held in parts if held is not P]
        if partial:
            whole.insert(0, self._reduce(node, self._add(node, partial, P), placement))
        return self._add(node, whole, placement)

    def _add(self, node: Tensor, ops: list[int], placement: Placement) -> int:
        total = ops[0]
        for op in ops[1:]:
            total = self.elementwise("add.backward", node, placement, 3, total, op)
        return total

    def _reduce(self, node: Tensor, op: int, placement: Placement) -> int:
        """Reduce a partial gradient, then issue the weight gradients that can run under it."""
        kind = CollectiveKind.REDUCE_SCATTER if placement is SEQ else CollectiveKind.ALL_REDUCE
        reduced = self.collective(kind, node, op, "input gradient")
        self._flush()
        return reduced

    def emit(self, name: str, work: Work | None, *deps: int, purpose: str = "", share: Number = 1.0) -> int:
        """Append one op; without overlap a tensor-parallel collective waits for all compute before it and blocks it."""
        waits: tuple[int, ...] = ()
        blocks = isinstance(work, Collective) and work.group is Group.TENSOR
        if not self.overlapped and work is not None:
            waits = (self._last_compute if blocks else self._blocking,)
        op = super().emit(name, work, *deps, *(w for w in waits if w >= 0), purpose=purpose, share=share)
        if blocks:
            self._blocking = op
        elif work is not None:
            self._last_compute = op
        return op

    def _flush(self) -> None:
        """Issue the weight gradients held back so far, but for those whose input has yet to be gathered again."""
        pending, self._pending = self._pending, []
        for column, gradient in pending:
            if any(self._gather_key(root, column) not in self._again for root in self._gathered_roots(column)):
                self._pending.append((column, gradient))
                continue
            deps = (gradient, *self._whole_input(column))
            self.chain(f"{column.name}.weight_gradient", column.weight_gradient, *deps)

    def _contributions(self, node: Tensor) -> list[Gradient]:
        if node.index not in self._parts:
            parts = list(self._outgoing.get(node.index, []))
            parts += [self._contribution(node, reader) for reader in reversed(self.expression.readers(node))]
            self._parts[node.index] = parts
        return self._parts[node.index]

    def _contribution(self, node: Tensor, reader: Tensor) -> Gradient:
        match reader.kind:
            case NodeKind.SUM if self.expression.is_partial(reader):
                return self.whole(reader, R), R
            case NodeKind.SUM if self.expression.passes_partial(reader):
                return self._gradient(reader)
            case NodeKind.SUM | NodeKind.SYNC:
                home = self._home(reader)
                return self.whole(reader, home), home
            case NodeKind.NORM:
                return self._norm(node, reader)
            case NodeKind.COLUMN:
                return self._column(reader)
            case _:
                return self._local(reader), HID

    def _norm(self, source: Tensor, norm: Tensor) -> Gradient:
        dims = self.expression.dims
        gradient, placement = self._gradient(norm)
        if placement in (P, SEQ):
            self.partial_norm_parameters = self.partial_norm_parameters + dims.norm_parameters * dims.hidden
        regathered = [self._again[source.index, -1]] if self._norms_of_gathered(norm) else []
        return self.elementwise("norm.backward", norm, placement, 3, gradient, *regathered), placement

    def _local(self, node: Tensor) -> int:
        """Backward of an op on hidden-sharded tensors or of a row-parallel linear: one gradient in, one out."""
        if node.index not in self._done:
            if node.kind is NodeKind.LOSS:
                op = self.chain(f"{node.name}.backward", node.backward)
            elif node.kind is NodeKind.ROW:
                gradient = self.whole(node, R)
                op = self.chain(f"{node.name}.input_gradient", node.backward, gradient) if node.backward else gradient
                self.chain(f"{node.name}.weight_gradient", node.weight_gradient, gradient)
            else:
                gradient = self.whole(node, HID)
                self._recompute(node)
                op = self.chain(f"{node.name}.backward", node.backward, gradient)
            self._done[node.index] = op, HID
        return self._done[node.index][0]

    def _recompute(self, node: Tensor) -> None:
        """Selective recompute: the softmax of unfused attention is made again instead of kept (arXiv 2205.05198)."""
        if self.selective_recompute:
            for work in node.forward:
                if isinstance(work, Attention) and not work.flash:
                    self.ops.append(Op(node.name, work, Phase.RECOMPUTE))

    def _column(self, column: Tensor) -> Gradient:
        if column.index in self._done:
            return self._done[column.index]
        source = self.expression.inputs(column)[0]
        gradient = self.whole(column, HID)
        self._gather_again(column, gradient)
        op = self.chain(f"{column.name}.input_gradient", column.backward, gradient)
        self._pending.append((column, gradient))
        if not self.expression.dims.tensor_parallel:
            self._flush()
            self._done[column.index] = op, R
        elif self.expression.merge:
            self._done[column.index] = op, P
            self._reduce_if_complete(source)
        else:
            home = self._home(source)
            self._done[column.index] = self._reduce(source, op, home), home
        return self._done[column.index]

    def _reduce_if_complete(self, source: Tensor) -> None:
        """Launch the reduction of a column input's gradient as soon as nothing more can be added to it."""
        readers = self.expression.readers(source)
        complete = all(reader.kind is NodeKind.COLUMN and reader.index in self._done for reader in readers)
        if complete and not self.expression.defers(source) and source.index not in self._outgoing:
            self.whole(source, self._home(source))

    # Under sequence parallelism the gathered activations are not kept but gathered again, under the input gradient.

    def _gathered_roots(self, column: Tensor) -> list[Tensor]:
        """The sequence-sharded tensors that the column's whole input was made from."""
        source = self.expression.inputs(column)[0]
        if column.index in self.forward.gathered:
            return [source]
        return [self.expression.inputs(norm)[0] for norm in self._norms_of_gathered(source)]

    def _norms_of_gathered(self, tensor: Tensor) -> list[Tensor]:
        if not self.expression.dims.sequence_parallel:
            return []
        if tensor.kind is NodeKind.SUM:
            return [norm for term in self.expression.inputs(tensor) for norm in self._norms_of_gathered(term)]
        return [tensor] if tensor.kind is NodeKind.NORM and self.forward.native[tensor.index] is R else []

    def _gather_again(self, column: Tensor, gradient: int) -> None:
        """Launch the gathers a column's weight gradient needs, under its own input gradient.

        Where several columns share a gather, the last of them launches it: it hides under one product, as GPT's does.
        """
        for root in self._gathered_roots(column):
            sharing = (
                [c for c in self._columns if root in self._gathered_roots(c)] if self.expression.merge else [column]
            )
            if all(c is column or c.index in self._done for c in sharing):
                key = self._gather_key(root, column)
                self._again[key] = self.collective(CollectiveKind.ALL_GATHER, root, gradient, "gather again")

    @property
    def _columns(self) -> list[Tensor]:
        return [node for node in self.expression.nodes if node.kind is NodeKind.COLUMN]

    def _gather_key(self, root: Tensor, column: Tensor) -> tuple[int, int]:
        """Merged, all readers share one gather; unmerged, each linear has its own."""
        return root.index, -1 if self.expression.merge else column.index

    def _whole_input(self, column: Tensor) -> list[int]:
        """The ops that bring back a column's whole input for its weight gradient; none if it was kept."""
        source = self.expression.inputs(column)[0]
        if column.index in self.forward.gathered:
            return [self._again[self._gather_key(source, column)]]
        return [self._rebuild(source)] if self._norms_of_gathered(source) else []

    def _rebuild(self, tensor: Tensor) -> int:
        """Normalise a tensor gathered again, and add what the forward pass added."""
        if tensor.index not in self._rebuilt:
            if tensor.kind is NodeKind.NORM:
                gathered = self._again[self.expression.inputs(tensor)[0].index, -1]
                self._rebuilt[tensor.index] = self.elementwise("norm.again", tensor, R, 2, gathered)
            else:
                terms = self.expression.inputs(tensor)
                made = [self._rebuild(term) for term in terms if self._norms_of_gathered(term)]
                self._rebuilt[tensor.index] = self.elementwise("add.again", tensor, R, 3, *made)
        return self._rebuilt[tensor.index]
