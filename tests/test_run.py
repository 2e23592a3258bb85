"""`falsim run` prints a table for people, JSON and CSV for programs, and exits with the documented codes."""

import csv
import io
import json
import math
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import falsim
from falsim.catalog.calibration import calibration_names
from falsim.cli import main
from falsim.engines.schedule import STEP_PARTS
from falsim.report.as_table import table_text
from falsim.report.bars import PARTS
from falsim.report.wording import Scale, compact, engineering
from falsim.scenario import load_scenario
from falsim.simulate import simulate

ROOT = Path(falsim.__file__).parents[1]
SMALL = """
name: small
model: {num_layers: 4, hidden_size: 1024, num_attention_heads: 16, vocab_size: 32000}
cluster: {gpu: h100-sxm, gpus_per_node: 2, intra_node: nvlink4-nvswitch}
parallelism: {tensor: 2}
training: {sequence_length: 1024, micro_batch_size: 2, global_batch_size: 4}
"""
PIPELINE = str(ROOT / "scenarios" / "gpt3_175b_64x_a100.yaml")
TOO_BIG = ["--set", "cluster.gpu={preset: h100-sxm, memory: 1 GiB}"]


def run(*arguments: str, text: str = SMALL) -> Result:
    return CliRunner().invoke(main, ["run", "-", *arguments], input=text)


def document(*arguments: str, text: str = SMALL) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(run(*arguments, "--format", "json", text=text).stdout)
    return data


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from numbers(below)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


# JSON


def test_json_has_the_promised_keys_in_order() -> None:
    data = document()
    assert list(data) == [
        "schema_version",
        "version",
        "name",
        "scenario_hash",
        "calibration",
        "seed",
        "world_size",
        "results",
        "break_even",
        "verdict",
        "measured",
        "notes",
    ]
    assert list(data["results"][0]) == [
        "architecture",
        "equation",
        "step_time_s",
        "step_time_interval_s",
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "mfu",
        "mfu_causal",
        "hfu",
        "speedup_over_gpt",
        "speedup_interval",
        "breakdown_s",
        "exposed_communication_s",
        "bubble_s",
        "tensor_communication_s",
        "collectives",
        "memory",
        "notes",
    ]
    assert list(data["break_even"]) == [
        "path",
        "architecture",
        "threshold",
        "current",
        "bandwidth",
        "pays_from",
        "always",
    ]
    assert data["calibration"] == {"name": "h100-sxm", "kind": "measured"}
    assert data["measured"] is None
    assert data["world_size"] == 2


def test_parts_add_up_to_the_step_and_to_the_peak() -> None:
    for each in json.loads(CliRunner().invoke(main, ["run", PIPELINE, "--format", "json"]).stdout)["results"]:
        assert sum(each["breakdown_s"].values()) == pytest.approx(each["step_time_s"], rel=1e-12)
        memory = dict(each["memory"])
        peak, capacity, fits = memory.pop("peak"), memory.pop("capacity"), memory.pop("fits")
        assert sum(memory.values()) == peak
        assert fits == (peak <= capacity)


def test_tokens_per_second_are_those_of_the_batch() -> None:
    for each in document()["results"]:
        assert each["tokens_per_s"] * each["step_time_s"] == pytest.approx(4 * 1024, rel=1e-12)
        assert each["tokens_per_s_per_gpu"] == pytest.approx(each["tokens_per_s"] / 2, rel=1e-12)


def test_numbers_are_finite_and_none_is_negative() -> None:
    for source in (SMALL, SMALL.replace("tensor: 2", "tensor: 1")):
        text = run("--format", "json", text=source).stdout
        assert all(math.isfinite(value) and value >= 0 for value in numbers(json.loads(text)))
        assert "-0.0" not in text
        assert text.endswith("}\n")


def test_equal_runs_give_equal_bytes_in_separate_processes() -> None:
    command = [sys.executable, "-m", "falsim", "run", PIPELINE, "--format", "json"]
    runs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout


