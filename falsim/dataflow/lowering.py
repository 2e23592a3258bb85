"""The forward pass: collectives appear exactly where a reader needs a whole tensor and its producer gives less."""

from __future__ import annotations

from dataclasses import dataclass, field

from falsim.dataflow.arrays import Number
from falsim.dataflow.block import NodeKind, Tensor
from falsim.dataflow.expression import Expression
from falsim.dataflow.ops import (
    Attention,
    Collective,
    CollectiveKind,
    Elementwise,
    Graph,
    Group,
    Op,
    Phase,
    Placement,
    Transfer,
    Work,
)

R, P, SEQ, HID = Placement.REPLICATED, Placement.PARTIAL, Placement.SHARD_SEQUENCE, Placement.SHARD_HIDDEN


@dataclass
class Emitter:
    """Appends ops to a graph in issue order and knows the sizes of placed tensors."""

    expression: Expression
    phase: Phase
    ops: list[Op] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)

    def emit(self, name: str, work: Work | None, *deps: int, purpose: str = "", share: Number = 1.0) -> int:
        """Append one op; return its index."""
        self.ops.append(Op(name, work, self.phase, tuple(sorted(set(deps))), purpose, share))
        return len(self.ops) - 1

    def chain(self, name: str, works: tuple[Work, ...], *deps: int) -> int:
        """Append works that wait for each other; each also waits for `deps`.

        Ring attention does not wait for the ring: it works on the keys and values at hand, and only its last block
        needs the last message (c blocks of a/c each behind messages of w: c − 1 blocks at once, then max(a, (c − 1)·w
        + a/c)).
        """
        last: tuple[int, ...] = ()
        ring: int | None = None
        for work in works:
            if isinstance(work, Transfer):
                ring = self.emit(f"{name}.ring", work, *deps, *last)
            elif isinstance(work, Attention) and ring is not None:
                visiting = 1.0 / self.expression.dims.context
                at_hand = self.emit(name, work, *deps, *last, share=1.0 - visiting)
                last = (self.emit(name, work, *deps, at_hand, ring, share=visiting),)
            else:
                last = (self.emit(name, work, *deps, *last),)
        return last[0]

    def bytes_at(self, tensor: Tensor, placement: Placement) -> Number:
        """Bytes of a tensor on one rank."""
        return tensor.bytes / self.expression.dims.tensor if placement is SEQ else tensor.bytes

    def elementwise(self, name: str, tensor: Tensor, placement: Placement, passes: float, *deps: int) -> int:
        """A memory-bound op that reads or writes the tensor `passes` times.

        A norm reads and writes it (2), an add reads two and writes one (3), a norm's backward reads its input and the
        gradient and writes another (3); no kernel is taken to be fused with its neighbour.
        """
        return self.emit(name, Elementwise(passes * self.bytes_at(tensor, placement)), *deps)

    def collective(self, kind: CollectiveKind, tensor: Tensor, source: int, purpose: str) -> int:
        """A tensor-parallel collective on the whole of a tensor."""
        name = f"{tensor.name}.{kind.value}"
        return self.emit(name, Collective(kind, tensor.bytes, Group.TENSOR), source, purpose=purpose)


@dataclass
class Forward(Emitter):
    """Lowers an expression's forward pass; keeps in which placement each tensor was computed, for the backward pass."""

    versions: dict[int, dict[Placement, int]] = field(default_factory=dict)
    native: dict[int, Placement] = field(default_factory=dict)
    gathered: set[int] = field(default_factory=set)
    """Columns whose input was gathered along the sequence."""

    def run(self) -> Graph:
        """The forward graph."""
        for node in self.expression.nodes:
            placement, op = self._lower(node)
            self.native[node.index] = placement
            self.versions[node.index] = {placement: op}
        outputs = {
            name: self.demand(tensor, self.expression.carried.get(name, self.expression.home))
            for name, tensor in self.expression.outputs.items()
        }
        return Graph(tuple(self.ops), dict(self.inputs), outputs)

    def _lower(self, node: Tensor) -> tuple[Placement, int]:
        expression = self.expression
        sources = expression.inputs(node)
        match node.kind:
            case NodeKind.INPUT:
                self.inputs[node.name] = self.emit(node.name, None)
                return expression.input_placement(node), self.inputs[node.name]
            case NodeKind.COLUMN:
                return HID, self.chain(node.name, node.forward, self._column_input(node, sources[0]))
            case NodeKind.LOCAL:
                return HID, self.chain(node.name, node.forward, self.versions[sources[0].index][HID])
            case NodeKind.LOSS:
                return R, self.chain(node.name, node.forward, self.versions[sources[0].index][HID])
            case NodeKind.ROW:
                deps = [self.versions[source.index][HID] for source in sources]
                return P if expression.dims.tensor_parallel else R, self.chain(node.name, node.forward, *deps)
            case NodeKind.SYNC:
                return expression.home, self.demand(sources[0], expression.home)
            case NodeKind.NORM:
                placement = R if expression.merges_at(sources[0]) else self._whole(sources[0])
                return placement, self.elementwise(node.name, node, placement, 2, self.demand(sources[0], placement))
            case NodeKind.SUM:
                return self._sum(node, sources)

    def _column_input(self, column: Tensor, source: Tensor) -> int:
        op = self.demand(source, R)
        held = self.versions[source.index]
        if SEQ in held:
            self.gathered.add(column.index)
            if not self.expression.merge:
                del held[R]  # unmerged, each linear gathers for itself
        return op

    def _whole(self, tensor: Tensor) -> Placement:
        """The placement, replicated or sharded by sequence, in which a tensor is at hand (or becomes so)."""
        held = self.versions[tensor.index]
        return R if R in held and SEQ not in held else self.expression.home

    def _sum(self, node: Tensor, terms: tuple[Tensor, ...]) -> tuple[Placement, int]:
        partial = [term for term in terms if self.expression.is_partial(term)]
        whole = [term for term in terms if not self.expression.is_partial(term)]
        total: int | None = None
        for term in partial:
            op = self.versions[term.index][P]
            total = op if total is None else self.elementwise(node.name, node, P, 3, total, op)
        if not whole:
            assert total is not None
            return P, total
        if len(partial) == 1:
            total = self.demand(partial[0], self.expression.home)
        elif total is not None:
            total = self._reduce(node, total, self.expression.home)
        placement = self.expression.home
        if total is None and any(self._whole(term) is R for term in whole):
            placement = R
        for term in whole:
            op = self.demand(term, placement)
            total = op if total is None else self.elementwise(node.name, node, placement, 3, total, op)
        assert total is not None
        return placement, total

    def _reduce(self, tensor: Tensor, source: int, placement: Placement) -> int:
        kind = CollectiveKind.REDUCE_SCATTER if placement is SEQ else CollectiveKind.ALL_REDUCE
        return self.collective(kind, tensor, source, "output")

    def demand(self, tensor: Tensor, placement: Placement) -> int:
        """The op that gives `tensor` in `placement`; synchronised or gathered once, then remembered."""
        held = self.versions[tensor.index]
        if placement in held or not self.expression.dims.tensor_parallel:
            return held.get(placement, next(iter(held.values())))
        if placement is SEQ and R in held:
            return held[R]  # its own slice: no communication
        if SEQ not in held and P in held:
            held[self.expression.home] = self._reduce(tensor, held[P], self.expression.home)
        if placement not in held:
            held[placement] = self.collective(CollectiveKind.ALL_GATHER, tensor, held[SEQ], "gather")
        return held[placement]
