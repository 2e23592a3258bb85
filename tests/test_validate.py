"""`falsim validate` reads tables as they are, predicts every row it can, and counts the errors right."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import falsim
from falsim import catalog
from falsim.calibration import collectives, defaults, evaluate, kernels, nanotron, scores, steps
from falsim.calibration.tables import Row, read_table
from falsim.calibration.validate import step_times, validate
from falsim.cli import main
from falsim.costs.prices import prices_of
from falsim.engines.schedule import run_step
from falsim.program import Program
from falsim.yaml_source import SourceError

SHARED = Path(falsim.__file__).parents[2] / "shared" / "measured"
needs_tables = pytest.mark.skipif(not SHARED.is_dir(), reason="the tables of measurements are not here")

STEP = {
    "id": "mine-0001",
    "gpu": "A100-SXM-80GB",
    "n_gpus": "8",
    "model_name": "GPT",
    "layers": "12",
    "hidden": "1024",
    "heads": "16",
    "vocab": "50257",
    "seq_len": "1024",
    "global_batch_seqs": "16",
    "micro_batch_seqs": "2",
    "tp": "2",
    "sp": "False",
    "pp": "2",
    "dp": "2",
    "recompute": "full",
    "precision": "fp16 mixed",
    "attention_impl": "unfused",
    "metric": "iteration_s",
    "value": "0.5",
}
RUN = {
    "id": "nanotron-0001",
    "gpu": "H100-SXM-80GB",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "layers": "16",
    "hidden": "2048",
    "heads": "32",
    "kv_heads": "32",
    "ffn_hidden": "8192",
    "mlp_type": "swiglu",
    "vocab": "131072",
    "tied_embeddings": "True",
    "seq_len": "4096",
    "micro_batch_seqs": "2",
    "micro_batches": "4",
    "tp": "2",
    "sp": "True",
    "pp": "2",
    "dp": "4",
    "zero": "0",
    "precision": "bf16 (fp32 gradient accumulation)",
    "recompute": "none",
    "outcome": "ok",
    "tokens_per_s_per_gpu": "10000",
    "memory_allocated_GB": "10",
    "memory_reserved_GB": "20",
    "all_reduce_busbw_GBps": "200",
}


def table(path: Path, columns: dict[str, str], *rows: dict[str, str]) -> Path:
    """A CSV file of these rows; columns a row does not name are blank."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def step_table(path: Path, *rows: dict[str, str]) -> Path:
    return table(path / "steps.csv", steps.COLUMNS, *(STEP | row for row in rows))


def run_table(path: Path, *rows: dict[str, str]) -> Path:
    return table(path / "runs.csv", nanotron.COLUMNS, *(RUN | row for row in rows))


def step_case(**changes: str) -> steps.Case:
    case = steps.case_of(step_row(**changes))
    assert isinstance(case, steps.Case), case
    return case


def step_row(**changes: str) -> Row:
    values = {}
    for column, kind in steps.COLUMNS.items():
        cell = (STEP | changes).get(column, "")
        convert = {"text": str, "count": int, "number": float, "switch": lambda text: text == "True"}[kind]
        values[column] = convert(cell) if cell else None
    return Row("steps.csv", 2, values)


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["validate", *map(str, arguments)])


# Statistics


def test_errors_are_those_counted_by_hand() -> None:
    found = scores.accuracy(np.array([1.1, 1.8, 4.0]), np.array([1.0, 2.0, 4.0]))
    assert found.rows == 3
    assert found.mape == pytest.approx((10 + 10 + 0) / 3)
    assert found.median_ape == pytest.approx(10.0)
    assert found.bias == pytest.approx(0.0, abs=1e-9)
    # log 1, 2, 4 have the mean log 2 and the variance sum 2·(log 2)²; residuals are log 1.1, log 0.9, 0
    residual = math.log(1.1) ** 2 + math.log(0.9) ** 2
    assert found.r2_log == pytest.approx(1 - residual / (2 * math.log(2) ** 2))


def test_no_pairs_have_no_errors_and_one_pair_no_r2() -> None:
    assert scores.accuracy(np.array([]), np.array([])) == scores.Accuracy(0, None, None, None, None)
    assert scores.accuracy(np.array([2.0]), np.array([1.0])).r2_log is None


