"""A scenario file becomes a resolved scenario, or everything that is wrong with it, each problem at its place."""

import io
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falsim import catalog
from falsim.catalog.entries import Entry
from falsim.scenario import Scenario, load_scenario, scenario_hash
from falsim.scenario.overrides import parse_overrides
from falsim.scenario.schema import ARCHITECTURES
from falsim.scenario.written import GpuFields, InterNodeFields, IntraNodeFields, LinkFields, ModelFields
from falsim.yaml_source import SourceError

SHARED = Path(__file__).resolve().parents[2] / "shared"

GOOD = """\
name: small
model: {num_layers: 12, hidden_size: 768, num_attention_heads: 12, vocab_size: 50257}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  nodes: 2
  intra_node: nvlink4-nvswitch
  inter_node: infiniband-400g
parallelism:
  tensor: 4
  pipeline: 2
training:
  sequence_length: 1024
  micro_batch_size: 2
  global_batch_size: 32
"""


def load(text: str = GOOD, *overrides: str) -> Scenario:
    return load_scenario(text, overrides, name="s.yaml")


def problems(text: str = GOOD, *overrides: str) -> list[str]:
    with pytest.raises(SourceError) as caught:
        load(text, *overrides)
    return [str(problem) for problem in caught.value.problems]


def test_a_scenario_is_resolved_with_its_defaults() -> None:
    scenario = load()
    assert scenario.world_size == 16
    assert scenario.parallelism.data == 2
    assert scenario.num_micro_batches == 8
    assert scenario.tokens_per_step == 32 * 1024
    assert scenario.architectures == ARCHITECTURES
    assert scenario.training.precision == "bf16"
    assert scenario.implementation.overlap == "wgrad"
    assert scenario.implementation.merge_partial_gradients is None
    assert scenario.calibration is None
    assert scenario.measured is None


def test_an_inline_model_has_gpt2_conventions_for_what_is_left_out() -> None:
    model = load().model
    assert (model.num_key_value_heads, model.head_dim, model.intermediate_size) == (12, 64, 3072)
    assert (model.vocab_size, model.max_position_embeddings, model.mlp) == (50257, 1024, "gelu")


def test_the_name_defaults_to_the_files(tmp_path: Path) -> None:
    path = tmp_path / "my_cluster.yaml"
    path.write_text(GOOD.replace("name: small\n", ""))
    assert load_scenario(path).name == "my_cluster"


def test_a_scenario_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert load_scenario("-").name == "small"


def test_fields_on_top_of_a_preset_win_and_are_named_as_the_source() -> None:
    gpu = "{preset: h100-sxm, memory: 96 GiB, peak_flops: {bf16: 500 TFLOP/s}}"
    resolved = load(GOOD.replace("gpu: h100-sxm", f"gpu: {gpu}")).cluster.gpu
    preset = catalog.gpu("h100-sxm")
    assert resolved.memory == 96 * 2**30
    assert resolved.peak_flops["bf16"] == 500e12
    assert resolved.peak_flops["fp16"] == preset.peak_flops["fp16"]
    assert resolved.memory_bandwidth == preset.memory_bandwidth
    assert resolved.sources["memory"] == "the scenario file"


def test_a_node_preset_is_flattened_with_its_link_and_fields_win() -> None:
    text = "{preset: nvlink4-nvswitch, bandwidth: 100 GB/s, latency: 0 us}"
    links = load(GOOD.replace("intra_node: nvlink4-nvswitch", f"intra_node: {text}")).cluster.intra_node
    assert (links.preset, links.topology, links.kind) == ("nvlink4-nvswitch", "nvswitch", "nvlink")
    assert (links.bandwidth, links.latency) == (100e9, 0.0)
    assert links.efficiency == catalog.link("nvlink4").efficiency


@pytest.mark.parametrize(
    ("name", "topology"), [("nvlink4", "nvswitch"), ("pcie4-x16", "shared_root"), ("shared-memory", "shared_memory")]
)
def test_a_bare_link_joins_the_gpus_of_a_node(name: str, topology: str) -> None:
    links = load(GOOD, f"cluster.intra_node={name}").cluster.intra_node
    assert (links.topology, links.bandwidth) == (topology, catalog.link(name).bandwidth)


def test_bridged_pairs_take_the_link_between_them_from_the_preset_and_fields_win() -> None:
    text = "{preset: nvlink3-bridge-pairs-pcie4, between_pairs: {bandwidth: 10 GB/s}}"
    pairs = load(GOOD, f"cluster.intra_node={text}").cluster.intra_node.between_pairs
    assert pairs is not None
    between = catalog.node("nvlink3-bridge-pairs-pcie4").between_pairs
    assert between is not None
    assert (pairs.kind, pairs.bandwidth) == ("pcie", 10e9)
    assert pairs.efficiency == catalog.link(between).efficiency


