"""The two ends of the model: the vocabulary-parallel embedding, and the head with its cross-entropy."""

from __future__ import annotations

from falsim.dataflow import Block, Collective, CollectiveKind, Elementwise, Group, Tensor, Work
from falsim.dataflow.block import NodeKind

FLOAT32 = 4.0


def record_embedding(b: Block) -> Tensor:
    """Every rank looks up the tokens of its part of the vocabulary: a partial sum, as a row-parallel linear gives.

    Megatron-LM, megatron/core/tensor_parallel/layers.py, `VocabParallelEmbedding`. Forward reads rows and writes them;
    backward adds the gradient into the rows.
    """
    rows = b.dims.activation_bytes
    return b.record(
        NodeKind.ROW,
        "embedding",
        forward=(Elementwise(2.0 * rows),),
        weight_gradient=(Elementwise(3.0 * rows),),
    )


def record_head(b: Block, x: Tensor) -> Tensor:
    """Final norm, logits, and the vocabulary-parallel cross-entropy in float32.

    Three all-reduces of one float32 a token: maximum, target logit, sum of exponentials (Megatron-LM,
    megatron/core/tensor_parallel/cross_entropy.py). Logits are cast to float32, and one float32 copy is kept as
    softmax.
    """
    d = b.dims
    width = d.vocab / d.tensor
    logits = d.tokens * width
    scalar: tuple[Work, ...] = ()
    if d.tensor_parallel:
        scalar = (Collective(CollectiveKind.ALL_REDUCE, FLOAT32 * d.tokens, Group.TENSOR),)
    head = b.column("head", b.norm(x), width)
    return b.record(
        NodeKind.LOSS,
        "cross_entropy",
        (head,),
        forward=(
            Elementwise(logits * (d.element_bytes + 2.0 * FLOAT32)),  # cast, and maximum
            *scalar,
            Elementwise(logits * FLOAT32),  # the target's logit
            *scalar,
            Elementwise(logits * 2.0 * FLOAT32),  # exponentials and their sum
            *scalar,
        ),
        backward=(Elementwise(logits * (2.0 * FLOAT32 + d.element_bytes)),),
        bytes=FLOAT32 * d.tokens,
        saved_bytes=logits * FLOAT32,
    )