def test_spearman_is_one_for_the_same_order_and_shares_ranks_of_ties() -> None:
    up = np.array([1.0, 2.0, 3.0, 4.0])
    assert scores.spearman(up, up**3) == pytest.approx(1.0)
    assert scores.spearman(up, -up) == pytest.approx(-1.0)
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 · 5)
    assert scores.spearman(np.array([1.0, 2.0, 2.0, 3.0]), up) == pytest.approx(4.5 / math.sqrt(22.5))


def test_ranking_counts_the_best_configuration_and_what_the_wrong_one_costs() -> None:
    right = (np.array([3.0, 2.0, 1.0]), np.array([30.0, 20.0, 10.0]))
    second = (np.array([2.0, 3.0, 1.0]), np.array([100.0, 90.0, 10.0]))
    small = (np.array([1.0, 2.0]), np.array([2.0, 1.0]))
    found = scores.ranking([right, second, small])
    assert (found.groups, found.top_1, found.top_3) == (2, 50.0, 100.0)
    assert found.median_regret == pytest.approx((0 + 10) / 2)
    assert found.spearman == pytest.approx((1.0 + 0.5) / 2)


def test_out_of_memory_is_scored_as_a_detector() -> None:
    predicted = [True, True, False, False, False]
    happened = [True, False, True, False, False]
    found = scores.out_of_memory(predicted, happened, {})
    assert (found.accuracy, found.precision, found.recall) == (60.0, 50.0, 50.0)


# Rows


def test_a_row_becomes_the_scenario_it_describes() -> None:
    scenario = step_case().scenario
    assert (scenario.parallelism.tensor, scenario.parallelism.pipeline, scenario.parallelism.data) == (2, 2, 2)
    assert (scenario.training.precision, scenario.training.attention, scenario.training.recompute) == (
        "fp16",
        "unfused",
        "full",
    )
    assert scenario.num_micro_batches == 4
    assert scenario.cluster.gpu == catalog.gpu("a100-sxm-80gb")
    assert scenario.model.intermediate_size == 4096


def test_what_is_taken_for_blanks_is_said() -> None:
    case = step_case(micro_batch_seqs="", attention_impl="")
    assert {"micro_batch_seqs: 1", "attention_impl: flash", "ffn_hidden: 4096"} <= set(case.taken)