def test_a_network_of_one_nic_per_gpu_has_as_many_nics_as_gpus() -> None:
    nics = {"per_gpu": 8, "per_node": 1}[str(catalog.link("infiniband-400g").nics)]
    network = load().cluster.inter_node
    assert network is not None
    assert network.nics_per_node == nics
    changed = load(GOOD, "cluster.inter_node.nics_per_node=4").cluster.inter_node
    assert changed is not None
    assert changed.nics_per_node == 4


def test_links_may_be_given_without_a_preset() -> None:
    text = "{kind: network, bandwidth: 100 Gb/s, efficiency: 0.8}"
    network = load(GOOD, f"cluster.inter_node={text}").cluster.inter_node
    assert network is not None
    assert (network.bandwidth, network.latency, network.nics_per_node) == (12.5e9, None, 1)
    [problem] = problems(GOOD, "cluster.inter_node={bandwidth: 100 Gb/s}")
    assert "missing: kind, efficiency" in problem


def test_a_single_gpu_needs_no_links() -> None:
    text = "model: gpt2\ncluster: {gpu: h100-sxm}\ntraining: {sequence_length: 1024, global_batch_size: 8}\n"
    scenario = load(text)
    assert scenario.world_size == 1
    assert scenario.cluster.intra_node.topology == "shared_memory"


@pytest.mark.parametrize(
    ("section", "entry", "left_out"),
    [
        (GpuFields, catalog.Gpu, {"name", "aliases", "sources", "same_chip_as"}),
        (ModelFields, catalog.Model, {"name", "aliases", "sources"}),
        (LinkFields, catalog.Link, {"name", "aliases", "sources", "title", "nics", "in_network_reduction"}),
        (InterNodeFields, catalog.Link, {"name", "aliases", "sources", "title", "nics", "in_network_reduction"}),
        (IntraNodeFields, catalog.Node, {"name", "aliases", "sources", "title", "link"}),
    ],
)
def test_every_field_of_the_catalogue_can_be_overridden(section: Any, entry: type[Entry], left_out: set[str]) -> None:
    assert set(entry.model_fields) - left_out <= set(section.model_fields)


@pytest.mark.parametrize(
    ("kind", "path"), [("gpus", "cluster.gpu"), ("nodes", "cluster.intra_node"), ("models", "model")]
)
def test_every_preset_resolves(kind: catalog.Kind, path: str) -> None:
    text = GOOD.replace("tensor: 4\n  pipeline: 2", "data: 16").replace("sequence_length: 1024", "sequence_length: 64")
    for name, entry in catalog.entries(kind).items():
        precision = next(iter(entry.peak_flops)) if isinstance(entry, catalog.Gpu) else "bf16"
        assert load(text, f"{path}={name}", f"training.precision={precision}").world_size == 16


class TestModelFromAConfig:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        config = {
            "model_type": "gpt2",
            "n_layer": 12,
            "n_embd": 768,
            "n_head": 12,
            "vocab_size": 50257,
            "n_positions": 1024,
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    def write(self, folder: Path, model: str) -> Path:
        path = folder / "s.yaml"
        path.write_text(GOOD.replace(GOOD.splitlines()[1], f"model: {model}"))
        return path