def test_collectives_are_the_ones_of_the_equations() -> None:
    """Four blocks of 2 × 1024 × 1024 bf16 values: GPT 2L + 2L, FAL L + 1 forward and L + 2 backward, no_sync none."""
    blocks = {each["architecture"]: each["collectives"]["blocks"] for each in document()["results"]}
    message = 2 * 1024 * 1024 * 2
    for name, forward, backward in (("gpt", 8, 8), ("fal", 5, 6), ("fal_plus", 8, 8), ("parallel", 4, 4)):
        for direction, count in (("forward", forward), ("backward", backward)):
            total = {"count": count, "bytes": count * message}
            assert blocks[name][direction] == {**total, "all_reduce": total}, (name, direction)
    assert blocks["no_sync"]["forward"] == {"count": 0, "bytes": 0}


def test_counts_are_integers() -> None:
    for each in document("--set", "implementation.overlap=async_tp", "--set", "parallelism.sequence=true")["results"]:
        assert all(isinstance(value, int) for value in numbers(each["collectives"]))


def test_replayed_collectives_are_a_part_of_backward() -> None:
    blocks = document("--set", "training.recompute=full", "--architecture", "gpt")["results"][0]["collectives"][
        "blocks"
    ]
    assert blocks["recompute"]["count"] == 8
    assert blocks["backward"]["count"] == 16


def test_collectives_outside_the_blocks_are_counted_apart() -> None:
    """After the embedding one all-reduce, in the loss three, and one for the head's input gradient."""
    other = document("--architecture", "gpt")["results"][0]["collectives"]["other"]
    assert (other["forward"]["count"], other["backward"]["count"], other["count"]) == (4, 1, 5)
    assert other["bytes"] == other["forward"]["bytes"] + other["backward"]["bytes"]
    assert "expert" not in document()["results"][0]["collectives"]


def test_expert_collectives_are_shown_when_experts_are_parallel() -> None:
    text = """
model: mixtral-8x7b
cluster: {gpu: h200, gpus_per_node: 8, intra_node: nvlink4-nvswitch}
parallelism: {data: 8, expert: 8}
training: {sequence_length: 1024, global_batch_size: 8}
"""
    expert = document("--architecture", "gpt", text=text)["results"][0]["collectives"]["expert"]
    assert expert["all_to_all"]["count"] == 4 * 32  # two forward and two backward a layer


def test_without_tensor_parallelism_no_link_decides() -> None:
    text = SMALL.replace("tensor: 2", "tensor: 1")
    assert document(text=text)["break_even"] is None


def test_a_measured_value_stands_beside_its_prediction() -> None:
    measured = "measured: {step_time: 10 ms, source: my own run}\n"
    data = document(text=SMALL + measured)
    predicted = data["results"][0]["step_time_s"]
    assert data["measured"]["step_time_s"] == pytest.approx(0.01)
    assert data["measured"]["predicted"] == {"step_time_s": predicted}
    assert data["measured"]["predicted_over_measured"]["step_time_s"] == pytest.approx(predicted / 0.01)
    alone = document("--architecture", "fal", text=SMALL + measured)["measured"]
    assert alone["predicted"] == {"step_time_s": None}
    assert "measured: gpt 10.0" in run(text=SMALL + measured).stdout
    assert "× the measured" in run(text=SMALL + measured).stdout
    assert "gpt was not priced here" in run("--architecture", "fal", text=SMALL + measured).stdout


# CSV


def test_csv_has_one_row_per_architecture_and_the_numbers_of_the_json() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv").stdout)))
    results = document()["results"]
    assert [row["architecture"] for row in rows] == [each["architecture"] for each in results]
    for row, each in zip(rows, results, strict=True):
        assert float(row["step_time_s"]) == each["step_time_s"]
        assert float(row["breakdown_matmul_s"]) == each["breakdown_s"]["matmul"]
        assert int(row["memory_peak_bytes"]) == each["memory"]["peak"]
        assert row["fits"] == "true"
        assert [float(row["speedup_low"]), float(row["speedup_high"])] == each["speedup_interval"]


# Options and exit codes


def test_architecture_narrows_the_comparison_and_keeps_the_baseline_for_the_speed_up() -> None:
    data = document("--architecture", "ladder", "--architecture", "fal", "--architecture", "ladder")
    assert [each["architecture"] for each in data["results"]] == ["ladder", "fal"]
    assert data["results"][0] == next(each for each in document()["results"] if each["architecture"] == "ladder")


