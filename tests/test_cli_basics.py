"""The command line starts light, answers on stdout, complains on stderr, and exits with the documented codes."""

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from click.testing import CliRunner, Result

import falsim
from falsim.cli import main
from falsim.cli.output import OutputError, write_output
from falsim.scenario import load_scenario
from falsim.scenario.written import (
    ClusterFields,
    GpuFields,
    InterNodeFields,
    IntraNodeFields,
    MeasuredFields,
    ModelFields,
    ScenarioFile,
)

ROOT = Path(falsim.__file__).parents[1]
SCENARIO = """
model: gpt2
cluster: {gpu: h100-sxm}
training: {sequence_length: 1024, global_batch_size: 8}
"""


def falsim_command(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return str(path)


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom falsim.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('numpy', 'pandas', 'torch', 'networkx', 'plotly', 'simpy', 'rich', 'pydantic', 'yaml')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_loading_a_scenario_imports_no_numerics() -> None:
    program = (
        "import sys, falsim.scenario\n"
        "print([name for name in sys.modules if name in ('numpy', 'pandas', 'torch', 'networkx', 'plotly', 'rich')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_lists_the_commands_with_a_line_each() -> None:
    result = falsim_command("--help")
    assert result.exit_code == 0
    lines = result.stdout.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in lines if line[2:3].strip()] == [
        "run",
        "check",
        "init",
        "schema",
        "validate",
        "calibrate",
        "catalog",
    ]


def test_version_is_the_packages() -> None:
    assert falsim_command("--version").stdout == f"falsim, version {falsim.__version__}\n"


def test_python_m_falsim_is_the_same_program() -> None:
    command = [sys.executable, "-m", "falsim", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"falsim, version {falsim.__version__}\n"


def test_an_unknown_command_is_a_usage_error_with_the_closest_name() -> None:
    result = falsim_command("chek")
    assert result.exit_code == 2
    assert "\nerror: No such command 'chek' (did you mean 'check'?)" in result.stderr


def test_check_says_what_a_valid_scenario_is(scenario: str) -> None:
    result = falsim_command("check", scenario)
    assert result.exit_code == 0
    assert result.stdout.startswith("ok: small: 1 GPU, 1 × 1 NVIDIA H100")
    assert result.stderr == ""


def test_check_reports_every_problem_of_every_file_on_stderr(scenario: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SCENARIO.replace("gpt2", "gpt2-124n") + "nmae: x\n")
    result = falsim_command("check", scenario, str(wrong), str(tmp_path / "absent.yaml"))
    assert result.exit_code == 2
    assert result.stdout.startswith("ok: small: ")
    assert result.stdout.count("\n") == 1
    lines = result.stderr.splitlines()
    assert [line.partition(": error:")[0] for line in lines] == [
        f"{wrong}:2:8",
        f"{wrong}:5:1",
        f"{tmp_path}/absent.yaml",
    ]


def test_check_reads_standard_input_and_overrides() -> None:
    result = CliRunner().invoke(main, ["check", "-", "--set", "cluster.nodes=x"], input=SCENARIO)
    assert result.exit_code == 2
    assert result.stderr.startswith("--set cluster.nodes=x: error: cluster.nodes: 'x' is not a whole number")


def test_check_tells_what_was_assumed_unless_quiet(tmp_path: Path) -> None:
    path = tmp_path / "inline.yaml"
    path.write_text(SCENARIO.replace("gpt2", "{hidden_size: 64, num_layers: 1, num_attention_heads: 4}"))
    assert falsim_command("check", str(path)).stderr == "note: model.vocab_size is not given: 50257, GPT-2's\n"
    assert falsim_command("-q", "check", str(path)).stderr == ""


def test_an_internal_error_is_one_line_and_code_70(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("falsim.cli.check.load_scenario", fail)
    result = falsim_command("check", scenario)
    assert result.exit_code == 70
    [line] = result.stderr.splitlines()
    assert line.startswith("internal error: ZeroDivisionError: by zero")
    assert "falsim -v" in line
    verbose = falsim_command("-v", "check", scenario)
    assert verbose.exit_code == 70
    assert "Traceback (most recent call last)" in verbose.stderr


def test_ctrl_c_is_130(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("falsim.cli.check.load_scenario", interrupt)
    assert falsim_command("check", scenario).exit_code == 130


@pytest.mark.parametrize("module", ["click", "pydantic", "numpy"])
def test_ctrl_c_while_modules_are_imported_is_130_without_a_traceback(module: str, scenario: str) -> None:
    program = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from falsim.cli import main\n"
        f"main(['run', {scenario!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr in ("", "interrupted\n")


WRITING = [["--version"], ["--help"], ["run", "--help"], ["schema"], ["catalog", "list"], ["run"], ["check"]]


def writing(arguments: list[str], scenario: str) -> list[str]:
    """A command line that writes to stdout."""
    file = [scenario] if arguments in (["run"], ["check"]) else []
    return [sys.executable, "-m", "falsim", *arguments, *file]


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_closed_pipe_ends_quietly(arguments: list[str], scenario: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end) as closed:
        command = writing(arguments, scenario)
        done = subprocess.run(command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_output_that_cannot_be_written_is_exit_code_2(arguments: list[str], scenario: str) -> None:
    command = shlex.join(writing(arguments, scenario))
    for redirection, reason in ((">&-", "it is closed"), (">/dev/full", "No space left on device")):
        done = subprocess.run(
            f"{command} {redirection}", cwd=ROOT, shell=True, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (2, f"error: cannot write to standard output: {reason}\n")


def test_a_closed_input_is_exit_code_2() -> None:
    command = f"{shlex.quote(sys.executable)} -m falsim run - <&-"
    done = subprocess.run(command, cwd=ROOT, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "<stdin>: error: cannot read it: standard input is closed\n")


@pytest.mark.parametrize("arguments", [["catalog", "list", "links"], ["schema"], ["init", "-o", "-"]], ids=" ".join)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_of_few_characters_gets_what_it_can_show(arguments: list[str], encoding: str) -> None:
    command = [sys.executable, "-m", "falsim", *arguments]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, env=environment)
    assert b"bandwidth" in done.stdout


@pytest.mark.parametrize("command", [["init", "-o", ""], ["schema", "-o", ""], ["check", ""]], ids=" ".join)
def test_an_empty_file_name_is_called_that(command: list[str]) -> None:
    result = falsim_command(*command)
    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert "an empty file name" in result.stderr


def test_init_writes_a_scenario_that_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    result = falsim_command("init", "-o", str(path))
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"wrote {path}" in result.stderr
    assert load_scenario(path).world_size == 8


def test_init_replaces_a_file_only_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("mine")
    result = falsim_command("init", "-o", str(path))
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert path.read_text() == "mine"
    assert falsim_command("init", "-o", str(path), "--force").exit_code == 0
    assert path.read_text() != "mine"


def test_init_shows_every_field_a_scenario_may_have() -> None:
    text = falsim_command("init", "-o", "-").stdout
    sections = (ScenarioFile, ModelFields, ClusterFields, GpuFields, IntraNodeFields, InterNodeFields, MeasuredFields)
    names = {name for section in sections for name in section.model_fields}
    for shared in ("parallelism", "training", "implementation"):
        annotation: Any = ScenarioFile.model_fields[shared].annotation
        names |= set(annotation.model_fields)
    assert [name for name in sorted(names) if name not in text] == []


def test_the_schema_is_valid_and_accepts_what_init_writes() -> None:
    schema = json.loads(falsim_command("schema").stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(falsim_command("init", "-o", "-").stdout))


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpu": "h100-sxm", "gpus_per_nod": 8},
        {"gpu": {"preset": "h100-sxm", "memory": 80}},
        {"gpu": {"preset": "h100-sxm", "memory": "80 Gb"}},
        {"gpu": "h100-sxm", "nodes": 0},
        {"gpu": "h100-sxm", "intra_node": {"topology": "ring"}},
        {"gpus_per_node": 8},
    ],
)
def test_the_schema_refuses_what_loading_refuses(wrong: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(falsim_command("schema").stdout))
    scenario = yaml.safe_load(SCENARIO)
    assert validator.is_valid(scenario)
    assert not validator.is_valid(scenario | {"cluster": wrong})


def test_output_replaces_a_file_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    path.chmod(0o640)
    write_output("new", path)
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match="No space left"):
        write_output("new", path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_output_to_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    result = falsim_command("schema", "-o", str(tmp_path / "absent" / "schema.json"))
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_output_to_a_device_does_not_replace_it() -> None:
    write_output("text", "/dev/null")
    assert not Path("/dev/null").is_file()