    @pytest.mark.parametrize("where", ["config.json", "."])
    def test_its_path_is_relative_to_the_scenario_and_fields_win(self, folder: Path, where: str) -> None:
        model = load_scenario(self.write(folder, f"{{from_config: {where}, num_layers: 24}}")).model
        assert (model.num_layers, model.hidden_size) == (24, 768)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "is not JSON"),
            ("[" * 100_000, "is JSON nested too deeply"),
            ('{"n": ' + "9" * 5000 + "}", "a number of too many digits"),
            ("[]", "holds no JSON object"),
            ('{"model_type": "mamba"}', "mamba"),
            ('{"model_type": "gpt2", "n_embd": "x"}', "n_embd"),
            ("x" * 1_000_001, "too large"),
        ],
    )
    def test_what_is_wrong_with_it_is_said_at_its_path(self, folder: Path, content: str, message: str) -> None:
        (folder / "config.json").write_text(content)
        path = self.write(folder, "{from_config: config.json}")
        with pytest.raises(SourceError, match=message) as caught:
            load_scenario(path)
        assert str(caught.value).startswith(f"{path}:2:22: error: model.from_config: ")

    def test_a_missing_file_is_a_problem(self, folder: Path) -> None:
        with pytest.raises(SourceError, match=r"cannot read .*absent.json: No such file"):
            load_scenario(self.write(folder, "{from_config: absent.json}"))

    @pytest.mark.parametrize(
        ("own", "file", "title"),
        [
            (None, "llama-2-7b.json", "llama-2-7b"),
            (None, "llama-2-7b/config.json", "llama-2-7b"),
            (None, "llama-2-7b", "llama-2-7b"),
            ("openai/gpt2-large/", "config.json", "gpt2-large"),
            ("gpt2\x1b[31m\nlarge", "config.json", "gpt2 [31m large"),
            (7, "x.json", "x"),
            ("./", "x.json", "x"),
        ],
    )
    def test_it_is_titled_by_its_own_name_else_by_its_files(
        self, folder: Path, own: Any, file: str, title: str
    ) -> None:
        config = json.loads((folder / "config.json").read_text()) | {"_name_or_path": own}
        written = folder / file if file.endswith(".json") else folder / file / "config.json"
        written.parent.mkdir(exist_ok=True)
        written.write_text(json.dumps(config))
        assert load_scenario(self.write(folder, f"{{from_config: {file}}}")).model.title == title

    def test_a_preset_beside_it_is_a_problem_that_names_both(self, folder: Path) -> None:
        with pytest.raises(SourceError, match=r"preset gpt2-xl and from_config config.json are both given"):
            load_scenario(self.write(folder, "{from_config: config.json}"), ["model.preset=gpt2-xl"])

    @pytest.mark.skipif(not SHARED.exists(), reason="needs the folder of real config files")
    def test_a_parallel_family_is_said_to_run_in_a_serial_block(self, folder: Path) -> None:
        config = SHARED / "cases" / "hf" / "phi-2.json"
        text = GOOD.replace("tensor: 4", "tensor: 8").replace("pipeline: 2", "pipeline: 1")
        path = folder / "s.yaml"
        path.write_text(text.replace(GOOD.splitlines()[1], f"model: {{from_config: '{config}'}}"))
        assert any("parallel" in note and "serial" in note for note in load_scenario(path).notes)


class TestYamlTraps:
    def test_a_float_with_an_integral_value_is_an_integer(self) -> None:
        assert load(GOOD.replace("sequence_length: 1024", "sequence_length: 1.024e3")).training.sequence_length == 1024

    def test_a_leading_zero_is_decimal(self) -> None:
        assert load(GOOD.replace("sequence_length: 1024", "sequence_length: 01024")).training.sequence_length == 1024

    @pytest.mark.parametrize("word", ["on", "yes", "true", "True", "YES"])
    def test_words_for_true_switch_on(self, word: str) -> None:
        assert load(GOOD, f"parallelism.sequence={word}").parallelism.sequence is True

    @pytest.mark.parametrize("word", ["off", "no", "false", "No"])
    def test_words_for_false_switch_off(self, word: str) -> None:
        assert load(GOOD, f"training.overlap_gradient_reduce={word}").training.overlap_gradient_reduce is False

    @pytest.mark.parametrize("text", ["on", "no", "12:30", "2024-01-02"])
    def test_the_same_words_are_text_where_text_is_wanted(self, text: str) -> None:
        assert load(GOOD.replace("name: small", f"name: {text}")).name == text

    def test_a_key_without_a_value_is_left_out(self) -> None:
        assert load(GOOD.replace("  tensor: 4\n", "  tensor:\n") + "implementation:\n").parallelism.data == 8

    def test_a_number_as_a_name_needs_quotes(self) -> None:
        assert problems(GOOD.replace("name: small", "name: 1.10")) == [
            "s.yaml:1:7: error: name: 1.1 is not text (put it in quotes)"
        ]


