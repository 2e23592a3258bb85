"""The shape of a model from a Hugging Face `config.json`, read as the `transformers` library reads it.

What is not modelled is refused by name; what is modelled differently from the family's own code comes back as a note.
"""

import difflib

from falsim.catalog.entries import Model
from falsim.scenario.hugging_face_families import FAMILIES, ConfigReader, Fields, UnsupportedModel
from falsim.scenario.wording import printable

__all__ = ["UnsupportedModel", "from_hugging_face"]


def from_hugging_face(config: dict[str, object], called: str = "") -> tuple[Model, tuple[str, ...]]:
    """Read a parsed `config.json`; the second value says what was assumed about the model.

    `called` names the model where the config does not (`_name_or_path`); without either it is called by its family.

    Raises:
        UnsupportedModel: the family or a switch of it is not modelled, a key is missing, or a value has the wrong type.
    """
    if not isinstance(config, dict):
        raise UnsupportedModel(f"a config.json holds one object, found {type(config).__name__}")
    reader = ConfigReader(config)
    model_type = reader.text("model_type")
    _refuse_what_is_not_modelled(reader, model_type)
    if model_type not in FAMILIES:
        close = difflib.get_close_matches(model_type.lower(), FAMILIES, n=1)
        hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(f"model_type: {model_type!r} is not modelled ({hint})")
    fields = FAMILIES[model_type](reader)
    _check_heads(fields)
    name = printable(_own_name(config) or called or model_type)
    sources = {"*": f"config.json of a Hugging Face model, model_type {model_type}"}
    model = Model.model_validate({"name": name, "title": name, "sources": sources, **fields})
    return model, _notes(model, reader, model_type)


def _own_name(config: dict[str, object]) -> str:
    """The last part of the path or hub name the config was saved under; empty where it has none."""
    written = config.get("_name_or_path")
    last = written.rstrip("/").rsplit("/", 1)[-1].strip() if isinstance(written, str) else ""
    return last if any(character.isalnum() for character in last) else ""


def _check_heads(fields: Fields) -> None:
    heads, key_value_heads = fields["num_attention_heads"], fields["num_key_value_heads"]
    if heads % key_value_heads:
        raise UnsupportedModel(f"num_key_value_heads: {key_value_heads} do not divide the {heads} attention heads")
    experts, active = fields.get("num_experts", 1), fields.get("num_experts_per_token", 1)
    if active > experts:
        raise UnsupportedModel(f"num_experts_per_tok: {active} of only {experts} experts")


_ENCODER_DECODER = "an encoder-decoder"
_NOT_MODELLED = {
    "t5": _ENCODER_DECODER,
    "mt5": _ENCODER_DECODER,
    "bart": _ENCODER_DECODER,
    "whisper": _ENCODER_DECODER,
    "bert": "an encoder",
    "roberta": "an encoder",
    "gemma2": "norms after each sub-block",
    "gemma3_text": "norms after each sub-block and of queries and keys",
    "olmo2": "norms after each sub-block and of queries and keys",
    "qwen3": "norms of queries and keys",
    "qwen3_moe": "norms of queries and keys",
    "qwen2_moe": "shared experts",
    "deepseek_v2": "latent attention and shared experts",
    "deepseek_v3": "latent attention and shared experts",
    "mamba": "no attention",
    "mamba2": "no attention",
}
_REFUSED_WHEN_SET = {
    "is_encoder_decoder": _ENCODER_DECODER,
    "add_cross_attention": "cross-attention",
    "qk_layernorm": "norms of queries and keys",
    "use_qk_norm": "norms of queries and keys",
    "qk_norm": "norms of queries and keys",
    "q_lora_rank": "latent attention",
    "kv_lora_rank": "latent attention",
    "n_shared_experts": "shared experts",
    "num_shared_experts": "shared experts",
    "shared_expert_intermediate_size": "shared experts",
    "apply_residual_connection_post_layernorm": "a residual taken after the norm",
}


def _refuse_what_is_not_modelled(c: ConfigReader, model_type: str) -> None:
    if model_type in _NOT_MODELLED:
        raise UnsupportedModel(f"model_type: {model_type} has {_NOT_MODELLED[model_type]}, which is not modelled")
    for key, what in _REFUSED_WHEN_SET.items():
        if c.get(key):
            raise UnsupportedModel(f"{key}: {what} is not modelled")


def _notes(model: Model, c: ConfigReader, model_type: str) -> tuple[str, ...]:
    notes = []
    if model.native_block == "parallel":
        notes.append(f"{model_type}'s own block is parallel; gpt means its shapes in a serial block")
    window = _sliding_window(c, model_type)
    if window is not None:
        notes.append(f"sliding_window: the window of {window} tokens is modelled as full attention")
    return tuple(notes)


def _sliding_window(c: ConfigReader, model_type: str) -> int | None:
    """Tokens of the attention window, if the model uses one (mistral: 4096 unless the config says otherwise)."""
    if model_type == "mistral" and "sliding_window" not in c:
        return 4096
    if model_type == "qwen2" and not c.flag("use_sliding_window", False):
        return None
    return None if c.get("sliding_window") is None else c.size("sliding_window")
