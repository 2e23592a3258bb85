"""The families of Hugging Face configs, one function each: their keys, and what `transformers` assumes of absent ones.

The defaults are those of transformers, src/transformers/models/*/configuration_*.py. A family's function returns the
fields of a `Model`; sizes nobody means to leave out must be there.
"""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["FAMILIES", "ConfigReader", "Fields", "UnsupportedModel"]

_LARGEST_SIZE = 10**9
_GELU = ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "gelu_accurate", "gelu_10", "quick_gelu")
_SILU = ("silu", "swish")

Fields = dict[str, Any]


class UnsupportedModel(ValueError):
    """A config.json says something that is not modelled, or not what it should; `str` names the field."""


class ConfigReader:
    """Typed access to a config; every complaint names the key."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config

    def text(self, key: str) -> str:
        """A name that has to be there."""
        value = self._config.get(key)
        if not isinstance(value, str) or not value:
            raise UnsupportedModel(f"{key}: a name is needed, found {value!r} (for example {key!r}: 'llama')")
        return value

    def size(self, *keys: str, default: int | None = None) -> int:
        """A positive integer under the first of the keys that is there and not null."""
        for key in keys:
            value = self._config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UnsupportedModel(f"{key}: a positive integer is needed, found {value!r}")
            if value > _LARGEST_SIZE:
                raise UnsupportedModel(f"{key}: {str(value)[:20]} is larger than any model's")
            return value
        if default is None:
            raise UnsupportedModel(f"{' or '.join(keys)}: missing, and no default would be what you mean")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """A switch; absent and null mean the default."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise UnsupportedModel(f"{key}: true or false is needed, found {value!r}")
        return value

    def activation(self, *keys: str, default: str) -> str:
        """The plain activation under the first key that is set, in the words of Model.mlp."""
        key, value = self._activation(keys, default)
        if value in _GELU:
            return "gelu"
        if value == "relu":
            return "relu"
        raise UnsupportedModel(f"{key}: {value!r} is not modelled for an MLP without a gate (gelu or relu)")

    def gate(self, *keys: str, default: str) -> str:
        """The gated activation under the first key that is set, in the words of Model.mlp."""
        key, value = self._activation(keys, default)
        if value in _SILU:
            return "swiglu"
        if value in _GELU:
            return "geglu"
        raise UnsupportedModel(f"{key}: {value!r} is not modelled for a gated MLP (silu or gelu)")

    def _activation(self, keys: tuple[str, ...], default: str) -> tuple[str, object]:
        found = [(key, self._config[key]) for key in keys if self._config.get(key) is not None]
        return found[0] if found else (keys[0], default)

    def __contains__(self, key: str) -> bool:
        return key in self._config

    def get(self, key: str) -> object:
        """The value as it stands, None when absent."""
        return self._config.get(key)