BAD_VALUES = [
    ("parallelism.tensor", "0", "0 is not a whole number of at least 1"),
    ("parallelism.tensor", "-1", "-1 is not a whole number of at least 1"),
    ("parallelism.tensor", "1.5", "1.5 is not a whole number"),
    ("parallelism.tensor", ".nan", "nan is not a whole number"),
    ("parallelism.tensor", "nan", "'nan' is not a whole number"),
    ("parallelism.tensor", ".inf", "the number is too large (at most 1,000,000,000)"),
    ("parallelism.tensor", "-.inf", "-inf is not a whole number"),
    ("parallelism.tensor", "1e999", "the number is too large"),
    ("parallelism.tensor", "2e9", "too large (at most 1,000,000,000)"),
    ("parallelism.tensor", "9" * 5000, "the number is too large (at most 1,000,000,000)"),
    ("parallelism.tensor", "-" + "9" * 5000, "the number is too large (at most 1,000,000,000)"),
    ("parallelism.tensor", "true", "true is not a whole number"),
    ("parallelism.tensor", "'4'", "leave out the quotes"),
    ("parallelism.tensor", "[4]", "a list is not a whole number"),
    ("parallelism.zero", "4", "4 is not a whole number from 0 to 3"),
    ("parallelism.sequence", "1", "1 is not a switch (write true or false)"),
    ("parallelism.pipeline_schedule", "1f1", "not one of 1f1b, gpipe, interleaved (did you mean '1f1b'?)"),
    ("training.precision", "BF16", "did you mean 'bf16'?"),
    ("training.recompute", "true", "true is not one of none, selective, full"),
    ("cluster.gpu.memory", "80", "80 has no unit (write a number and its unit, for example '80 GiB')"),
    ("cluster.gpu.memory", "80 Gb", "counts bits where bytes are meant"),
    ("cluster.gpu.memory", "0 GB", "'0 GB' is out of range (from 1 B to 1000 PB, for example '80 GiB')"),
    ("cluster.gpu.memory", "-1 GB", "is out of range (from 1 B to 1000 PB"),
    ("cluster.gpu.memory_bandwidth", "1e-300 B/s", "is out of range (from 1 B/s to 1000 PB/s"),
    ("cluster.inter_node.bandwidth", "1e300 B/s", "is out of range (from 1 B/s to 1000 PB/s"),
    ("cluster.gpu.peak_flops.bf16", "1e-300 FLOP/s", "is out of range (from 1 FLOP/s to 1000 EFLOP/s"),
    ("cluster.gpu.thermal_design_power", "1e7 kW", "is out of range (from 0.001 W to 1e6 kW"),
    ("cluster.gpu.kernel_launch", "1e7 s", "is out of range (from 0 s to 1e6 s"),
    ("measured.step_time", "0 s", "is out of range (from 1 ns to 1e6 s"),
    ("cluster.intra_node.efficiency", "1e-300", "1e-300 is too small (at least 0.000001)"),
    ("cluster.intra_node.in_network_reduction", "11", "11 is not a number above 0 and at most 10"),
    ("cluster.intra_node.concurrent_flows", "2000000", "is not a number above 0 and at most 1,000,000"),
    ("cluster.gpu.memory_efficiency", "1.5", "1.5 is not a number above 0 and at most 1"),
    ("cluster.gpu.memory_efficiency", "0", "0 is not a number above 0"),
    ("cluster.gpu.price_per_hour", ".inf", "inf is not a number above 0"),
    ("cluster.gpu.peak_flops.bf17", "1 TFLOP/s", "did you mean cluster.gpu.peak_flops.bf16?"),
    ("cluster.intra_node.bandwidth", "25 GT/s", "counts transfers"),
    ("cluster.intra_node.latency", "-1 us", "is out of range (from 0 s to 1e6 s"),
    ("cluster.intra_node", "nvlink4-nvswich", "nvlink4-nvswitch"),
    ("cluster.intra_node", "infiniband-400g", "use it as cluster.inter_node"),
    ("cluster.inter_node", "pcie4-x16", "does not leave a node"),
    ("cluster.gpu", "h100-sxn", "h100-sxm"),
    ("cluster.gpu", "{memory: 1 GB}", "without a preset these fields are missing: vendor, peak_flops"),
    ("cluster.gpu", "3", "3 is not the name of a preset or a mapping of fields"),
    ("cluster", "x", "'x' is not a mapping of fields"),
    ("model", "gpt2-xxl", "no model is called 'gpt2-xxl'"),
    ("model", "''", "is empty"),
    ("model", "{hidden_size: 8}", "num_layers, num_attention_heads missing"),
    ("model", "{preset: gpt2, from_config: x.json}", "keep one of the two"),
    ("architectures", "[]", "names no architecture"),
    ("architectures", "[gpt, fal, gpt]", "'gpt' stands more than once"),
    ("architectures", "FAL+", "did you mean 'fal_plus'?"),
    ("architectures", "{a: 1}", "a mapping is not a list"),
    ("measured", "{source: x}", "holds no value (give step_time, tokens_per_s_per_gpu or mfu)"),
    ("measured", "{mfu: 40, source: x}", "40 is not a number above 0 and at most 1"),
    ("measured.step_time", "3", "3 has no unit"),
    ("workload", "inference", "'inference' is not one of training"),
    ("name", "''", "is empty"),
    ("name", '"\\e[31m"', "cannot be printed"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD_VALUES)
def test_a_bad_value_is_an_error_that_says_what_would_be_right(path: str, value: str, message: str) -> None:
    assert any(message in problem for problem in problems(GOOD, f"{path}={value}"))


def test_fields_of_an_inline_gpu_that_are_not_numbers_are_checked_too() -> None:
    assert (
        "cluster.gpu.vendor: 'nvidea' is not one of nvidia, amd, cpu (did you mean 'nvidia'?)"
        in problems(GOOD, "cluster.gpu.vendor=nvidea")[0]
    )


class TestRules:
    """Each rule between fields, at the value to blame, with what would be right."""

    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            (["parallelism.data=4"],
             "parallelism.data: tensor 4 × context 1 × pipeline 2 × data 4 = 32, but the cluster has 16 GPUs "
             "(data: 2 would use them all)"),
            (["cluster.nodes=3", "parallelism.tensor=4", "parallelism.pipeline=4"], "must divide 24"),
            (["parallelism.tensor=8"],
             "parallelism.tensor: tensor 8 does not divide num_attention_heads 12 (6 or 12 would)"),
            (["parallelism.tensor=4", "model.intermediate_size=3070"],
             "tensor 4 does not divide intermediate_size 3070 (2 or 5 would)"),
            (["parallelism.tensor=4", "model.hidden_size=770", "model.head_dim=64"],
             "tensor 4 does not divide hidden_size 770"),
            (["parallelism.tensor=4", "model.num_key_value_heads=6"], "neither divides the other (3 or 6 would"),
            (["model.num_key_value_heads=5"],
             "model.num_key_value_heads: num_key_value_heads 5 does not divide num_attention_heads 12"),
            (["model.num_layers=11"],
             "pipeline 2 × virtual_pipeline 1 = 2 does not divide num_layers 11 (1 or 11 would)"),
            (["parallelism.account_for_loss_in_pipeline_split=true"], "num_layers 12 + 1 for the embedding and loss"),
            (["parallelism.virtual_pipeline=2"], "virtual_pipeline 2 needs pipeline_schedule: interleaved, not 1f1b"),
            (["parallelism.pipeline_schedule=interleaved"], "interleaved needs virtual_pipeline above 1"),
            (["parallelism.pipeline_schedule=interleaved", "parallelism.pipeline=1"],
             "interleaved needs pipeline above 1"),
            (["parallelism.pipeline_schedule=interleaved", "parallelism.virtual_pipeline=2",
              "training.global_batch_size=28"], "multiples of pipeline 2, not 7 (for example global_batch_size 24)"),
            (["parallelism.pipeline=1", "parallelism.account_for_embedding_in_pipeline_split=true"],
             "needs pipeline above 1"),
            (["training.global_batch_size=33"],
             "training.global_batch_size: global_batch_size 33 is not a multiple of data 2 × micro_batch_size 2 = 4 "
             "(32 or 36 would be)"),
            (["training.global_batch_size=2"], "2 is not a multiple of data 2 × micro_batch_size 2 = 4 (4 would be)"),
            (["parallelism.sequence=true", "training.sequence_length=1022"], "1022 is not a multiple of tensor 4 × "
             "context 1 = 4"),
            (["parallelism.context=2", "training.sequence_length=1022"], "1022 is not a multiple of 2 × context 2"),
            (["parallelism.expert=2"], "expert 2: custom model has no experts (write 1)"),
            (["parallelism.expert=4", "model.num_experts=6"], "4 does not divide num_experts 6 (3 or 6 would)"),
            (["parallelism.expert=4", "model.num_experts=8"], "4 does not divide data 2 (2 would)"),
            (["model.num_experts_per_token=2"], "2 is more than num_experts 1"),
            (["training.sequence_length=2048", "model.max_position_embeddings=1024"], "2048 is longer than the 1024 "
             "positions custom model learned"),
            (["training.precision=fp8", "cluster.gpu=a100-sxm-80gb"], "does not compute in fp8 (choose from "),
            (["cluster.inter_node=null"], "2 nodes need cluster.inter_node"),
            (["cluster.intra_node=null"], "8 GPUs in a node need cluster.intra_node"),
            (["cluster.intra_node.topology=pairs"], "topology pairs needs the link between pairs"),
            (["cluster.intra_node=pcie4-shared-root", "cluster.intra_node.in_network_reduction=1"],
             "cluster.intra_node.in_network_reduction: only an NVSwitch reduces: in_network_reduction needs kind "
             "nvlink and topology nvswitch, not pcie and shared_root (leave it out)"),
            (["cluster.intra_node.topology=mesh", "cluster.intra_node.in_network_reduction=1"], "not nvlink and mesh"),
            (["cluster.nodes=2000000"],
             "cluster.nodes: nodes 2000000 × gpus_per_node 8 = 16000000 GPUs (at most 10,000,000)"),
            (["model.num_layers=100002"], "model.num_layers: 100002 layers (at most 100,000)"),
            (["training.global_batch_size=4000004"], "global_batch_size 4000004 / (data 2 × micro_batch_size 2) = "
             "1000001 micro-batches per step (at most 1,000,000)"),
            (["parallelism.pipeline=258"], "= 258 is more than 256 (at most that many)"),
            (["model={hidden_size: 100, num_layers: 2, num_attention_heads: 3}"],
             "3 heads do not divide hidden_size 100"),
        ],
    )  # fmt: skip
    def test_a_broken_rule_is_reported(self, overrides: list[str], expected: str) -> None:
        found = problems(GOOD, *overrides)
        assert any(expected in problem for problem in found), found

    @pytest.mark.parametrize(
        "overrides",
        [
            ["parallelism.tensor=2", "model.num_key_value_heads=1"],
            ["parallelism.tensor=4", "model.num_key_value_heads=4"],
            ["parallelism.pipeline_schedule=interleaved", "parallelism.virtual_pipeline=3"],
            ["model.num_layers=10", "parallelism.account_for_loss_in_pipeline_split=on",
             "parallelism.account_for_embedding_in_pipeline_split=on"],
            ["parallelism.context=2", "parallelism.sequence=on", "parallelism.data=1"],
            ["parallelism.expert=2", "model.num_experts=4"],
            ["training.sequence_length=4096", "model.max_position_embeddings=1024", "model.position_embedding=rope"],
            ["training.attention=flash", "cluster.gpu=laptop-cpu", "training.precision=fp32"],
            ["cluster.intra_node.in_network_reduction=1.2"],
        ],
    )  # fmt: skip
    def test_what_keeps_every_rule_loads(self, overrides: list[str]) -> None:
        assert load(GOOD, *overrides).world_size == 16

    def test_a_rule_points_at_the_value_in_the_file(self) -> None:
        assert problems(GOOD.replace("tensor: 4", "tensor: 8")) == [
            "s.yaml:10:11: error: parallelism.tensor: tensor 8 does not divide num_attention_heads 12 (6 or 12 would)"
        ]


