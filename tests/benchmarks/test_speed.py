"""How long commands take, whole processes included. Skipped by default; run with

    pytest tests/benchmarks --benchmark-only -p no:xdist

The budgets on two slow cores: `falsim --help` 0.3 s, `falsim run` of any shipped scenario 1 s, `falsim validate` of
both tables of training steps 5 s.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import falsim
from falsim.costs.prices import prices_of
from falsim.engines.schedule import run_step
from falsim.program import Program
from falsim.scenario import load_scenario

MEASURED = Path(falsim.__file__).parents[2] / "shared" / "measured"
SHIPPED = sorted((Path(falsim.__file__).parents[1] / "scenarios").glob("*.yaml"))


def falsim_process(*arguments: str) -> int:
    command = [sys.executable, "-m", "falsim", *arguments]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def test_help(benchmark: Any) -> None:
    assert benchmark.pedantic(falsim_process, args=("--help",), rounds=5, warmup_rounds=1) == 0


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_run(benchmark: Any, path: Path) -> None:
    assert benchmark.pedantic(falsim_process, args=("run", str(path)), rounds=3, warmup_rounds=1) in (0, 3)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_program_and_step_of_fal(benchmark: Any, path: Path) -> None:
    scenario = load_scenario(path)
    prices = prices_of(scenario)
    benchmark(lambda: run_step(Program(scenario, "fal"), prices))


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the tables of measurements are not here")
def test_validate_all_training_steps(benchmark: Any) -> None:
    tables = ("--steps", str(MEASURED / "training_steps.csv"), "--nanotron", str(MEASURED / "nanotron_h100.csv"))
    assert benchmark.pedantic(falsim_process, args=("validate", *tables), rounds=3) == 0
    assert benchmark.stats.stats.min < 5.0
