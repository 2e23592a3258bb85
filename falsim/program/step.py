"""One training step of one architecture: which pieces stand on which pipeline stage, and what crosses between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from falsim.architectures import ARCHITECTURES, Architecture
from falsim.catalog.parameters import ParameterSplit, parameter_split
from falsim.dataflow import (
    Collective,
    CollectiveKind,
    Graph,
    Group,
    Number,
    Op,
    Phase,
    Placement,
    Transfer,
    more_than_one,
)
from falsim.program.blocks import BlockKind, Blocks, LoweredBlock, Switches
from falsim.program.dims import dims_of
from falsim.program.sharding import Run, gather_parameters
from falsim.scenario import Scenario

REDUCE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
OPTIMIZER_TRAFFIC = {"adamw": 30.0, "sgd": 22.0}
"""Bytes read and written per parameter. AdamW with float32 masters: gradient, master and two moments read (16),
master and moments written (12), weight written (2); SGD with momentum keeps one moment. Assumed the same for float32
training, which writes no second copy of the weights, and for gradients in half precision."""


@dataclass(frozen=True)
class Segment:
    """`count` pieces of one kind in a row."""

    kind: BlockKind
    count: int


class Program:
    """A training step of a scenario with one architecture.

    Virtual stage j = chunk·p + rank holds the segments `stages[j]`; p is `pipeline`, and every rank has `virtual`
    chunks.
    """

    def __init__(self, scenario: Scenario, architecture: Architecture | str) -> None:
        self.scenario = scenario
        self.architecture = ARCHITECTURES[architecture] if isinstance(architecture, str) else architecture
        implementation, training, parallel = scenario.implementation, scenario.training, scenario.parallelism
        self.dims = dims_of(scenario)
        self.blocks = Blocks(
            self.architecture,
            self.dims,
            Switches(
                implementation.merge_partial_gradients,
                implementation.first_block,
                implementation.overlap,
                training.recompute,
                implementation.recompute_early_stop,
            ),
        )
        self._counted: dict[BlockKind, tuple[Number, Number]] = {}
        self.pipeline = parallel.pipeline
        self.virtual = parallel.virtual_pipeline
        self.micro_batches: Number = scenario.num_micro_batches
        if self.pipeline > 1 and np.all(self.micro_batches == np.ravel(self.micro_batches)[0]):
            self.micro_batches = int(np.ravel(self.micro_batches)[0])
        self.stages = deal_layers(
            scenario.model.num_layers,
            self.pipeline * self.virtual,
            embedding=parallel.account_for_embedding_in_pipeline_split,
            loss=parallel.account_for_loss_in_pipeline_split,
        )

    @cached_property
    def parameters(self) -> ParameterSplit:
        """Parameters of the model's parts."""
        return parameter_split(self.scenario.model)

    def rank_parameters(self, kind: BlockKind) -> tuple[Number, Number]:
        """Parameters of one piece on one rank, counted once; see `_rank_parameters`."""
        if kind not in self._counted:
            self._counted[kind] = self._rank_parameters(kind)
        return self._counted[kind]

    def _rank_parameters(self, kind: BlockKind) -> tuple[Number, Number]:
        """Parameters of one piece on one rank, (shared by data parallel ranks, expert ones shared by fewer of them).

        Tensor parallelism divides matrices, not norms; key and value weights are replicated where the degree exceeds
        the key-value heads.
        """
        n, split, model = self.dims.tensor, self.parameters, self.scenario.model
        norms = self.blocks[kind].norm_parameters
        if kind == "embedding":
            return split.token_embedding / n + split.position_embedding + split.embedding_norm, 0.0
        if kind == "head":
            tied_copy = model.tie_word_embeddings and self.pipeline > 1
            return (split.token_embedding if tied_copy else split.head) / n + norms, 0.0
        key_value = 2.0 * model.num_key_value_heads * model.head_dim * model.hidden_size
        replicated = 2.0 * self.dims.local_kv_heads * model.head_dim * model.hidden_size - key_value / n
        dense = split.attention / n + replicated + split.router + norms
        mlp = split.mlp / n / self.dims.expert
        return (dense, mlp) if model.num_experts > 1 else (dense + mlp, 0.0)

    @property
    def replicas(self) -> Number:
        """Ranks that hold the same weights: data-parallel times context-parallel ones."""
        return self.scenario.parallelism.data * self.scenario.parallelism.context

    def over_replicas(self, kind: CollectiveKind, dense: Number, expert: Number) -> tuple[Collective, ...]:
        """A collective over the replicas of dense weights, and one over those of experts, where there are any."""
        collectives = []
        if more_than_one(self.replicas):
            collectives.append(Collective(kind, dense, Group.DATA))
        if np.any(expert) and more_than_one(self.replicas / self.dims.expert):
            collectives.append(Collective(kind, expert, Group.EXPERT_DATA))
        return tuple(collectives)

    # What crosses stages and replicas

    def message(self, stage: int) -> Transfer | None:
        """What a virtual stage gets from the one before per micro-batch, and returns as gradients; None for the first.

        In front of the first block and behind the last there is one tensor, between blocks all they carry; but a signal
        reaches each rank once, and later chunks of that rank find it there. Under sequence parallelism each rank sends
        its part of the sequence.
        """
        if stage == 0:
            return None
        sent = [name for name in self.blocks.sent if name not in self.blocks.carried or self._gets_signal(stage)]
        between = self._first_block < stage <= self._last_block
        size = (len(sent) if between else 1) * self.dims.activation_bytes_at(self.dims.residual_placement)
        return Transfer(size, Group.PIPELINE)

    @cached_property
    def _first_block(self) -> int:
        """The virtual stage that holds block 1."""
        return next(j for j, stage in enumerate(self.stages) if any(s.kind in ("first", "only") for s in stage))

    @cached_property
    def _last_block(self) -> int:
        """The virtual stage that holds the last block."""
        return next(j for j, stage in enumerate(self.stages) if any(s.kind in ("last", "only") for s in stage))

    def _gets_signal(self, stage: int) -> bool:
        """Whether a stage is the first of its rank to hold blocks that read a signal, and did not make it itself."""
        return self._first_block < stage <= min(self._first_block + self.pipeline - 1, self._last_block)

    @cached_property
    def _boundary(self) -> LoweredBlock | None:
        """Gathering a signal on arrival where readers want it whole; scattering its gradient before it goes back."""
        whole = [name for name, placement in self.blocks.carried.items() if placement is Placement.REPLICATED]
        if not whole or not self.dims.sequence_parallel or self.pipeline == 1:
            return None

        def graph(kind: CollectiveKind, phase: Phase, purpose: str) -> Graph:
            ops = [Op(name, None, phase) for name in self.blocks.sent]
            inputs = {name: index for index, name in enumerate(self.blocks.sent)}
            outputs = dict(inputs)
            for name in whole:
                work = Collective(kind, self.dims.activation_bytes, Group.TENSOR)
                ops.append(Op(f"{name}.{kind.value}", work, phase, (inputs[name],), purpose))
                outputs[name] = len(ops) - 1
            return Graph(tuple(ops), inputs, outputs)

        arrive = graph(CollectiveKind.ALL_GATHER, Phase.FORWARD, "gather")
        depart = graph(CollectiveKind.REDUCE_SCATTER, Phase.BACKWARD, "input gradient")
        return LoweredBlock(arrive, depart, 0.0, 0.0, 0.0, 0.0)

    def forward(self, stage: int) -> tuple[Run, ...]:
        """The forward pass of one virtual stage, in order."""
        runs = [Run(s.kind, self.blocks[s.kind].forward, s.count) for s in self.stages[stage]]
        if self._boundary is not None and self._gets_signal(stage):
            runs.insert(0, Run("boundary", self._boundary.forward, 1))
        return tuple(gather_parameters(runs, self._shards, scatter=False) if self._sharded else runs)

    def backward(self, stage: int) -> tuple[Run, ...]:
        """The backward pass of one virtual stage, in order."""
        runs = [Run(s.kind, self.blocks[s.kind].backward, s.count) for s in reversed(self.stages[stage])]
        if self._boundary is not None and self._gets_signal(stage):
            runs.append(Run("boundary", self._boundary.backward, 1))
        return tuple(gather_parameters(runs, self._shards, scatter=True) if self._sharded else runs)

    @property
    def _sharded(self) -> bool:
        return self.scenario.parallelism.zero == 3 and more_than_one(self.replicas)

    def _shards(self, piece: BlockKind, kind: CollectiveKind) -> tuple[Collective, ...]:
        """ZeRO-3's gather of one piece's parameters, or scatter of its gradients."""
        gathered = kind is CollectiveKind.ALL_GATHER
        width = self.dims.element_bytes if gathered else REDUCE_BYTES[self.scenario.training.gradient_reduce_dtype]
        dense, expert = self.rank_parameters(piece)
        return self.over_replicas(kind, dense * width, expert * width)


def deal_layers(layers: int, stages: int, *, embedding: bool, loss: bool) -> tuple[tuple[Segment, ...], ...]:
    """Layers in equal runs over the virtual stages; the embedding and the loss may each count as one layer."""
    per_stage = (layers + embedding + loss) // stages
    dealt = []
    start = 0
    for stage in range(stages):
        stop = start + per_stage - (embedding and stage == 0) - (loss and stage == stages - 1)
        segments = [Segment("embedding", 1)] if stage == 0 else []
        if layers == 1 and start == 0 and stop == 1:
            segments.append(Segment("only", 1))
        else:
            first, last = start == 0 and stop > start, stop == layers and stop > start
            later = stop - start - first - last
            segments += [Segment("first", 1)] * first
            segments += [Segment("later", later)] * (later > 0)
            segments += [Segment("last", 1)] * last
        if stage == stages - 1:
            segments.append(Segment("head", 1))
        dealt.append(tuple(segments))
        start = stop
    return tuple(dealt)