@pytest.mark.parametrize("change", ["topology=mesh", "kind=pcie"])
def test_a_preset_without_its_switch_reduces_nothing_on_the_way(change: str) -> None:
    assert load().cluster.intra_node.in_network_reduction is not None
    assert load(GOOD, f"cluster.intra_node.{change}").cluster.intra_node.in_network_reduction is None


def test_switches_that_have_nothing_to_act_on_are_noted() -> None:
    text = "model: gpt2\ncluster: {gpu: h100-sxm}\ntraining: {sequence_length: 1024, global_batch_size: 8}\n"
    assert load(text).notes == ()
    assert load(text, "parallelism={sequence: true, zero: 2}").notes == (
        "sequence parallelism needs tensor > 1; ignored",
        "zero 2 needs several replicas (data > 1); ignored",
    )
    assert not any("ignored" in note for note in load(GOOD, "parallelism={tensor: 4, sequence: true, zero: 1}").notes)


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
nmae: x
model: gpt2-1.5c
cluster:
  gpu: {preset: rtx-4090, memory: 96}
  gpus_per_node: 6
  gpus_per_node: 8
  intra_node: pcie4-shared-rot
parallelism: {tensr: 4, pipeline: 0}
training:
  sequence_lenght: 1024
  micro_batch_size: 3
  global_batch_size: 64
  precision: fp17
