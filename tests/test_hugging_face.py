"""Hugging Face configs: exact parameter counts of real files, the families' defaults, and clear refusals."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from falsim.catalog.parameters import parameter_count
from falsim.scenario.hugging_face import UnsupportedModel, from_hugging_face

SHARED = Path(__file__).resolve().parents[2] / "shared"


def written(model_type: str, hidden: int, layers: int, heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    """A config with the key names most families use."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        **more,
    }


LLAMA = written("llama", 4096, 32, 32, 128256, num_key_value_heads=8, intermediate_size=14336)
FALCON_RW = written("falcon", 2048, 24, 32, 50304, alibi=True, bias=True, multi_query=False, parallel_attn=False)
FALCON_40B = written("falcon", 8192, 60, 128, 65024, num_kv_heads=8, new_decoder_architecture=True)
PYTHIA = written("gpt_neox", 2048, 16, 8, 50304, intermediate_size=8192)
PHI = written("phi", 2048, 24, 32, 51200, intermediate_size=8192)
OPT = written("opt", 2048, 24, 32, 50272, ffn_dim=8192)

# Published totals: hub safetensors, model cards, the suites' papers.
PUBLISHED = [
    pytest.param(LLAMA, 8_030_261_248, id="llama-3-8b"),
    pytest.param(
        written("llama", 2048, 16, 32, 128256, num_key_value_heads=8, intermediate_size=8192, tie_word_embeddings=True),
        1_235_814_400,
        id="llama-3.2-1b",
    ),
    pytest.param(
        {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257},
        1_557_611_200,
        id="gpt2-xl",
    ),
    pytest.param(written("bloom", 1024, 24, 16, 250880), 559_214_592, id="bloom-560m"),
    pytest.param(
        {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880},
        559_214_592,
        id="bloom-560m-old-keys",
    ),
    pytest.param(OPT, 1_315_758_080, id="opt-1.3b"),
    pytest.param(PYTHIA, 1_011_781_632, id="pythia-1b"),
    pytest.param(PHI, 1_418_270_720, id="phi-1.5"),
    pytest.param(FALCON_RW, 1_311_625_216, id="falcon-rw-1b"),
    pytest.param(FALCON_40B, 41_303_293_952, id="falcon-40b"),
    pytest.param(
        written("qwen2", 896, 24, 14, 151936, num_key_value_heads=2, intermediate_size=4864, tie_word_embeddings=True),
        494_032_768,
        id="qwen2-0.5b",
    ),
    pytest.param(
        written("gemma", 3072, 28, 16, 256000, num_key_value_heads=16, intermediate_size=24576),
        8_537_680_896,
        id="gemma-7b",
    ),
    pytest.param(
        written("mixtral", 6144, 56, 48, 32000, num_key_value_heads=8, intermediate_size=16384),
        140_620_634_112,
        id="mixtral-8x22b",
    ),
]


def refusal(config: Any) -> str:
    with pytest.raises(UnsupportedModel) as caught:
        from_hugging_face(config)
    return str(caught.value)


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.skipif(not (SHARED / "cases" / "hf").is_dir(), reason="real config files are not beside this checkout")
def test_every_real_config_has_its_published_number_of_parameters() -> None:
    with (SHARED / "cases" / "hf_expected.csv").open(encoding="utf-8", newline="") as file:
        expected = {row["file"]: int(row["total_params_from_config"]) for row in csv.DictReader(file)}
    assert len(expected) == 13
    counted = {}
    for name in expected:
        config = json.loads((SHARED / "cases" / "hf" / name).read_text(encoding="utf-8"))
        counted[name] = parameter_count(from_hugging_face(config)[0])
    assert counted == expected


@pytest.mark.parametrize(("config", "published"), PUBLISHED)
def test_a_config_has_the_published_number_of_parameters(config: dict[str, Any], published: int) -> None:
    assert parameter_count(from_hugging_face(config)[0]) == published


def test_absent_keys_mean_what_transformers_assumes() -> None:
    llama, _ = from_hugging_face(without(LLAMA, "num_key_value_heads"))
    assert llama.num_key_value_heads == 32
    assert (llama.mlp, llama.norm, llama.tie_word_embeddings, llama.attention_bias) == (
        "swiglu",
        "rmsnorm",
        False,
        False,
    )
    assert (llama.max_position_embeddings, llama.head_dim) == (2048, 128)
    mistral, _ = from_hugging_face(without(LLAMA, "num_key_value_heads") | {"model_type": "mistral"})
    assert mistral.num_key_value_heads == 8
    mixtral, _ = from_hugging_face(LLAMA | {"model_type": "mixtral"})
    assert (mixtral.num_experts, mixtral.num_experts_per_token) == (8, 2)
    qwen, _ = from_hugging_face(LLAMA | {"model_type": "qwen2"})
    assert (qwen.attention_bias, qwen.attention_output_bias) == (True, False)
    gemma, _ = from_hugging_face(LLAMA | {"model_type": "gemma"})
    assert (gemma.head_dim, gemma.mlp, gemma.tie_word_embeddings) == (256, "geglu", True)


