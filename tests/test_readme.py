"""What the README promises holds: two command lines, the second as continuous integration runs it, real code."""

import re
from pathlib import Path

import pytest

import falsim
from falsim.cli import _COMMANDS
from falsim.program import Program
from falsim.program.counts import collective_counts
from falsim.scenario import load_scenario

ROOT = Path(falsim.__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = 12
SCENARIO = """
model: {num_layers: 12, hidden_size: 1024, num_attention_heads: 16, vocab_size: 32000}
cluster: {gpu: h100-sxm, gpus_per_node: 2, intra_node: nvlink4-nvswitch}
parallelism: {tensor: 2}
training: {sequence_length: 1024, global_batch_size: 1}
implementation: {merge_partial_gradients: %s}
"""


def quick_start() -> list[str]:
    section = README.partition("## Quick start")[2].partition("\n## ")[0]
    [block] = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return str(block).splitlines()


def test_the_quick_start_is_two_lines_of_which_continuous_integration_runs_the_second() -> None:
    first, second = quick_start()
    assert re.search(r"falsim run (scenarios/\S+\.yaml)$", first)
    assert (ROOT / first.split()[-1]).is_file()
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_every_command_is_in_the_tour() -> None:
    assert [name for name in _COMMANDS if f"`falsim {name}" not in README] == []


def test_the_architecture_shown_is_the_file() -> None:
    assert (ROOT / "falsim" / "architectures" / "parallel.py").read_text(encoding="utf-8").rstrip() in README


@pytest.mark.parametrize("name", ["gpt", "fal", "fal_plus", "parallel", "ladder"])
def test_the_table_of_all_reduces_is_what_falsim_counts(name: str) -> None:
    [row] = re.findall(rf"^\| {name} \|(.*)\|$", README, re.MULTILINE)
    forward, merged, naive = (_count(cell) for cell in row.split("|"))
    for switch, backward in (("true", merged), ("false", naive)):
        counts = collective_counts(Program(load_scenario(SCENARIO % switch), name))
        assert (counts.forward.count, counts.backward.count) == (forward, backward)


def _count(cell: str) -> int:
    """2L, L + 1 and the like, for L = 12 blocks."""
    found = re.match(r"\s*(\d*)L(?: \+ (\d+))?", cell)
    assert found is not None
    return int(found[1] or 1) * BLOCKS + int(found[2] or 0)
