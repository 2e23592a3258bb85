"""What a lowered step is made of: ops with their work, in issue order, on in-order streams.

Every size is a `Number`: a float, or a numpy array when many configurations of one structure are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from falsim.dataflow.arrays import Number


class Placement(StrEnum):
    """How a tensor lies across the ranks of a tensor-parallel group (Megatron-LM, arXiv 1909.08053, section 3)."""

    REPLICATED = "R"
    PARTIAL = "P"
    SHARD_HIDDEN = "S(hidden)"
    SHARD_SEQUENCE = "S(seq)"


class Stream(StrEnum):
    """In-order queues of one rank; ops on different streams may overlap.

    Collectives inside a block run on `communication`, data-parallel ones on `data`, point-to-point messages on `copy`.
    """

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    DATA = "data"
    COPY = "copy"


class Phase(StrEnum):
    """Which part of a training step an op belongs to."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class CollectiveKind(StrEnum):
    """Collectives, named as nccl-tests names them."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"


class Group(StrEnum):
    """The process groups of a step. `data` holds all replicas of a weight: data-parallel and context-parallel ranks;
    `embedding` the first and the last pipeline stage, which share a tied embedding; `expert_data` the replicas of an
    expert."""

    TENSOR = "tensor"
    CONTEXT = "context"
    DATA = "data"
    EXPERT = "expert"
    PIPELINE = "pipeline"
    EMBEDDING = "embedding"
    EXPERT_DATA = "expert_data"


@dataclass(frozen=True)
class Gemm:
    """`batch` products (m × k)·(k × n): 2·m·n·k FLOPs each."""

    m: Number
    n: Number
    k: Number
    batch: Number = 1

    @property
    def flops(self) -> Number:
        """FLOPs, a multiply-add counted as two."""
        return 2.0 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True)
class Attention:
    """Scores, softmax and values of `heads` query heads, full (non-causal) counts.

    The forward pass is 4·b·s_q·s_kv·heads·head_dim FLOPs (two products); backward 2 times that, or 2.5 times with
    flash attention, which recomputes the scores (FlashAttention-2, arXiv 2307.08691, section 4.1). Kernels skip half
    of it when causal; model FLOPs are reported in both conventions.
    """

    batch: Number
    sequence_q: Number
    sequence_kv: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    flash: bool
    backward: bool = False

    @property
    def flops(self) -> Number:
        """FLOPs of the full score matrix, recomputation inside flash attention's backward included."""
        forward = 4.0 * self.batch * self.sequence_q * self.sequence_kv * self.heads * self.head_dim
        return forward * ((2.5 if self.flash else 2.0) if self.backward else 1.0)


@dataclass(frozen=True)
class Elementwise:
    """A memory-bound pass that moves `bytes` to and from device memory (norms, activations, adds, optimizers)."""

    bytes: Number
    kernels: int = 1


@dataclass(frozen=True)
class Collective:
    """A collective on a whole tensor of `bytes`: what an all-reduce reduces, what an all-gather has gathered."""

    kind: CollectiveKind
    bytes: Number
    group: Group


@dataclass(frozen=True)
class Transfer:
    """`count` point-to-point messages of `bytes` each, one after the other, to the next rank of `group`."""

    bytes: Number
    group: Group
    count: Number = 1.0


Work = Gemm | Attention | Elementwise | Collective | Transfer


@dataclass(frozen=True)
class Op:
    """One op: what it does, where it runs, and which earlier ops of its graph it waits for.

    `work` is None for a graph's inputs, which take no time. `purpose` says what a collective is for, `share` which
    part of the work this op does where the work is cut into pieces: a piece takes its share of the whole's time, as
    if cutting cost nothing.
    """

    name: str
    work: Work | None
    phase: Phase
    deps: tuple[int, ...] = ()
    purpose: str = ""
    share: Number = 1.0

    @property
    def stream(self) -> Stream:
        """The stream the op runs on."""
        if isinstance(self.work, Transfer):
            return Stream.COPY
        if isinstance(self.work, Collective):
            replicas = (Group.DATA, Group.EXPERT_DATA)
            return Stream.DATA if self.work.group in replicas else Stream.COMMUNICATION
        return Stream.COMPUTE


@dataclass(frozen=True)
class Graph:
    """Ops in issue order; `inputs` and `outputs` name the tensors carried in and out by the op that makes them."""

    ops: tuple[Op, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]

    def collectives(self) -> Iterable[Op]:
        """The ops that are collectives, in issue order."""
        return (op for op in self.ops if isinstance(op.work, Collective))
