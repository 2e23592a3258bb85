"""The blocks of one architecture, lowered: forward and backward graphs of the first, the later and the last block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from falsim.architectures import Architecture
from falsim.dataflow import (
    Backward,
    Block,
    Dims,
    Expression,
    Forward,
    Graph,
    NodeKind,
    Number,
    Phase,
    Placement,
    Tensor,
    before,
    replay,
    saved_bytes,
    wanted_placements,
)
from falsim.program.async_tensor import chunk_collectives
from falsim.program.ends import record_embedding, record_head

BlockKind = Literal["embedding", "first", "later", "last", "only", "head", "boundary"]
"""Where a piece of the model stands: `only` is a block that is first and last at once, `boundary` is what a pipeline
stage does to carried signals on arrival."""


@dataclass(frozen=True)
class Switches:
    """The implementation switches that change a block's graph."""

    merge_partial_gradients: bool | None = None
    first_block: Literal["gpt", "fal"] = "gpt"
    overlap: Literal["none", "wgrad", "async_tp"] = "wgrad"
    recompute: Literal["none", "selective", "full"] = "none"
    recompute_early_stop: bool = False


@dataclass(frozen=True)
class LoweredBlock:
    """One piece of the model on one rank: what it does forward and backward and what it keeps in between.

    `backward` starts with the replay of the forward pass when that is recomputed. `saved_bytes` are kept per
    micro-batch from forward to backward, `working_bytes` exist while a recomputed block is in its backward pass.
    """

    forward: Graph
    backward: Graph
    saved_bytes: Number
    working_bytes: Number
    norm_parameters: Number
    partial_norm_parameters: Number
    """Norm parameters whose gradients are partial sums over the tensor-parallel ranks."""


class Blocks:
    """Lowers the pieces of one architecture on demand; the last block first, since backward starts there."""

    def __init__(self, architecture: Architecture, dims: Dims, switches: Switches) -> None:
        self.architecture = architecture
        self.dims = dims
        self.switches = switches
        self._lowered: dict[BlockKind, LoweredBlock] = {}
        self._gradients: dict[BlockKind, Mapping[str, Placement]] = {}

    @property
    def merge(self) -> bool:
        """Whether partial gradients are merged: the switch, or the architecture's default; never where that is None."""
        default = self.architecture.merge_partial_gradients
        if default is None:
            return False
        chosen = self.switches.merge_partial_gradients
        return default if chosen is None else chosen

    @cached_property
    def carried(self) -> dict[str, Placement]:
        """Signals: what every later block reads and hands on unchanged, such as FAL's g; in the placement they want."""
        later = Expression(*self._record("later"), self.merge, {})
        handed_on = {tensor.name for tensor in later.outputs.values() if tensor.kind is NodeKind.INPUT}
        return wanted_placements(later, handed_on)

    @cached_property
    def sent(self) -> tuple[str, ...]:
        """The tensors that cross a pipeline boundary."""
        _, outputs = self._record("later")
        return tuple(name for name in outputs if name not in self.architecture.local)

    def __getitem__(self, kind: BlockKind) -> LoweredBlock:
        if kind not in self._lowered:
            self._lower(kind)
        return self._lowered[kind]

    def _record(self, kind: BlockKind) -> tuple[Block, Mapping[str, Tensor]]:
        block = Block(self.dims, first_block=self.switches.first_block)
        if kind == "embedding":
            return block, {"x": record_embedding(block)}
        if kind == "head":
            record_head(block, block.input("x"))
            return block, {}
        if kind in ("first", "only"):
            carried = self.architecture.first(block, block.input("x"))
        else:
            names = self.architecture.first(probe := Block(self.dims), probe.input("x"))
            carried = self.architecture.later(block, {name: block.input(name) for name in names})
        return block, {"x": self.architecture.leave(block, carried)} if kind in ("last", "only") else carried

    def _incoming(self, kind: BlockKind) -> Mapping[str, Placement]:
        """Placements of the gradients that the piece behind hands back."""
        behind: dict[BlockKind, BlockKind] = {"first": "last", "later": "last"}
        if kind not in behind:
            return {} if kind == "head" else {"x": self.dims.residual_placement}
        self[behind[kind]]
        return self._gradients[behind[kind]]

    def _lower(self, kind: BlockKind) -> None:
        switches = self.switches
        end = kind in ("embedding", "head")
        expression = Expression(*self._record(kind), self.merge, {} if end else self.carried)
        lowering = Forward(expression, Phase.FORWARD)
        forward = lowering.run()
        deriving = Backward(
            expression,
            Phase.BACKWARD,
            forward=lowering,
            incoming=self._incoming(kind),
            overlapped=switches.overlap != "none",
            selective_recompute=switches.recompute == "selective",
        )
        backward, self._gradients[kind] = deriving.run()
        saved = kept = saved_bytes(lowering)
        if switches.recompute == "full" and not end:
            backward = before(replay(lowering, forward, early_stop=switches.recompute_early_stop), backward)
            residual = sum(n.kind is NodeKind.INPUT and n.name not in self.carried for n in expression.nodes)
            kept = residual * self.dims.activation_bytes_at(self.dims.residual_placement)
        elif switches.recompute == "selective" and not end:
            kept = saved - sum(node.saved_bytes for node in expression.nodes if node.name == "attention.core")
        chunked = switches.overlap == "async_tp" and not self.architecture.free_collectives
        if chunked and self.dims.tensor_parallel:
            forward, backward = (chunk_collectives(graph, self.dims.tensor) for graph in (forward, backward))
        norms = sum(node.kind is NodeKind.NORM for node in expression.nodes)
        self._lowered[kind] = LoweredBlock(
            forward=forward,
            backward=backward,
            saved_bytes=kept,
            working_bytes=saved - kept,
            norm_parameters=norms * self.dims.norm_parameters * self.dims.hidden,
            partial_norm_parameters=deriving.partial_norm_parameters,
        )