def _gpt2(c: ConfigReader) -> Fields:
    hidden = c.size("n_embd", "hidden_size")
    heads = c.size("n_head", "num_attention_heads")
    return {
        **_shape(hidden, c.size("n_layer", "num_hidden_layers"), heads, c.size("n_inner", default=4 * hidden)),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("n_positions", "max_position_embeddings", "n_ctx", default=1024),
        "mlp": c.activation("activation_function", default="gelu_new"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", True),
    }


def _llama(c: ConfigReader) -> Fields:
    bias = c.flag("attention_bias", False)
    return {
        **_gated(c, max_positions=2048),
        "attention_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": c.flag("mlp_bias", False),
    }


def _mistral(c: ConfigReader) -> Fields:
    return _gated(c, max_positions=131072, key_value_heads=8)


def _mixtral(c: ConfigReader) -> Fields:
    return {
        **_gated(c, max_positions=131072, key_value_heads=8),
        "num_experts": c.size("num_local_experts", default=8),
        "num_experts_per_token": c.size("num_experts_per_tok", default=2),
    }


def _qwen2(c: ConfigReader) -> Fields:
    return {**_gated(c, max_positions=32768, key_value_heads=32), "attention_bias": True}


def _gemma(c: ConfigReader) -> Fields:
    bias = c.flag("attention_bias", False)
    return {
        **_gated(c, max_positions=8192, key_value_heads=16, head_dim=256),
        "mlp": c.gate("hidden_activation", "hidden_act", default="gelu_pytorch_tanh"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", True),
        "attention_bias": bias,
        "attention_output_bias": bias,
    }


def _phi(c: ConfigReader) -> Fields:
    """Phi 1, 1.5 and 2; the old repositories (phi-msft) write GPT-2's keys."""
    hidden = c.size("hidden_size", "n_embd")
    heads = c.size("num_attention_heads", "n_head")
    old = "n_embd" in c
    return {
        **_shape(
            hidden,
            c.size("num_hidden_layers", "n_layer"),
            heads,
            c.size("intermediate_size", "n_inner", default=4 * hidden if old else None),
            c.size("num_key_value_heads", "n_head_kv", default=heads),
        ),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("max_position_embeddings", "n_positions", default=2048),
        "position_embedding": "rope",
        "mlp": c.activation("hidden_act", "activation_function", default="gelu_new"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", False),
        "lm_head_bias": True,
        "norms_per_block": 1,
        "native_block": "parallel",
    }


def _falcon(c: ConfigReader) -> Fields:
    """Falcon 7B and its likes, Falcon RW, and the `new_decoder_architecture` of Falcon 40B and 180B."""
    hidden = c.size("hidden_size")
    heads = c.size("num_attention_heads", "n_head")
    new = c.flag("new_decoder_architecture", False) or c.get("model_type") == "RefinedWeb"
    parallel = new or c.flag("parallel_attn", True)
    if new:
        key_value_heads = c.size("num_kv_heads", "n_head_kv", default=heads)
        norms = c.size("num_ln_in_parallel_attn", default=2)
        if norms > 2:
            raise UnsupportedModel(f"num_ln_in_parallel_attn: 1 or 2 is needed, found {norms}")
    else:
        key_value_heads = 1 if c.flag("multi_query", True) else heads
        norms = 1 if parallel else 2
    bias = c.flag("bias", False)
    return {
        **_shape(
            hidden,
            c.size("num_hidden_layers", "n_layer"),
            heads,
            c.size("ffn_hidden_size", default=4 * hidden),
            key_value_heads,
        ),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("max_position_embeddings", default=2048),
        "position_embedding": "alibi" if c.flag("alibi", False) else "rope",
        "mlp": c.activation("activation", default="gelu"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", True),
        "attention_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "norms_per_block": norms,
        "native_block": "parallel" if parallel else "serial",
    }


def _gpt_neox(c: ConfigReader) -> Fields:
    bias = c.flag("attention_bias", True)
    return {
        **_shape(
            c.size("hidden_size"),
            c.size("num_hidden_layers"),
            c.size("num_attention_heads"),
            c.size("intermediate_size"),
        ),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("max_position_embeddings", default=2048),
        "position_embedding": "rope",
        "mlp": c.activation("hidden_act", default="gelu"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", False),
        "attention_bias": bias,
        "attention_output_bias": bias,
        "native_block": "parallel" if c.flag("use_parallel_residual", True) else "serial",
    }


def _gptj(c: ConfigReader) -> Fields:
    hidden = c.size("n_embd", "hidden_size")
    heads = c.size("n_head", "num_attention_heads")
    return {
        **_shape(hidden, c.size("n_layer", "num_hidden_layers"), heads, c.size("n_inner", default=4 * hidden)),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("n_positions", "max_position_embeddings", default=2048),
        "position_embedding": "rope",
        "mlp": c.activation("activation_function", default="gelu_new"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", False),
        "attention_bias": False,
        "attention_output_bias": False,
        "lm_head_bias": True,
        "norms_per_block": 1,
        "native_block": "parallel",
    }


def _opt(c: ConfigReader) -> Fields:
    hidden = c.size("hidden_size")
    if not c.flag("do_layer_norm_before", True):
        raise UnsupportedModel("do_layer_norm_before: false puts the norm after each sub-block, which is not modelled")
    if c.size("word_embed_proj_dim", default=hidden) != hidden:
        raise UnsupportedModel("word_embed_proj_dim: an embedding width other than hidden_size is not modelled")
    if not c.flag("layer_norm_elementwise_affine", True):
        raise UnsupportedModel("layer_norm_elementwise_affine: norms without gain and bias are not modelled")
    if c.flag("_remove_final_layer_norm", False):
        raise UnsupportedModel("_remove_final_layer_norm: a model without a final norm is not modelled")
    bias = c.flag("enable_bias", True)
    return {
        **_shape(hidden, c.size("num_hidden_layers"), c.size("num_attention_heads"), c.size("ffn_dim")),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("max_position_embeddings", default=2048),
        "extra_position_rows": 2,
        "mlp": c.activation("activation_function", default="relu"),
        "tie_word_embeddings": c.flag("tie_word_embeddings", True),
        "attention_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
    }


def _bloom(c: ConfigReader) -> Fields:
    hidden = c.size("hidden_size", "n_embed")
    return {
        **_shape(hidden, c.size("n_layer", "num_hidden_layers"), c.size("n_head", "num_attention_heads"), 4 * hidden),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("seq_length", default=2048),
        "position_embedding": "alibi",
        "embedding_norm": True,
        "tie_word_embeddings": c.flag("tie_word_embeddings", True),
    }


FAMILIES: dict[str, Callable[[ConfigReader], Fields]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "gemma": _gemma,
    "phi": _phi,
    "phi-msft": _phi,
    "mixformer-sequential": _phi,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "opt": _opt,
    "bloom": _bloom,
}


def _shape(hidden: int, layers: int, heads: int, intermediate: int, key_value_heads: int | None = None) -> Fields:
    """The sizes of a model whose heads share the hidden size."""
    return {
        "num_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads or heads,
        "head_dim": _exact_ratio(hidden, heads),
        "intermediate_size": intermediate,
    }


def _gated(
    c: ConfigReader, max_positions: int, key_value_heads: int | None = None, head_dim: int | None = None
) -> Fields:
    """What llama and its descendants share: RMS norms, rotary positions, a gated MLP, no biases."""
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    assumed_heads = key_value_heads if "num_key_value_heads" not in c and key_value_heads else heads
    has_head_dim = c.get("head_dim") is not None or head_dim is not None
    return {
        "num_layers": c.size("num_hidden_layers"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": c.size("num_key_value_heads", default=assumed_heads),
        "head_dim": c.size("head_dim", default=head_dim) if has_head_dim else _exact_ratio(hidden, heads),
        "intermediate_size": c.size("intermediate_size"),
        "vocab_size": c.size("vocab_size"),
        "max_position_embeddings": c.size("max_position_embeddings", default=max_positions),
        "mlp": c.gate("hidden_act", default="silu"),
        "norm": "rmsnorm",
        "position_embedding": "rope",
        "tie_word_embeddings": c.flag("tie_word_embeddings", False),
        "attention_bias": False,
        "attention_output_bias": False,
        "mlp_bias": False,
    }


def _exact_ratio(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise UnsupportedModel(f"num_attention_heads: {heads} heads do not divide the hidden size {hidden}")
    return hidden // heads
