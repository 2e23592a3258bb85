"""From a scenario to the sizes its blocks are recorded with."""

from __future__ import annotations

import numpy as np

from falsim.catalog.entries import ACTIVATION_BYTES
from falsim.dataflow import Dims, more_than_one
from falsim.scenario import Scenario


def dims_of(scenario: Scenario) -> Dims:
    """Sizes of one block on one rank. The vocabulary is padded so that the tensor-parallel ranks share it equally."""
    model, parallel, training = scenario.model, scenario.parallelism, scenario.training
    tensor_parallel = more_than_one(parallel.tensor)
    return Dims(
        micro_batch=1.0 * training.micro_batch_size,
        sequence=1.0 * training.sequence_length,
        hidden=1.0 * model.hidden_size,
        heads=1.0 * model.num_attention_heads,
        kv_heads=1.0 * model.num_key_value_heads,
        head_dim=1.0 * model.head_dim,
        intermediate=1.0 * model.intermediate_size,
        vocab=np.ceil(model.vocab_size / parallel.tensor) * parallel.tensor,
        element_bytes=ACTIVATION_BYTES[training.precision],
        tensor=1.0 * parallel.tensor,
        context=1.0 * parallel.context,
        expert=1.0 * parallel.expert,
        experts=1.0 * model.num_experts,
        experts_per_token=1.0 * model.num_experts_per_token,
        norm_parameters=2.0 if model.norm == "layernorm" else 1.0,
        gated=model.gated,
        rope=model.position_embedding == "rope",
        flash=training.attention == "flash",
        tensor_parallel=tensor_parallel,
        sequence_parallel=parallel.sequence and tensor_parallel,
        context_parallel=more_than_one(parallel.context),
        mixture_of_experts=more_than_one(model.num_experts),
        expert_parallel=more_than_one(parallel.expert),
    )
