"""FLOPs of a training step by their closed form, in the conventions people report."""

from __future__ import annotations

from dataclasses import dataclass

from falsim.scenario import Scenario


@dataclass(frozen=True)
class StepFlops:
    """FLOPs of one step over all GPUs; backward counts twice forward."""

    model: float
    """Matrix products and full (non-causal) scores: what MFU counts (PaLM, arXiv 2204.02311, appendix B)."""
    model_causal: float
    """The same with half of the scores."""
    hardware: float
    """Model FLOPs and the forward passes that recompute repeats: what HFU counts."""


def step_flops(scenario: Scenario) -> StepFlops:
    """24·T·h²·(1 + s/6h) forward per GPT block with f = 4h; gates, grouped queries, experts by their own counts."""
    model, training = scenario.model, scenario.training
    tokens = scenario.tokens_per_step
    query_width = model.num_attention_heads * model.head_dim
    kv_width = model.num_key_value_heads * model.head_dim
    matrices = 3 if model.gated else 2
    attention = 2.0 * model.hidden_size * (query_width + 2 * kv_width) + 2.0 * query_width * model.hidden_size
    mlp = 2.0 * matrices * model.hidden_size * model.intermediate_size * model.num_experts_per_token
    router = 2.0 * model.hidden_size * model.num_experts if model.num_experts > 1 else 0.0
    scores = 4.0 * training.sequence_length * query_width
    products = model.num_layers * (attention + mlp + router) * tokens
    all_scores = model.num_layers * scores * tokens
    head = 2.0 * model.hidden_size * model.vocab_size * tokens
    forward = products + all_scores + head
    again = {
        "none": 0.0,
        "selective": all_scores if training.attention == "unfused" else 0.0,
        "full": products + all_scores,
    }
    return StepFlops(
        model=3.0 * forward,
        model_causal=3.0 * (forward - all_scores / 2.0),
        hardware=3.0 * forward + again[training.recompute],
    )