def test_set_changes_a_value() -> None:
    assert document("--set", "training.global_batch_size=8")["results"][0]["tokens_per_s"] > 0
    assert document("--set", "name=other")["name"] == "other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "parallelism.tensor=3"], "--set parallelism.tensor=3: error: parallelism.tensor: "),
        (["--set", "training.micro_batch=3"], "did you mean training.micro_batch_size?"),
        (["--set", "calibration=datashet"], "error: calibration: 'datashet' is not one of none, a100-pcie-80gb"),
        (["--architecture", "gtp"], "'gtp' is not one of 'gpt', 'fal'"),
        (["--format", "xml"], "'xml' is not one of 'table', 'json', 'csv'"),
        (["-o", "/absent/folder/out.json"], "error: cannot write /absent/folder/out.json"),
        (["-o", ""], "an empty file name"),
    ],
)
def test_wrong_input_is_exit_code_2_with_a_message(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_an_unknown_calibration_is_reported_at_its_line() -> None:
    result = run(text=SMALL + "calibration: h100\n")
    assert result.exit_code == 2
    names = ", ".join(("none", *calibration_names()))
    wrong = f"'h100' is not one of {names} (did you mean 'h100-sxm'?)"
    assert result.stderr == f"<stdin>:7:14: error: calibration: {wrong}\n"


@pytest.mark.parametrize("style", ["table", "json", "csv"])
def test_what_does_not_fit_is_exit_code_3_after_the_whole_output(style: str) -> None:
    result = run("--architecture", "gpt", "--format", style, *TOO_BIG)
    assert result.exit_code == 3
    assert result.stderr.startswith("does not fit in memory: gpt needs ")
    assert "one GPU has 1 GiB" in result.stderr
    complete = {"table": "does not fit in memory", "json": '"fits": false', "csv": ",false\n"}[style]
    assert complete in " ".join(result.stdout.split()) + "\n" if style == "table" else complete in result.stdout


def test_output_goes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    result = run("--format", "json", "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(path.read_text()) == document()


@pytest.mark.parametrize("spelling", ["own.yaml", "linked.yaml"])
def test_the_scenario_is_never_replaced_by_its_result(tmp_path: Path, spelling: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(SMALL)
    (tmp_path / "linked.yaml").symlink_to(own)
    result = CliRunner().invoke(main, ["run", str(own), "-o", str(tmp_path / spelling)])
    assert result.exit_code == 2
    assert "it is the scenario itself" in result.stderr
    command = [sys.executable, "-m", "falsim", "run", "-", "-o", str(tmp_path / spelling)]
    with own.open() as text:
        assert subprocess.run(command, cwd=ROOT, stdin=text, stderr=subprocess.DEVNULL, check=False).returncode == 2
    assert own.read_text() == SMALL


# The table


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("source", [SMALL, PIPELINE])
def test_the_table_fits_the_terminal(width: int, source: str) -> None:
    result = simulate(load_scenario(source))
    known = replace(result.results[0], speedup_interval=(1.18, 1.27))
    text = table_text(replace(result, results=(known, *result.results[1:])), "Verdict.", width, color=False)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    assert "1.18–1.27×" in text


@pytest.mark.parametrize(
    "change",
    [
        ["cluster.intra_node.bandwidth=1 B/s"],
        ["cluster.gpu.peak_flops.bf16=1 FLOP/s", "cluster.gpu.memory_bandwidth=1 B/s", "cluster.gpu.memory=1000 PB"],
        ["cluster.gpu.peak_flops.bf16=1000 EFLOP/s", "cluster.gpu.memory_bandwidth=1000 PB/s"],
    ],
)
@pytest.mark.parametrize("source", [SMALL, PIPELINE])
def test_a_table_of_extremes_keeps_every_number_whole(change: list[str], source: str) -> None:
    text = table_text(simulate(load_scenario(source, change)), "Verdict.", 80, color=False)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_sequence_parallelism_and_zero_are_shown_where_they_do_something() -> None:
    alone = SMALL.replace("tensor: 2", "tensor: 1, sequence: true, zero: 1")
    assert "sequence parallel," not in run(text=alone).stdout
    assert "note: sequence parallelism needs tensor > 1; ignored" in run(text=alone).stdout
    assert "DP2, ZeRO-1" in run(text=alone).stdout
    both = SMALL.replace("tensor: 2", "tensor: 2, sequence: true, zero: 1")
    assert "TP2, sequence parallel\n" in run(text=both).stdout


def test_the_table_shows_the_bubble_only_with_a_pipeline() -> None:
    assert "bubble" not in run().stdout
    assert "bubble" in CliRunner().invoke(main, ["run", PIPELINE]).stdout


def test_the_heading_says_where_the_constants_come_from() -> None:
    assert "kernels measured, the rest from datasheets; 90%" in " ".join(run().stdout.split())
    assert "datasheet only; 90% intervals: step times -" in run("--set", "calibration=none").stdout


def test_bars_share_one_scale_and_every_part_has_its_own_glyph() -> None:
    assert set(PARTS) == set(STEP_PARTS)
    assert len({part.glyph for part in PARTS.values()}) == len(PARTS)
    result = simulate(load_scenario(SMALL))
    glyphs = "".join(part.glyph for part in PARTS.values())
    lines = table_text(result, "", 120, color=False).splitlines()
    lengths = {
        line.split()[0]: sum(line[line.index("  ") :].count(glyph) for glyph in glyphs)
        for line in lines
        if "█" in line and line.split()[0] in {each.architecture for each in result.results}
    }
    longest = max(result.results, key=lambda each: each.step_time_s)
    for each in result.results:
        share = each.step_time_s / longest.step_time_s
        assert lengths[each.architecture] == pytest.approx(share * lengths[longest.architecture], abs=1)


def test_a_pipe_gets_no_escape_codes() -> None:
    command = [sys.executable, "-m", "falsim", "run", "-"]
    done = subprocess.run(command, cwd=ROOT, input=SMALL, capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert "\x1b" not in run().stdout


@pytest.mark.parametrize(
    ("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_colours_unless_told_otherwise(environment: dict[str, str], colored: bool) -> None:
    """Run in a pseudo-terminal, so that stdout is one."""
    code, output, _ = run_in_terminal(**environment)
    assert code == 0
    assert (b"\x1b[" in output) == colored


def test_a_terminal_is_told_once_what_does_not_fit() -> None:
    code, output, errors = run_in_terminal(*TOO_BIG)
    assert code == 3
    assert b"othing fits in memory" in output
    assert errors == b""


def run_in_terminal(*arguments: str, **environment: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of `falsim run` with a terminal of 80 columns on stdout."""
    outside = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "falsim", "run", "-", *arguments]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=outside | {"TERM": "xterm", "COLUMNS": "80"} | environment,
    )
    os.close(theirs)
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdin.write(SMALL.encode())
    child.stdin.close()
    output = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux reports the other end's closing so
            break
        if not piece:
            break
        output += piece
    os.close(ours)
    errors = child.stderr.read()
    child.stderr.close()
    return child.wait(), output, errors


def test_an_ascii_terminal_still_gets_its_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "falsim", "run", "-"],
        cwd=ROOT,
        input=SMALL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert "gpt" in done.stdout


def test_times_of_one_table_share_a_unit_and_four_significant_digits() -> None:
    assert Scale.of([0.4539, 0.3521]).with_unit(0.4539) == "453.9 ms"
    assert Scale.of([15.11, 13.74]).with_unit(15.113672) == "15.11 s"
    assert Scale.of([7.03, 0.8253]).with_unit(7.0316) == "7031.6 ms"


def test_times_too_long_for_a_column_have_an_exponent() -> None:
    scale = Scale.of([1.2346e6, 0.5])
    assert [scale.with_unit(seconds) for seconds in (1.2346e6, 0.5, 12.345, 0.0)] == [
        "1.235e6 s",
        "0.5000 s",
        "12.35 s" if f"{12.345:.3e}" == "1.235e+01" else "12.34 s",
        "0 s",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.0, "1.23e6"), (123456.0, "123e3"), (1234.0, "1234"), (9.71e-8, "97.1e-9"), (9.999e-10, "1.00e-9")],
)
def test_an_exponent_is_a_multiple_of_three(value: float, text: str) -> None:
    assert engineering(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.905, "0.905"),
        (905.2, "905"),
        (1165.0, "1.17k"),
        (999.9, "1.00k"),
        (3.39e6, "3.39M"),
        (9.71e-8, "97.1e-9"),
        (2e15, "2.00e15"),
    ],
)
def test_counts_are_compact(value: float, text: str) -> None:
    assert compact(value) == text