measured: {step_time: 3 s}
"""
    found = problems(text, "parallelism.data=2", "implementation.overlap=wgrd")
    assert [problem.partition(" (")[0].partition(", but")[0] for problem in found] == [
        "s.yaml:1:1: error: nmae: unknown key",
        "s.yaml:2:8: error: model: no model is called 'gpt2-1.5c'",
        "s.yaml:4:35: error: cluster.gpu.memory: 96 has no unit",
        "s.yaml:6:3: error: cluster.gpus_per_node: duplicate key",
        "s.yaml:7:15: error: cluster.intra_node: no node or link is called 'pcie4-shared-rot'",
        "s.yaml:8:15: error: parallelism.tensr: unknown key",
        "s.yaml:8:35: error: parallelism.pipeline: 0 is not a whole number of at least 1",
        "s.yaml:10:3: error: training.sequence_lenght: unknown key",
        "s.yaml:13:14: error: training.precision: 'fp17' is not one of fp32, tf32, fp16, bf16, fp8",
        "s.yaml:14:1: error: measured.source: missing",
        "--set implementation.overlap=wgrd: error: implementation.overlap: 'wgrd' is not one of none, wgrad, async_tp",
        "--set parallelism.data=2: error: parallelism.data: global_batch_size 64 is not a multiple of data 2 × "
        "micro_batch_size 3 = 6",
    ]
    assert "did you mean 'name'?" in found[0]
    assert "did you mean 'tensor'?" in found[5]
    assert "did you mean 'sequence_length'?" in found[7]


def test_a_wrong_value_is_not_blamed_a_second_time_by_the_rules() -> None:
    assert problems(GOOD.replace("tensor: 4", "tensor: x")) == [
        "s.yaml:10:11: error: parallelism.tensor: 'x' is not a whole number of at least 1"
    ]


def test_missing_sections_are_all_named() -> None:
    assert [problem.partition(" (")[0] for problem in problems("name: x\n")] == [
        "s.yaml:1:1: error: model: missing",
        "s.yaml:1:1: error: cluster: missing",
        "s.yaml:1:1: error: training: missing",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "1:1: error: the scenario is empty (`falsim init` writes one to start from)"),
        ("- a\n- b\n", "1:1: error: the scenario is not a mapping of fields"),
        ("a: b: c\n", "1:5: error: "),
    ],
)
def test_what_is_no_scenario_is_one_error(text: str, message: str) -> None:
    [problem] = problems(text)
    assert problem.startswith(f"s.yaml:{message}")


def test_a_value_shared_by_an_alias_is_checked_at_each_use() -> None:
    text = GOOD.replace("intra_node: nvlink4-nvswitch", "intra_node: &link {bandwidth: 3 GB/s, efficiency: 2}")
    assert problems(text.replace("inter_node: infiniband-400g", "inter_node: *link")) == [
        f"s.yaml:7:53: error: cluster.{where}.efficiency: 2 is not a number above 0 and at most 1"
        for where in ("intra_node", "inter_node")
    ]


def test_files_that_cannot_be_read_are_a_source_error(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: ok\nmodel: \xe9\n")
    (tmp_path / "large.yaml").write_text("#" * 1_000_001)
    for name, message in [
        ("absent.yaml", "absent.yaml: error: cannot read it: No such file or directory"),
        ("", "cannot read it: Is a directory"),
        ("latin.yaml", "latin.yaml:2:8: error: not UTF-8 text"),
        ("large.yaml", "large.yaml:1:1: error: larger than 1,000,000 bytes"),
        ("nul\0byte", "cannot read it"),
    ]:
        with pytest.raises(SourceError) as caught:
            load_scenario(f"{tmp_path}/{name}")
        assert message in str(caught.value)


def test_an_empty_file_name_is_called_that() -> None:
    with pytest.raises(SourceError, match="an empty file name"):
        load_scenario("")


def test_a_closed_standard_input_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SourceError, match="<stdin>: error: cannot read it: standard input is closed"):
        load_scenario("-")


def test_a_name_taken_from_a_file_holds_only_what_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b\udcffb.yaml"
    path.write_text(GOOD.replace("name: small\n", ""))
    assert load_scenario(path).name == "a b"


class TestOverrides:
    def test_the_last_override_of_a_path_wins(self) -> None:
        assert load(GOOD, "training.micro_batch_size=4", "training.micro_batch_size=1").training.micro_batch_size == 1

    def test_a_field_below_a_named_preset_changes_that_field_only(self) -> None:
        changed, before = load(GOOD, "cluster.intra_node.bandwidth=20 GB/s"), load()
        assert changed.cluster.intra_node.bandwidth == 20e9
        assert changed.cluster.intra_node.efficiency == before.cluster.intra_node.efficiency

    def test_null_takes_a_value_out(self) -> None:
        assert load(GOOD, "parallelism.tensor=null").parallelism.data == 8

    def test_a_section_that_the_file_lacks_is_made(self) -> None:
        assert load(GOOD, "implementation.first_block=fal").implementation.first_block == "fal"

    @pytest.mark.parametrize(
        ("override", "problem"),
        [
            ("foo", "expected path=value (for example parallelism.tensor=8)"),
            ("=3", "unknown path"),
            ("tensor=3", "tensor: unknown path (did you mean parallelism.tensor?)"),
            ("parallelism.tensr=3", "parallelism.tensr: unknown path (did you mean parallelism.tensor?)"),
            ("paralelism.tensor=3", "paralelism.tensor: unknown path (did you mean parallelism.tensor?)"),
            ("cluster.gpu.memry=1 GB", "did you mean cluster.gpu.memory?"),
            ("cluster.gpu.peak_flops.bf61=1 TFLOP/s", "did you mean cluster.gpu.peak_flops.bf16?"),
            ("zzzz=3", "unknown path (known here: name, "),
            ("parallelism.tensor.x=3", "parallelism.tensor is a value without fields (set parallelism.tensor itself)"),
            ("architectures.0=gpt", "architectures is a value without fields"),
            ("training.precision=[", "training.precision: not valid YAML"),
            ("parallelism.tensor=0", "parallelism.tensor: 0 is not a whole number"),
        ],
    )
    def test_a_wrong_override_is_an_error_of_its_own(self, override: str, problem: str) -> None:
        [found] = problems(GOOD, override)
        assert found.startswith(f"--set {override}: error: ")
        assert problem in found

    def test_a_rule_broken_by_an_override_is_its_problem(self) -> None:
        assert problems(GOOD, "parallelism.tensor=8") == [
            "--set parallelism.tensor=8: error: "
            "parallelism.tensor: tensor 8 does not divide num_attention_heads 12 (6 or 12 would)"
        ]

    def test_an_override_into_what_is_no_mapping_is_an_error(self) -> None:
        found = problems(GOOD.replace("cluster:\n", "cluster: 3\nx:\n"), "cluster.nodes=2")
        assert "--set cluster.nodes=2: error: cluster.nodes: 3 has no fields to set" in found

    def test_right_overrides_are_parsed_beside_wrong_ones(self) -> None:
        overrides, wrong = parse_overrides(["training.precision=fp16", "nope"])
        assert [override.path for override in overrides] == [("training", "precision")]
        assert len(wrong) == 1


def test_the_hash_changes_with_any_value_and_with_nothing_else() -> None:
    assert scenario_hash(load()) == scenario_hash(load("# a comment\n" + GOOD))
    assert scenario_hash(load()) != scenario_hash(load(GOOD, "training.micro_batch_size=1"))
    assert len(scenario_hash(load())) == 16


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.integers(1, 16)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(
        ["gpt2", "mixtral-8x7b", "h100-sxm", "nvlink4", "pcie4-two-sockets", "interleaved", "on", "80 GB"]
    )
    | st.sampled_from(["5 us", "3 GB/s", "fal", "1e3", "fp8", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["preset", "from_config", "gpu", "tensor", "data", "bf16", "source", "kind"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
PATHS = [
    "name", "model", "architectures", "cluster", "parallelism", "training", "implementation", "measured",
    "cluster.gpu", "cluster.gpus_per_node", "cluster.nodes", "cluster.intra_node", "cluster.inter_node",
    "cluster.intra_node.between_pairs", "cluster.intra_node.topology", "cluster.gpu.peak_flops", "model.head_dim",
    "model.num_attention_heads", "model.num_key_value_heads", "model.num_experts", "parallelism.tensor",
    "parallelism.pipeline", "parallelism.virtual_pipeline", "parallelism.pipeline_schedule", "parallelism.expert",
    "parallelism.data", "training.sequence_length", "training.global_batch_size", "measured.step_time", "unknown.key",
]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=4))
def test_a_scenario_with_anything_in_it_loads_or_is_a_source_error(changes: dict[str, Any]) -> None:
    data = yaml.safe_load(GOOD)
    for path, value in changes.items():
        section = data
        *parents, last = path.split(".")
        for step in parents:
            if not isinstance(section.get(step), dict):
                section[step] = {}
            section = section[step]
        section[last] = value
    try:
        scenario = load(yaml.safe_dump(data))
    except SourceError:
        return
    assert scenario.world_size >= 1
    assert scenario.num_micro_batches >= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), st.text(max_size=10)), max_size=3))
def test_any_override_loads_or_is_a_source_error(changes: list[tuple[str, str]]) -> None:
    with suppress(SourceError):
        load(GOOD, *(f"{path}={value}" for path, value in changes))


@pytest.mark.parametrize("name", ["pcie4", "pcie4-x16", "PCIe4 x16"])
def test_a_bare_pcie_link_inside_a_node_is_one_root(name: str) -> None:
    """Without a root's limit, boards without peer-to-peer would get links of their own that they do not have."""
    text = "model: gpt2-124m\ncluster: {gpu: rtx-3090, gpus_per_node: 4, intra_node: %s}\n"
    rest = "parallelism: {tensor: 4}\ntraining: {sequence_length: 1024, global_batch_size: 4}\n"
    bare, root = (load_scenario(text % preset + rest).cluster.intra_node for preset in (name, "pcie4-shared-root"))
    assert bare == root
    assert bare.concurrent_flows_host is not None
