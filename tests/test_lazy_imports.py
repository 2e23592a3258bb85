"""A command imports what it needs and nothing heavier, so that it answers at once."""

import subprocess
import sys
from pathlib import Path

import pytest

import falsim

ROOT = Path(falsim.__file__).parents[1]
SCENARIO = str(ROOT / "scenarios" / "gpt2_1.5b_4x_rtx4090.yaml")
HEAVY = ("torch", "streamlit", "pandas", "networkx", "simpy", "plotly", "scipy", "dask", "joblib", "asyncio")


def imported_by(*arguments: str) -> set[str]:
    """The top-level modules that `falsim ARGUMENTS` has imported when it ends."""
    program = (
        "import sys\nfrom falsim.cli import main\n"
        f"try: main({list(arguments)!r})\nexcept SystemExit: pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("style", ["table", "json", "csv"])
def test_run_imports_numpy_and_none_of_the_heavy_libraries(style: str) -> None:
    modules = imported_by("run", SCENARIO, "--format", style)
    assert "numpy" in modules
    assert modules.isdisjoint(HEAVY)


def test_only_the_table_imports_rich() -> None:
    assert "rich" in imported_by("run", SCENARIO)
    assert "rich" not in imported_by("run", SCENARIO, "--format", "json")


def test_help_imports_neither_numerics_nor_pydantic() -> None:
    assert imported_by("--help").isdisjoint({*HEAVY, "numpy", "rich", "pydantic", "yaml"})


def test_an_invalid_scenario_is_refused_without_numerics() -> None:
    assert imported_by("run", SCENARIO, "--set", "parallelism.tensor=3").isdisjoint({*HEAVY, "numpy", "rich"})


def test_help_of_run_imports_no_numerics() -> None:
    assert imported_by("run", "--help").isdisjoint({*HEAVY, "numpy", "rich"})