def test_a_set_has_its_own_defaults() -> None:
    assert step_case(id="vtrainS-0001", attention_impl="").scenario.training.attention == "unfused"
    assert step_case(id="vtrainS-0001").scenario.model.vocab_size == 50432  # to a multiple of 128 x TP2
    assert step_case(id="simuB200-1", gpu="B200-SXM").scenario.implementation.overlap == "none"
    assert step_case(id="megascale-1", model_name="175B MegaScale").architecture == "parallel"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "TPU v4"}, "GPU 'TPU v4' is not in the catalogue"),
        ({"layers": ""}, "layers is not given"),
        ({"dp": "4"}, "the degrees do not multiply to the number of GPUs"),
        ({"global_batch_seqs": "6"}, "the global batch is not a multiple of replicas x micro-batch"),
        ({"layers": "13", "pp": "8", "tp": "1", "dp": "1"}, "layers do not fill the pipeline stages equally"),
        ({"hidden": "1000000000", "heads": "16"}, "a width or length is above 20,000,000"),
        ({"n_gpus": "8000000", "dp": "2000000"}, "the number of GPUs is above 200,000"),
        ({"global_batch_seqs": "999999999999"}, "the global batch is above 10,000,000"),
        ({"layers": "4096", "pp": "4096", "n_gpus": "16384"}, "the number of pipeline chunks is above 512"),
        ({"metric": "samples_s"}, "metric 'samples_s' is not predicted"),
        ({"precision": "int4"}, "precision 'int4' is not a known kind"),
        ({"mlp_type": "moe"}, "an MLP of kind 'moe' is not in the model"),
        ({"precision": "NVFP4"}, "the GPU has no fp4 rate"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(changes: dict[str, str], reason: str) -> None:
    assert steps.case_of(step_row(**changes)) == steps.Skipped("mine-0001", "mine", reason)


def test_every_metric_of_one_run_stands_for_the_same_time() -> None:
    scenario = step_case().scenario
    seconds = 0.5
    tokens = 16 * 1024
    # Megatron's closed form: 24·T·h²·(1 + s/6h) forward per layer and 2·T·h·V for the head, three times
    flops = 3 * (12 * 24 * tokens * 1024**2 * (1 + 1024 / 6144) + 2 * tokens * 1024 * 50257)
    rates = {
        "iteration_s": seconds,
        "tokens_per_s_per_gpu": tokens / seconds / 8,
        "tflops_per_gpu": flops / seconds / 8 / 1e12,
        "mfu": flops / seconds / 8 / 312e12,
    }
    cases = [step_case(metric=metric, value=repr(value)) for metric, value in rates.items()]
    predicted, measured = step_times(cases)
    assert measured == pytest.approx([seconds] * 4)
    exact = float(run_step(Program(scenario, "gpt"), prices_of(scenario)).seconds)
    assert predicted == pytest.approx([exact] * 4)


def test_hardware_flops_count_the_recomputed_forward_pass() -> None:
    model, hardware = (step_case(id=name, metric="tflops_per_gpu", value="100") for name in ("seqsel-1", "sc21-1"))
    (_, _), (plain, recomputed) = step_times([model, hardware])
    assert 1.25 < recomputed / plain < 4 / 3  # the head is not computed again


def test_one_layer_forward_and_backward_is_priced_without_embedding_and_head() -> None:
    alone = {"layers": "1", "pp": "1", "dp": "4", "recompute": "none"}
    forward, backward, recomputed = (
        step_case(**{**alone, "metric": metric, "recompute": recompute})
        for metric, recompute in (("layer_fwd_s", "none"), ("layer_bwd_s", "none"), ("layer_bwd_s", "full"))
    )
    larger = step_case(**{**alone, "metric": "layer_fwd_s", "vocab": "500000"})
    predicted, _ = step_times([forward, backward, recomputed, larger])
    assert predicted[3] == pytest.approx(predicted[0])
    assert predicted[0] < predicted[1]
    assert predicted[2] == pytest.approx(predicted[0] + predicted[1], rel=0.2)


def test_a_long_pipeline_drawn_on_from_two_rounds_is_the_placed_one() -> None:
    for schedule in ({"pp_interleave": "1"}, {"pp_interleave": "3"}):
        case = step_case(pp="4", dp="1", global_batch_seqs="128", **schedule)
        exact = float(run_step(Program(case.scenario, "gpt"), prices_of(case.scenario)).seconds)
        assert evaluate.steps([case.scenario]).seconds[0] == pytest.approx(exact, rel=1e-3)


def test_arrays_and_single_rows_agree() -> None:
    cases = [step_case(hidden=str(64 * n), heads="16", global_batch_seqs=str(8 * n)) for n in (8, 16, 24, 32)]
    together, _ = step_times(cases)
    alone = [step_times([case])[0][0] for case in cases]
    assert together == pytest.approx(alone, rel=1e-12)


# nanotron


def test_nanotron_memory_is_in_gib_and_time_follows_from_throughput(tmp_path: Path) -> None:
    [row] = read_table(run_table(tmp_path, {}), nanotron.COLUMNS, nanotron.REQUIRED)
    case = nanotron.case_of(row)
    assert isinstance(case, nanotron.Case)
    assert case.allocated == 10 * 2**30
    assert case.step_s == pytest.approx(4 * 2 * 4 * 4096 / (10000 * 16))


def test_a_slow_network_of_a_run_slows_its_prediction_whatever_its_throughput(tmp_path: Path) -> None:
    rows = ({"all_reduce_busbw_GBps": "10"}, {"id": "nanotron-2"}, {"id": "nanotron-3", "tokens_per_s_per_gpu": "1"})
    pairs = validate(nanotron_file=run_table(tmp_path, *rows)).pairs
    slow, healthy, same = (pair.predicted for pair in pairs)
    assert slow > 1.2 * healthy
    assert same == healthy


def test_runs_out_of_memory_count_as_outcomes_and_not_as_times(tmp_path: Path) -> None:
    huge = {
        **dict.fromkeys(("tokens_per_s_per_gpu", "memory_allocated_GB", "memory_reserved_GB"), ""),
        "id": "nanotron-2",
        "micro_batch_seqs": "128",
        "outcome": "oom",
        "tied_embeddings": "",
    }
    found = validate(nanotron_file=run_table(tmp_path, {}, huge))
    assert (found.sets["nanotron"].rows, found.sets["nanotron"].scored) == (1, 1)
    assert found.out_of_memory is not None
    assert (found.out_of_memory.rows, found.out_of_memory.recall) == (2, 100.0)


# Collectives and kernels


def test_collectives_compare_seconds_from_bandwidths_too(tmp_path: Path) -> None:
    base = {"collective": "all_reduce", "gpu": "A100-SXM", "interconnect": "NVLink3/NVSwitch", "n_gpus": "8"}
    timed = base | {"nodes": "1", "message_bytes": "1000000", "time_us": "50", "algbw_GBps": "1"}
    over_links = base | {"nodes": "1", "message_bytes": "1000000", "busbw_GBps": "35"}
    path = table(tmp_path / "c.csv", collectives.COLUMNS, timed, over_links)
    cases = [collectives.case_of(row) for row in read_table(path, collectives.COLUMNS, collectives.REQUIRED)]
    assert [case.seconds for case in cases if isinstance(case, collectives.Case)] == pytest.approx([50e-6, 50e-6])
    assert validate(collectives_file=path).collectives["all"].scored == 2


def test_kernels_compare_seconds_from_rates_in_their_own_convention(tmp_path: Path) -> None:
    gemm = {
        "kernel": "gemm",
        "gpu": "A100-SXM",
        "dtype": "bf16",
        "m": "4096",
        "n": "4096",
        "k": "4096",
        "tflops": "200",
    }
    flash = {"kernel": "flash_attn_fwd", "gpu": "H100-SXM", "batch": "2", "seq": "4096", "heads": "16", "tflops": "400"}
    halved = flash | {"head_dim": "128", "causal": "yes", "notes": "causal flops halved convention"}
    whole = flash | {"head_dim": "128/128", "causal": "yes (training path)"}
    path = table(tmp_path / "k.csv", kernels.COLUMNS, gemm, halved, whole, gemm | {"kernel": "softmax"})
    read = [kernels.case_of(row) for row in read_table(path, kernels.COLUMNS, kernels.REQUIRED)]
    seconds = [case.seconds for case in read if isinstance(case, kernels.Case)]
    forward = 4 * 2 * 4096**2 * 16 * 128 / 400e12
    assert seconds == pytest.approx([2 * 4096**3 / 200e12, forward / 2, forward])
    assert read[3] == "kernel 'softmax' is not one of the model"
    assert validate(kernels_file=path).kernels["all"].rows == 4


# Files


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "1:1", "is empty"),
        ("a,b\n1,2\n", "1:1", "columns are missing"),
        ("{header}\n{row},extra\n", "2:1", "cells in a table of"),
        ("{header}\n{bad}\n", "2:3", "n_gpus: 'eight' is not a number"),
        ("{header}\n{row}\n{row}\n", "3:1", "is the id of line 2 too"),
        ('{header}\n"{row}\n', "2:1", "is not CSV"),
    ],
)
def test_a_malformed_file_is_told_by_line(tmp_path: Path, text: str, where: str, what: str) -> None:
    columns = ["id", "gpu", "n_gpus", *(name for name in steps.COLUMNS if name not in ("id", "gpu", "n_gpus"))]
    row = ",".join(STEP.get(name, "") for name in columns)
    bad = ",".join((STEP | {"n_gpus": "eight"}).get(name, "") for name in columns)
    path = tmp_path / "steps.csv"
    path.write_text(text.format(header=",".join(columns), row=row, bad=bad), encoding="utf-8")
    with pytest.raises(SourceError) as failure:
        validate(steps_file=path)
    assert str(failure.value.problems[0]).startswith(f"{path}:{where}: error: ")
    assert what in str(failure.value.problems[0])
    assert command("--steps", path).exit_code == 2


