"""Parameter counts: exact where the shape determines them, near the round figure where only that is published."""

import pytest

from falsim import catalog
from falsim.catalog.parameters import parameter_count, parameter_split

# Hugging Face hub (safetensors totals, num_parameters) and model cards.
EXACT = {
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt2-1.5b": 1_557_611_200,
    "llama-1-7b": 6_738_415_616,
    "llama-1-13b": 13_015_864_320,
    "llama-1-33b": 32_528_943_616,
    "llama-1-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
}

# The round figures of the papers' own tables.
ROUND = {
    "gpt3-125m": 125e6,
    "gpt3-350m": 350e6,
    "gpt3-760m": 760e6,
    "gpt3-1.3b": 1.3e9,
    "gpt3-2.7b": 2.7e9,
    "gpt3-6.7b": 6.7e9,
    "gpt3-13b": 13e9,
    "gpt3-175b": 175e9,
    "megatron-22b": 22e9,
    "megatron-175b": 175e9,
    "megatron-530b": 530e9,
    "megatron-1t": 1e12,
}


def test_every_model_of_the_catalogue_has_a_published_count_here() -> None:
    assert set(catalog.entries("models")) == EXACT.keys() | ROUND.keys()


@pytest.mark.parametrize(("name", "published"), EXACT.items())
def test_a_count_the_shape_determines_is_exact(name: str, published: int) -> None:
    assert parameter_count(catalog.model(name)) == published


@pytest.mark.parametrize(("name", "published"), ROUND.items())
def test_a_count_published_in_round_figures_is_within_two_percent(name: str, published: float) -> None:
    assert parameter_count(catalog.model(name)) == pytest.approx(published, rel=0.02)


def test_the_parts_of_gpt2_are_those_counted_by_hand() -> None:
    split = parameter_split(catalog.model("gpt2-124m"))
    hidden = 768
    assert split.token_embedding == 50257 * hidden
    assert split.position_embedding == 1024 * hidden
    assert split.attention == 4 * hidden * hidden + 4 * hidden
    assert split.mlp == 8 * hidden * hidden + 5 * hidden
    assert split.norms == 4 * hidden
    assert split.final_norm == 2 * hidden
    assert (split.head, split.router, split.embedding_norm) == (0, 0, 0)


def test_grouped_queries_and_gates_are_counted_as_built() -> None:
    split = parameter_split(catalog.model("llama-3-8b"))
    assert split.attention == 2 * 4096 * 4096 + 2 * 4096 * (8 * 128)
    assert split.mlp == 3 * 4096 * 14336
    assert split.norms == 2 * 4096
    assert split.head == split.token_embedding == 128256 * 4096


def test_experts_multiply_the_mlp_and_add_a_router() -> None:
    split = parameter_split(catalog.model("mixtral-8x7b"))
    assert split.mlp == 8 * 3 * 4096 * 14336
    assert split.router == 8 * 4096


@pytest.mark.parametrize("name", catalog.entries("models"))
def test_the_parts_add_up_to_the_whole(name: str) -> None:
    model = catalog.model(name)
    split = parameter_split(model)
    parts = split.embedding + model.num_layers * split.block + split.final_norm + split.head
    assert parts == split.total == parameter_count(model)


@pytest.mark.parametrize("name", catalog.entries("models"))
def test_a_catalogued_shape_is_consistent(name: str) -> None:
    model = catalog.model(name)
    assert model.num_attention_heads * model.head_dim == model.hidden_size
    assert model.num_attention_heads % model.num_key_value_heads == 0
