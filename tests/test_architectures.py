"""The folder of architectures: what it offers, and that one file is all a new one takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import falsim
from falsim.architectures import ARCHITECTURES
from falsim.scenario import schema

SANDWICH = '''
"""A GPT block whose MLP also sees the block's input: for the test only."""

from falsim.architectures.base import Architecture, Carried
from falsim.dataflow import Block


class Sandwich(Architecture):
    """y = x + [a(N1 x)];  x' = y + [m(N2 y + N3 x)]."""

    name = "sandwich"
    title = "Sandwich"
    equation = "y = x + [a(N1 x)];  x' = y + [m(N2 y + N3 x)]"

    def later(self, b: Block, carried: Carried) -> Carried:
        x = carried["x"]
        y = x + b.attention(b.norm(x))
        return {"x": y + b.mlp(b.norm(y) + b.norm(x))}
'''
SCENARIO = """
model: gpt2-124m
cluster: {gpu: h100-sxm, gpus_per_node: 4, intra_node: nvlink4-nvswitch}
architectures: [gpt, sandwich]
parallelism: {tensor: 4}
training: {sequence_length: 1024, micro_batch_size: 1, global_batch_size: 2}
"""


def test_scenarios_may_name_exactly_the_architectures_that_are_written() -> None:
    assert set(schema.ARCHITECTURES) == set(ARCHITECTURES)
    assert all(name == architecture.name for name, architecture in ARCHITECTURES.items())


def test_a_new_architecture_is_one_file_and_nothing_else(tmp_path: Path) -> None:
    shutil.copytree(Path(falsim.__file__).parent, tmp_path / "falsim", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "falsim" / "architectures" / "sandwich.py").write_text(SANDWICH)
    run = subprocess.run(
        [sys.executable, "-m", "falsim", "run", "-", "--format", "json"],
        input=SCENARIO,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    gpt, sandwich = json.loads(run.stdout)["results"]
    assert sandwich["collectives"]["blocks"]["forward"]["all_reduce"]["count"] == 2 * 12
    assert sandwich["collectives"]["blocks"]["backward"]["all_reduce"]["count"] == 2 * 12
    assert sandwich["step_time_s"] > gpt["step_time_s"]  # a norm and an add more, nothing saved