@pytest.mark.parametrize("cell", ["nan", "inf", "-1", "0", "1e99", "2.5", "x" * 500])
def test_no_number_of_a_cell_ends_in_a_traceback(tmp_path: Path, cell: str) -> None:
    done = command("--steps", step_table(tmp_path, {"hidden": cell}))
    assert done.exit_code == 2
    assert "steps.csv:2:" in done.stderr


def test_what_is_not_text_or_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"id,gpu\n\xff\xfe\n")
    assert "x.csv:2:1: error: is not UTF-8" in command("--steps", tmp_path / "x.csv").stderr
    assert command("--steps", tmp_path / "none.csv").exit_code == 2


# The command


def test_json_has_the_promised_shape(tmp_path: Path) -> None:
    done = command("--steps", step_table(tmp_path, {}, {"id": "mine-2", "gpu": "TPU"}), "--format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["sets"]["mine"]
    assert (found["rows"], found["scored"], found["coverage_90"]) == (2, 1, None)
    assert found["skipped"] == {"GPU 'TPU' is not in the catalogue": 1}
    assert {"mape", "median_ape", "bias", "r2_log", "slices", "taken"} <= found.keys()
    assert found["slices"]["tensor"]["2"]["rows"] == 1


def test_two_equal_runs_write_the_same_bytes(tmp_path: Path) -> None:
    path = step_table(tmp_path, {}, {"id": "mine-2", "tp": "1", "dp": "4"})
    assert command("--steps", path, "--format", "json").stdout == command("--steps", path, "--format", "json").stdout


def test_max_mape_decides_the_exit_code(tmp_path: Path) -> None:
    path = step_table(tmp_path, {})
    assert command("--steps", path, "--max-mape", "1000000").exit_code == 0
    done = command("--steps", path, "--max-mape", "0.001")
    assert done.exit_code == 1
    assert "mine" in done.stderr


def test_nothing_to_compare_and_unknown_constants_are_usage_errors(tmp_path: Path) -> None:
    assert command().exit_code == 2
    assert command("--steps", step_table(tmp_path, {}), "--calibration", "none").exit_code == 2


def test_a_missing_plotly_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falsim.report.validation_plot.find_spec", lambda name: None)
    done = command("--steps", step_table(tmp_path, {}), "--plot", tmp_path / "out.html")
    assert done.exit_code == 2
    assert "pip install 'falsim[dashboard]'" in done.stderr


def test_the_plot_is_one_page_with_every_pair(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    done = command("--steps", step_table(tmp_path, {}), "--plot", tmp_path / "out.html")
    assert done.exit_code == 0, done.output
    assert "mine-0001" in (tmp_path / "out.html").read_text(encoding="utf-8")


# The published tables


@needs_tables
def test_nine_rows_in_ten_of_every_published_set_are_scored() -> None:
    found = validate(SHARED / "training_steps.csv", SHARED / "nanotron_h100.csv")
    assert {name for name, score in found.sets.items() if score.scored < 0.9 * score.rows} == set()
    assert len(found.sets) == 29
    assert sum(score.rows for score in found.sets.values()) == 1301 + 792
    assert found.out_of_memory is not None
    assert found.out_of_memory.rows >= 0.9 * 1964


@needs_tables
def test_nine_rows_in_ten_of_the_other_tables_are_scored() -> None:
    found = validate(None, None, SHARED / "collectives.csv", SHARED / "kernels.csv")
    for score in (found.collectives["all"], found.kernels["all"]):
        assert score.scored >= 0.9 * score.rows


def test_every_preset_the_defaults_name_exists() -> None:
    for name, entry in defaults._data()["sets"].items():
        for wiring in (entry, *entry.get("cases", ())):
            cluster = wiring.get("cluster", {})
            if "intra_node" in cluster:
                assert catalog.node(cluster["intra_node"]), name
            if "inter_node" in cluster:
                assert catalog.link(cluster["inter_node"]).kind == "network", name