def test_null_means_absent() -> None:
    config = LLAMA | {"num_key_value_heads": None, "head_dim": None, "tie_word_embeddings": None}
    assert from_hugging_face(config)[0].num_key_value_heads == 32


def test_the_bias_of_llama_attention_is_on_all_four_projections() -> None:
    model, _ = from_hugging_face(LLAMA | {"attention_bias": True, "mlp_bias": True})
    extra = parameter_count(model) - parameter_count(from_hugging_face(LLAMA)[0])
    assert extra == 32 * ((4096 + 2 * 1024 + 4096) + (2 * 14336 + 4096))


def test_old_and_new_phi_keys_are_one_model() -> None:
    old = {"model_type": "phi-msft", "n_embd": 2048, "n_layer": 24, "n_head": 32, "n_inner": None, "vocab_size": 51200}
    named = {"name", "title", "sources"}
    assert from_hugging_face(old)[0].model_dump(exclude=named) == from_hugging_face(PHI)[0].model_dump(exclude=named)


def test_the_old_keys_of_falcon_7b_give_its_published_number_of_parameters() -> None:
    old = {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_layer": 32, "n_head": 71, "vocab_size": 65024}
    assert parameter_count(from_hugging_face(old)[0]) == 6_921_720_704


def test_a_parallel_family_is_noted_and_a_serial_one_is_not() -> None:
    for config in (PYTHIA, PHI, FALCON_40B):
        model, notes = from_hugging_face(config)
        assert model.native_block == "parallel"
        assert any("serial block" in note for note in notes)
    for config in (PYTHIA | {"use_parallel_residual": False}, FALCON_RW, LLAMA):
        model, notes = from_hugging_face(config)
        assert model.native_block == "serial"
        assert notes == ()


def test_norms_of_parallel_blocks_are_those_of_the_family() -> None:
    one_norm = FALCON_40B | {"num_ln_in_parallel_attn": 1}
    assert [from_hugging_face(config)[0].norms_per_block for config in (PYTHIA, PHI, FALCON_40B, one_norm)] == [
        2,
        1,
        2,
        1,
    ]


@pytest.mark.parametrize(
    ("change", "noted"),
    [
        ({"model_type": "mistral"}, True),
        ({"model_type": "mistral", "sliding_window": None}, False),
        ({"model_type": "mixtral"}, False),
        ({"model_type": "mixtral", "sliding_window": 4096}, True),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, False),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True}, True),
    ],
)
def test_a_sliding_window_in_use_is_noted(change: dict[str, Any], noted: bool) -> None:
    notes = from_hugging_face(LLAMA | change)[1]
    assert any("sliding_window" in note for note in notes) == noted


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model_type": "t5"}, "model_type"),
        ({"model_type": "qwen3"}, "model_type"),
        ({"model_type": "deepseek_v3"}, "model_type"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"qk_layernorm": True}, "qk_layernorm"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"n_shared_experts": 2}, "n_shared_experts"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": 4096.0}, "hidden_size"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"num_attention_heads": 33}, "num_attention_heads"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok"),
    ],
)
def test_what_is_not_modelled_is_refused_naming_the_field(change: dict[str, Any], field: str) -> None:
    assert refusal(LLAMA | change).startswith(f"{field}: ")


@pytest.mark.parametrize(
    "key", ["model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_a_missing_size_is_refused_naming_it(key: str) -> None:
    assert refusal(without(LLAMA, key)).startswith(f"{key}: ")


def test_opt_350m_is_refused_for_its_norms_and_its_narrow_embedding() -> None:
    assert refusal(OPT | {"do_layer_norm_before": False}).startswith("do_layer_norm_before: ")
    assert refusal(OPT | {"word_embed_proj_dim": 512}).startswith("word_embed_proj_dim: ")


def test_an_unknown_family_is_refused_with_a_close_one() -> None:
    assert "did you mean llama?" in refusal(LLAMA | {"model_type": "llama4"})
    assert "falcon, gemma, gpt2" in refusal(LLAMA | {"model_type": "xyzzy"})


@pytest.mark.parametrize("config", [[], None, "llama", 3])
def test_something_that_is_no_object_is_refused(config: Any) -> None:
    assert "one object" in refusal(config)
