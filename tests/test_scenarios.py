"""The shipped scenarios run, say what they show, and quote their published values."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import falsim
from falsim.cli import main
from falsim.scenario import load_scenario

FOLDER = Path(falsim.__file__).parents[1] / "scenarios"
SHIPPED = sorted(FOLDER.glob("*.yaml"))
DOES_NOT_FIT = {"llama3_405b_16384x_h100"}

NAMES = {
    "gpt2_1.5b_4x_rtx3090_bridges",
    "gpt2_1.5b_4x_rtx4090",
    "gpt2_124m_1x_h100",
    "gpt2_124m_laptop_cpu",
    "gpt3_13b_8x_a100_pcie",
    "gpt3_175b_64x_a100",
    "gpt3_175b_64x_a100_selective",
    "llama2_7b_8x_h100",
    "llama3_405b_16384x_h100",
    "llama3_70b_16x_h100",
    "megatron_22b_8x_a100",
    "megatron_22b_8x_a100_selective",
}


def test_these_scenarios_are_shipped() -> None:
    assert {path.stem for path in SHIPPED} == NAMES


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_runs_and_starts_by_saying_what_it_shows(path: Path) -> None:
    result = CliRunner().invoke(main, ["run", str(path)])
    assert result.exit_code == (3 if path.stem in DOES_NOT_FIT else 0), result.output
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    if path.stem in DOES_NOT_FIT:
        assert "exit code 3" in text.split("\nname:")[0]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_names_all_gpus_and_compares_every_architecture(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.architectures == ("gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync")
    split = scenario.parallelism
    assert split.tensor * split.context * split.pipeline * split.data == scenario.world_size


@pytest.mark.parametrize(
    ("name", "gpus", "step_time"),
    [
        ("gpt3_175b_64x_a100", 64, 18.13),
        ("gpt3_175b_64x_a100_selective", 64, 13.75),
        ("megatron_22b_8x_a100", 8, 1.42),
        ("megatron_22b_8x_a100_selective", 8, 1.10),
    ],
)
def test_megatron_scenarios_quote_table_5_of_arxiv_2205_05198(name: str, gpus: int, step_time: float) -> None:
    scenario = load_scenario(FOLDER / f"{name}.yaml")
    assert scenario.world_size == gpus
    assert scenario.model.vocab_size == 51200
    assert scenario.measured is not None
    assert scenario.measured.step_time == pytest.approx(step_time)


def test_llama_3_405b_is_table_4_of_arxiv_2407_21783() -> None:
    """16,384 GPUs: TP 8, CP 1, PP 16, DP 128, 8192 tokens, 16 sequences a replica, 16 M tokens a batch, 41% MFU."""
    scenario = load_scenario(FOLDER / "llama3_405b_16384x_h100.yaml")
    split = scenario.parallelism
    assert (split.tensor, split.context, split.pipeline, split.data) == (8, 1, 16, 128)
    assert scenario.world_size == 16384
    assert scenario.num_micro_batches == 16
    assert scenario.tokens_per_step == 16 * 2**20
    assert scenario.measured is not None
    assert scenario.measured.mfu == pytest.approx(0.41)
