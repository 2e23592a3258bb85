"""From a scenario to the sizes its blocks are recorded with."""

from __future__ import annotations

import math

from falsim.catalog.entries import ACTIVATION_BYTES
from falsim.dataflow import Dims
from falsim.scenario import Scenario


def dims_of(scenario: Scenario) -> Dims:
    """Sizes of one block on one rank. The vocabulary is padded so that the tensor-parallel ranks share it equally."""
    model, parallel, training = scenario.model, scenario.parallelism, scenario.training
    return Dims(
        micro_batch=float(training.micro_batch_size),
        sequence=float(training.sequence_length),
        hidden=float(model.hidden_size),
        heads=float(model.num_attention_heads),
        kv_heads=float(model.num_key_value_heads),
        head_dim=float(model.head_dim),
        intermediate=float(model.intermediate_size),
        vocab=float(math.ceil(model.vocab_size / parallel.tensor) * parallel.tensor),
        element_bytes=ACTIVATION_BYTES[training.precision],
        tensor=float(parallel.tensor),
        context=float(parallel.context),
        expert=float(parallel.expert),
        experts=float(model.num_experts),
        experts_per_token=float(model.num_experts_per_token),
        norm_parameters=2.0 if model.norm == "layernorm" else 1.0,
        gated=model.gated,
        rope=model.position_embedding == "rope",
        flash=training.attention == "flash",
        tensor_parallel=parallel.tensor > 1,
        sequence_parallel=parallel.sequence and parallel.tensor > 1,
        context_parallel=parallel.context > 1,
        mixture_of_experts=model.num_experts > 1,
        expert_parallel=parallel.expert > 1,
    )
