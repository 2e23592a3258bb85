"""The block builder: architectures are written as equations with it, and it records them as a graph of tensors.

`x + b.attention(b.norm(x))` is a tensor expression; nothing about ranks or collectives is said here. `lowering` and
`backward` infer those from the placements the expression implies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from falsim.dataflow.arrays import Number
from falsim.dataflow.ops import (
    Attention,
    Collective,
    CollectiveKind,
    Elementwise,
    Gemm,
    Group,
    Placement,
    Transfer,
    Work,
)


@dataclass(frozen=True)
class Dims:
    """Sizes of one transformer block on one rank; every number may be an array of many configurations.

    `sequence` is the whole sequence, of which a rank of `context` parallel ranks holds a part; `tensor` is the
    tensor-parallel degree n. Booleans are structure: they are the same for all configurations of one evaluation.
    """

    micro_batch: Number
    sequence: Number
    hidden: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    intermediate: Number
    vocab: Number
    element_bytes: Number
    tensor: Number = 1
    context: Number = 1
    expert: Number = 1
    experts_per_token: Number = 1
    experts: Number = 1
    norm_parameters: Number = 2
    """Vectors of `hidden` parameters a norm has: 2 for LayerNorm (gain, bias), 1 for RMSNorm."""
    gated: bool = False
    rope: bool = False
    flash: bool = True
    tensor_parallel: bool = False
    """Whether n > 1: with n = 1 no tensor-parallel collective exists."""
    sequence_parallel: bool = False
    context_parallel: bool = False
    mixture_of_experts: bool = False
    expert_parallel: bool = False

    @property
    def tokens(self) -> Number:
        """T: tokens of one micro-batch on one context-parallel rank."""
        return self.micro_batch * self.sequence / self.context

    @property
    def activation_bytes(self) -> Number:
        """T·h·e: bytes of one full activation tensor, the payload of a block's all-reduce."""
        return self.tokens * self.hidden * self.element_bytes

    @property
    def residual_placement(self) -> Placement:
        """Where the residual lives: sharded by sequence under sequence parallelism, else replicated."""
        return Placement.SHARD_SEQUENCE if self.sequence_parallel else Placement.REPLICATED

    def activation_bytes_at(self, placement: Placement) -> Number:
        """Bytes of one activation tensor on one rank."""
        return self.activation_bytes / (self.tensor if placement is Placement.SHARD_SEQUENCE else 1.0)

    @property
    def local_heads(self) -> Number:
        """Query heads of one rank."""
        return self.heads / self.tensor

    @property
    def local_kv_heads(self) -> Number:
        """Key-value heads of one rank: at least one, replicated where n exceeds their number."""
        local = self.kv_heads / self.tensor
        return local + (1.0 - local) * (local < 1.0)


class NodeKind(Enum):
    """What a node of the expression does to placements."""

    INPUT = auto()
    NORM = auto()
    COLUMN = auto()
    LOCAL = auto()
    ROW = auto()
    SUM = auto()
    SYNC = auto()
    LOSS = auto()


@dataclass(eq=False)
class Tensor:
    """A node of the expression and the tensor it makes. `a + b` is a sum; a sum only a sum reads is part of it.

    `forward`, `backward` and `weight_gradient` are the works of one rank; `saved_bytes` is what backward needs beyond
    the node's inputs (for example the softmax of unfused attention).
    """

    block: Block = field(repr=False)
    kind: NodeKind
    name: str
    inputs: tuple[Tensor, ...] = ()
    forward: tuple[Work, ...] = ()
    backward: tuple[Work, ...] = ()
    weight_gradient: tuple[Work, ...] = ()
    bytes: Number = 0.0
    saved_bytes: Number = 0.0
    index: int = 0

    def __add__(self, other: Tensor) -> Tensor:
        return self.block.record(NodeKind.SUM, "add", (self, other))


