"""From the numbers of a row to a resolved scenario, built once for each combination and shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

from falsim.calibration.cells import Unpredictable
from falsim.catalog.entries import Model
from falsim.scenario.schema import Cluster, Implementation, Parallelism, Scenario, Training

MOST_WIDTH, MOST_LAYERS, MOST_GPUS, MOST_CHUNKS, MOST_SEQUENCES = 20_000_000, 10_000, 200_000, 512, 10_000_000
"""Beyond any run there is: a row above these is a mistake, and would take for ever or overflow."""


@dataclass(frozen=True)
class Shape:
    """The model of a row."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    mlp: str
    vocab: int
    positions: int
    extra: tuple[tuple[str, Any], ...] = ()
    """Other fields of the catalogue's model, by name."""


@dataclass(frozen=True)
class Split:
    """The parallelism of a row."""

    tensor: int
    sequence: bool
    context: int
    pipeline: int
    virtual: int
    data: int
    zero: int

    @property
    def world_size(self) -> int:
        """GPUs that the degrees use."""
        return self.tensor * self.context * self.pipeline * self.data


@lru_cache(maxsize=65536)
def model_of(shape: Shape) -> Model:
    """The model; raises Unpredictable where its heads do not divide its width."""
    if shape.hidden % shape.heads or shape.heads % shape.kv_heads:
        raise Unpredictable("the heads do not divide the hidden size, or the key-value heads the heads")
    fields: dict[str, Any] = {
        "name": "measured",
        "title": "a published model",
        "sources": {},
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.hidden // shape.heads,
        "intermediate_size": shape.ffn_hidden,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.positions,
        "mlp": shape.mlp,
    }
    return Model.model_construct(**(fields | dict(shape.extra)))


@lru_cache(maxsize=65536)
def parallelism_of(split: Split, layers: int) -> Parallelism:
    """The parallelism; where layers do not fill the stages, the embedding and the loss may count as layers.

    Raises:
        Unpredictable: the layers cannot be dealt to the stages equally.
    """
    chunks = split.pipeline * split.virtual
    counted = next((extra for extra in (0, 2, 1) if (layers + extra) % chunks == 0), None)
    if counted is None or (layers + counted) // chunks < 1:
        raise Unpredictable("layers do not fill the pipeline stages equally")
    return Parallelism.model_construct(
        tensor=split.tensor,
        sequence=split.sequence,
        context=split.context,
        pipeline=split.pipeline,
        pipeline_schedule="interleaved" if split.virtual > 1 else "1f1b",
        virtual_pipeline=split.virtual,
        data=split.data,
        expert=1,
        zero=split.zero,
        account_for_embedding_in_pipeline_split=counted == 2,
        account_for_loss_in_pipeline_split=counted >= 1,
    )


def scenario_of(
    name: str,
    shape: Shape,
    split: Split,
    cluster: Cluster,
    training: Mapping[str, Any],
    implementation: Mapping[str, Any],
    calibration: str | None,
) -> Scenario:
    """The scenario of one row.

    Raises:
        Unpredictable: the row breaks a rule that every scenario keeps.
    """
    _check(shape, split, cluster, training)
    return Scenario.model_construct(
        name=name,
        description=None,
        workload="training",
        model=model_of(shape),
        architectures=("gpt",),
        cluster=cluster,
        parallelism=parallelism_of(split, shape.layers),
        training=Training.model_construct(**training),
        implementation=_implementation(tuple(implementation.items())),
        calibration=calibration,
        measured=None,
        notes=(),
    )


def padded(vocab: int, multiple: int) -> int:
    """The vocabulary rounded up (Megatron-LM's --make-vocab-size-divisible-by times the tensor-parallel degree)."""
    return ceil(vocab / multiple) * multiple


@lru_cache(maxsize=256)
def _implementation(fields: tuple[tuple[str, Any], ...]) -> Implementation:
    return Implementation.model_construct(**dict(fields))


def _check(shape: Shape, split: Split, cluster: Cluster, training: Mapping[str, Any]) -> None:
    """The rules of `falsim.scenario.rules` that a row of a table may break, as reasons."""
    largest = (
        (max(shape.hidden, shape.ffn_hidden, shape.vocab, shape.positions), MOST_WIDTH, "a width or length"),
        (shape.layers, MOST_LAYERS, "the number of layers"),
        (split.world_size, MOST_GPUS, "the number of GPUs"),
        (split.pipeline * split.virtual, MOST_CHUNKS, "the number of pipeline chunks"),
        (training["global_batch_size"], MOST_SEQUENCES, "the global batch"),
    )
    for value, most, what in largest:
        if value > most:
            raise Unpredictable(f"{what} is above {most:,}")
    if split.world_size != cluster.gpus_per_node * cluster.nodes:
        raise Unpredictable("the degrees do not multiply to the number of GPUs")
    if training["global_batch_size"] % (split.data * training["micro_batch_size"]):
        raise Unpredictable("the global batch is not a multiple of replicas x micro-batch")
    tensor, sequence = split.tensor, training["sequence_length"]
    if shape.heads % tensor or shape.ffn_hidden % tensor or shape.hidden % tensor:
        raise Unpredictable("the tensor-parallel degree does not divide the model")
    if shape.kv_heads % tensor and tensor % shape.kv_heads:
        raise Unpredictable("neither of tensor-parallel degree and key-value heads divides the other")
    if (split.sequence and sequence % (tensor * split.context)) or (
        split.context > 1 and sequence % (2 * split.context)
    ):
        raise Unpredictable("the sequence does not divide over the ranks")
    micro_batches = training["global_batch_size"] // (split.data * training["micro_batch_size"])
    if split.virtual > 1 and (split.pipeline == 1 or micro_batches % split.pipeline):
        raise Unpredictable("interleaving needs stages, and micro-batches in multiples of them")
    if training["precision"] not in cluster.gpu.peak_flops:
        raise Unpredictable("the GPU does not compute in this precision")
