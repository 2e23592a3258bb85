"""Fitting kernel constants: known ones come back from noisy tables, and the shipped files from their own table."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest
import yaml
from click.testing import CliRunner

from falsim import catalog
from falsim.calibration.fit import calibrations_of
from falsim.calibration.kernels import COLUMNS
from falsim.catalog.calibration import Constant, calibration, calibration_names, shipped_for, with_constants
from falsim.cli import main
from falsim.costs.device import gemm_seconds
from falsim.costs.prices import prices_of
from falsim.dataflow import Elementwise, Gemm
from falsim.scenario import load_scenario

TABLE = Path(__file__).resolve().parents[2] / "shared" / "measured" / "kernels.csv"
TRUTH = {"matmul_efficiency": 0.7, "gemm_depth": 300.0, "memory_efficiency": 0.6, "kernel_launch": 5e-6}
A100 = {"gpu": "A100-SXM-80GB", "dtype": "fp16"}
SCENARIO = """
model: gpt2-124m
cluster: {gpu: a100-sxm-80gb}
training: {sequence_length: 1024, global_batch_size: 1, precision: fp16}
"""


@pytest.fixture
def table(tmp_path: Path) -> Callable[[float], Path]:
    """A kernel table of an A100 whose constants are TRUTH, with log-normal noise of the given size."""

    def write(noise: float) -> Path:
        constants = {name: Constant(value, 0.0, 0, "measured", "") for name, value in TRUTH.items()}
        prices = prices_of(load_scenario(SCENARIO), constants=with_constants(calibration(), constants))
        random = Random(3)
        path = tmp_path / "kernels.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            sizes = (128, 512, 1000, 2048, 4096, 8192)
            for m, n, k in itertools.product(sizes, sizes, (64, 256, 1024, 4096)):
                seconds = float(prices.seconds(Gemm(float(m), float(n), float(k))))
                time = seconds * random.lognormvariate(0, noise) * 1e6
                writer.writerow(A100 | {"kernel": "gemm", "m": m, "n": n, "k": k, "time_us": time, "source": "a/b one"})
            for m in sizes:
                seconds = float(prices.seconds(Elementwise(6.0 * m * 8192)))
                time = seconds * random.lognormvariate(0, noise) * 1e6
                row = {"kernel": "residual add", "m": m, "n": 8192, "time_us": time, "source": "c/d two"}
                writer.writerow(A100 | row)
        return path

    return write


def fitted(path: Path) -> dict[str, float]:
    text = calibrations_of(str(path))["a100-sxm-80gb"]
    assert text is not None
    return {name: constant["value"] for name, constant in yaml.safe_load(text)["constants"].items()}


@pytest.mark.parametrize(("noise", "within"), [(0.0, 0.005), (0.05, 0.06)])
def test_known_constants_come_back_from_a_table(table: Callable[[float], Path], noise: float, within: float) -> None:
    assert fitted(table(noise)) == pytest.approx(TRUTH, rel=within)


def test_the_spread_is_the_scatter_of_the_table(table: Callable[[float], Path]) -> None:
    text = calibrations_of(str(table(0.05)))["a100-sxm-80gb"]
    assert text is not None
    constants = yaml.safe_load(text)["constants"]
    assert constants["matmul_efficiency"]["spread"] == pytest.approx(0.05, rel=0.2)
    assert constants["matmul_efficiency"]["source"] == "a/b; c/d"
    assert constants["matmul_efficiency"]["rows"] == 6 * 6 * 4 + 6


def test_the_command_writes_one_file_per_gpu_and_the_same_again(table: Callable[[float], Path], tmp_path: Path) -> None:
    arguments = ["calibrate", "fit", "--kernels", str(table(0.05)), "-o", str(tmp_path / "out")]
    first = CliRunner().invoke(main, arguments)
    assert first.exit_code == 0
    path = tmp_path / "out" / "a100-sxm-80gb.yaml"
    assert first.stdout == f"{path}\n"
    text = path.read_bytes()
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert path.read_bytes() == text


def test_too_few_rows_fit_nothing_and_an_unknown_gpu_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerow(A100 | {"kernel": "gemm", "m": 4096, "n": 4096, "k": 4096, "tflops": 250})
    assert calibrations_of(str(path)) == {"a100-sxm-80gb": None}
    wrong = CliRunner().invoke(
        main, ["calibrate", "fit", "--kernels", str(path), "--gpu", "a1000", "-o", str(tmp_path)]
    )
    assert wrong.exit_code == 2


def test_a_foreign_table_is_an_error_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "foreign.csv"
    path.write_text("a,b\n1,2\n")
    result = CliRunner().invoke(main, ["calibrate", "fit", "--kernels", str(path), "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{path}:1" in result.stderr


@pytest.mark.skipif(not TABLE.is_file(), reason="the table of kernels is not here")
def test_the_shipped_calibrations_are_what_the_command_writes() -> None:
    written = {name: text for name, text in calibrations_of(str(TABLE)).items() if text is not None}
    assert set(written) == set(calibration_names()) - {"datasheet"}
    for name, text in written.items():
        assert (files("falsim.catalog") / "calibrations" / f"{name}.yaml").read_text(encoding="utf-8") == text


def test_a_calibration_replaces_what_it_measured_and_nothing_else() -> None:
    datasheet, a100 = calibration(), calibration("a100-sxm-80gb")
    assert a100.kind == "measured"
    assert a100.protocols == datasheet.protocols
    assert a100.spreads["gemm"] == a100.constants["matmul_efficiency"].spread != datasheet.spreads["gemm"]
    assert a100.spreads["host"] == datasheet.spreads["host"]
    prices = prices_of(load_scenario(SCENARIO))
    assert prices.device.matmul_efficiency == a100.constants["matmul_efficiency"].value
    work = Gemm(4096.0, 4096.0, 4096.0)
    assert prices.seconds(work) == gemm_seconds(work, prices.device, a100)
    assert prices.seconds(work) != gemm_seconds(work, prices.device, replace(a100, gemm_depth=datasheet.gemm_depth))


def test_boards_of_one_chip_share_its_measurements_and_others_have_none() -> None:
    assert shipped_for(catalog.gpu("a100-sxm-40gb")) == "a100-sxm-80gb"
    assert shipped_for(catalog.gpu("h200")) == "h100-sxm"
    assert shipped_for(catalog.gpu("rtx-4090")) == "datasheet"


def test_without_scipy_or_a_folder_to_write_the_command_says_so(
    table: Callable[[float], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(table(0.0))
    blocked = tmp_path / "file"
    blocked.write_text("")
    no_folder = CliRunner().invoke(main, ["calibrate", "fit", "--kernels", path, "-o", str(blocked / "folder")])
    assert no_folder.exit_code == 2
    assert "cannot write to" in no_folder.stderr
    monkeypatch.setattr("falsim.calibration.fit.find_spec", lambda name: None)
    no_scipy = CliRunner().invoke(main, ["calibrate", "fit", "--kernels", path, "-o", str(tmp_path / "out")])
    assert no_scipy.exit_code == 2
    assert "falsim[calibration]" in no_scipy.stderr
    assert not (tmp_path / "out").exists()