class Block:
    """Records one block (or the embedding, or the head) as an expression over placed tensors."""

    def __init__(self, dims: Dims, *, first_block: str = "gpt") -> None:
        self.dims = dims
        self.first_block = first_block
        self.nodes: list[Tensor] = []

    def record(
        self,
        kind: NodeKind,
        name: str,
        inputs: tuple[Tensor, ...] = (),
        *,
        forward: tuple[Work, ...] = (),
        backward: tuple[Work, ...] = (),
        weight_gradient: tuple[Work, ...] = (),
        bytes: Number | None = None,
        saved_bytes: Number = 0.0,
    ) -> Tensor:
        """Add a node; `bytes` is the size of the whole (unsharded over sequence) tensor it makes."""
        size = self.dims.activation_bytes if bytes is None else bytes
        node = Tensor(
            self, kind, name, inputs, forward, backward, weight_gradient, size, saved_bytes, index=len(self.nodes)
        )
        self.nodes.append(node)
        return node

    def input(self, name: str) -> Tensor:
        """A tensor carried in from the block before."""
        return self.record(NodeKind.INPUT, name)

    def norm(self, x: Tensor) -> Tensor:
        """N x: LayerNorm or RMSNorm; acts on replicated or sequence-sharded tensors, backward also on partial sums."""
        return self.record(NodeKind.NORM, "norm", (x,))

    def sync(self, x: Tensor) -> Tensor:
        """[x]: synchronise a partial sum across the tensor-parallel ranks here, not at its first reader."""
        return self.record(NodeKind.SYNC, "sync", (x,))

    def column(self, name: str, x: Tensor, width: Number) -> Tensor:
        """Column-parallel linear: every rank holds `width` of its output columns and reads the whole input."""
        d = self.dims
        return self.record(
            NodeKind.COLUMN,
            name,
            (x,),
            forward=(Gemm(d.tokens, width, d.hidden),),
            backward=(Gemm(d.tokens, d.hidden, width),),
            weight_gradient=(Gemm(d.hidden, width, d.tokens),),
            bytes=d.tokens * width * d.element_bytes,
        )

    def row(self, name: str, x: Tensor, depth: Number) -> Tensor:
        """Row-parallel linear: every rank holds `depth` of its input rows and makes a partial sum of the output."""
        d = self.dims
        return self.record(
            NodeKind.ROW,
            name,
            (x,),
            forward=(Gemm(d.tokens, d.hidden, depth),),
            backward=(Gemm(d.tokens, depth, d.hidden),),
            weight_gradient=(Gemm(depth, d.hidden, d.tokens),),
        )

    def attention(self, x: Tensor) -> Tensor:
        """a(x): QKV projection, rotary embedding where the model has it, causal attention, output projection."""
        d = self.dims
        query_width = d.local_heads * d.head_dim
        kv_width = d.local_kv_heads * d.head_dim
        width = query_width + 2 * kv_width
        head = self.column("attention.qkv", x, width)
        if d.rope:
            rotated = 2.0 * d.tokens * (query_width + kv_width) * d.element_bytes
            head = self.local("attention.rope", head, rotated, rotated, head.bytes)
        core = self._attention_core(head, query_width, kv_width)
        return self.row("attention.out", core, query_width)

    def _attention_core(self, qkv: Tensor, query_width: Number, kv_width: Number) -> Tensor:
        d = self.dims
        local_sequence = d.sequence / d.context

        def work(backward: bool) -> Attention:
            return Attention(
                d.micro_batch,
                local_sequence,
                d.sequence,
                d.local_heads,
                d.local_kv_heads,
                d.head_dim,
                d.flash,
                backward,
            )

        ring: tuple[Work, ...] = ()
        ring_backward: tuple[Work, ...] = ()
        if d.context_parallel:  # ring attention: each rank's K and V visit the others (arXiv 2310.01889)
            kv_bytes = 2.0 * d.tokens * kv_width * d.element_bytes
            ring = (Transfer(kv_bytes, Group.CONTEXT, d.context - 1),)
            ring_backward = (Transfer(2.0 * kv_bytes, Group.CONTEXT, d.context - 1),)
        scores = d.micro_batch * d.local_heads * local_sequence * d.sequence
        statistics = 4.0 * d.micro_batch * d.local_heads * local_sequence
        return self.record(
            NodeKind.LOCAL,
            "attention.core",
            (qkv,),
            forward=(*ring, work(False)),
            backward=(*ring_backward, work(True)),
            bytes=d.tokens * query_width * d.element_bytes,
            saved_bytes=statistics if d.flash else scores * d.element_bytes,
        )

    def mlp(self, x: Tensor) -> Tensor:
        """m(x): two matrices, or three where the MLP is gated (its first two are one GEMM)."""
        d = self.dims
        if d.mixture_of_experts:
            return self._expert_mlp(x)
        width = d.intermediate / d.tensor
        fc1 = self.column("mlp.fc1", x, (2.0 if d.gated else 1.0) * width)
        return self.row("mlp.fc2", self._activation(fc1, d.tokens * width * d.element_bytes), width)

    def _activation(self, x: Tensor, size: Number) -> Tensor:
        factor = 2.0 if self.dims.gated else 1.0
        return self.local("mlp.activation", x, (factor + 1) * size, (2 * factor + 1) * size, size)

    def _expert_mlp(self, x: Tensor) -> Tensor:
        """Mixture of experts: each token visits `experts_per_token` experts, balanced over the `expert`-parallel ranks.

        Two all-to-alls forward and two backward of T·k·h·e bytes when the experts are spread (GShard, arXiv
        2006.16668, section 3.2).
        """
        d = self.dims
        width = d.intermediate / d.tensor
        local_experts = d.experts / d.expert
        routed = d.tokens * d.experts_per_token
        tokens = routed / local_experts
        routed_bytes = routed * d.hidden * d.element_bytes
        permute = Elementwise(2.0 * routed_bytes)
        exchange: tuple[Work, ...] = ()
        if d.expert_parallel:
            exchange = (Collective(CollectiveKind.ALL_TO_ALL, routed_bytes, Group.EXPERT),)
        columns = (2.0 if d.gated else 1.0) * width
        fc1 = self.record(
            NodeKind.COLUMN,
            "mlp.fc1",
            (x,),
            forward=(
                Gemm(d.tokens, d.experts, d.hidden),
                permute,
                *exchange,
                Gemm(tokens, columns, d.hidden, local_experts),
            ),
            backward=(
                Gemm(tokens, d.hidden, columns, local_experts),
                *exchange,
                permute,
                Gemm(d.tokens, d.hidden, d.experts),
            ),
            weight_gradient=(Gemm(d.hidden, columns, tokens, local_experts), Gemm(d.hidden, d.experts, d.tokens)),
            bytes=routed * columns * d.element_bytes,
            saved_bytes=routed_bytes,
        )
        act = self._activation(fc1, routed * width * d.element_bytes)
        return self.record(
            NodeKind.ROW,
            "mlp.fc2",
            (act,),
            forward=(Gemm(tokens, d.hidden, width, local_experts), *exchange, permute),
            backward=(permute, *exchange, Gemm(tokens, width, d.hidden, local_experts)),
            weight_gradient=(Gemm(width, d.hidden, tokens, local_experts),),
        )

    def local(self, name: str, x: Tensor, forward_bytes: Number, backward_bytes: Number, size: Number) -> Tensor:
        """An element-wise op on a tensor sharded over the hidden dimension: no communication either way."""
        return self.record(
            NodeKind.LOCAL,
            name,
            (x,),
            forward=(Elementwise(forward_bytes),),
            backward=(Elementwise(backward_bytes),),
            bytes=size,
        )
