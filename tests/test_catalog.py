"""What the catalogue promises: names that are found, numbers that have a source and make sense."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from falsim import catalog
from falsim.catalog.entries import DIMENSIONS
from falsim.cli.catalog import command

SHARED = Path(__file__).resolve().parents[2] / "shared"

GPUS = catalog.entries("gpus")
LINKS = catalog.entries("links")
NODES = catalog.entries("nodes")
EVERY_ENTRY = [entry for kind in catalog.KINDS for entry in catalog.entries(kind).values()]

# Spellings in published tables that name no single GPU of the catalogue.
NAMES_NO_SINGLE_GPU = {
    "MI250X (both GCDs)": "two of the devices that software sees",
    "TPU v4": "not a GPU",
    "128 GPUs": "various generations",
    "8 GPUs": "no model named",
    "multi-GPU": "no model named",
    "single GPU": "no model named",
    "": "blank",
}


def spelling_key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def test_no_two_entries_share_a_name_or_an_alias_whatever_their_kind() -> None:
    owners: dict[str, str] = {}
    for entry in EVERY_ENTRY:
        for spelling in (entry.name, *entry.aliases):
            owner = owners.setdefault(spelling_key(spelling), entry.name)
            assert owner == entry.name, f"{spelling} names both {owner} and {entry.name}"


@pytest.mark.parametrize("entry", EVERY_ENTRY, ids=lambda entry: entry.name)
def test_every_number_has_a_source_and_every_source_a_number(entry: catalog.Entry) -> None:
    assert entry.sources["*"].strip()
    for field, source in entry.sources.items():
        assert len(source) > 10, f"{field}: {source!r} says too little"
        if field != "*":
            assert field in type(entry).model_fields
            assert getattr(entry, field) is not None, f"{field} has a source but no value"
    for source in entry.sources.values():
        if source.startswith("assumed"):
            assert source.startswith("assumed: "), f"{source!r} gives no reason"


@pytest.mark.parametrize("spelling", ["h100-sxm", "H100 SXM", "h100_sxm", "H100SXM", "H100"])
def test_a_gpu_is_found_whatever_the_case_and_the_separators(spelling: str) -> None:
    assert catalog.gpu(spelling).name == "h100-sxm"


def test_an_unknown_name_is_refused_with_close_ones_and_never_replaced() -> None:
    with pytest.raises(catalog.UnknownEntry) as caught:
        catalog.gpu("rtx-4091")
    assert "rtx-4090" in caught.value.suggestions
    assert str(caught.value).startswith("no gpu is called 'rtx-4091' (did you mean ")
    with pytest.raises(LookupError):
        catalog.model("h100-sxm")
    with pytest.raises(catalog.UnknownEntry, match="falsim catalog list"):
        catalog.link("%%%%")


def test_entries_of_all_kinds_are_found_by_name() -> None:
    assert catalog.link("NVLink4").kind == "nvlink"
    assert catalog.node("DGX A100").name == "nvlink3-nvswitch"
    assert catalog.model("gpt2-xl").num_layers == 48
    assert isinstance(catalog.find("gb200-nvl72"), catalog.Node)
    with pytest.raises(catalog.UnknownEntry, match="no catalogue entry"):
        catalog.find("nothing like it")


def published_gpu_names() -> Iterator[str]:
    """GPU spellings of the published measurements, without a leading count and without what follows a comma."""
    measured = SHARED / "measured"
    columns = {
        "training_steps.csv": "gpu",
        "nanotron_h100.csv": "gpu",
        "kernels.csv": "gpu",
        "collectives.csv": "gpu",
        "hardware.csv": "gpu",
        "architecture_speedups.csv": "hardware",
    }
    for name, column in columns.items():
        with (measured / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                text = re.sub(r"^\d+x ", "", row[column])
                outside_parentheses = re.match(r"([^,(]|\([^)]*\))*", text)
                yield outside_parentheses.group() if outside_parentheses else text


@pytest.mark.skipif(not (SHARED / "measured").is_dir(), reason="published measurements are not beside this checkout")
def test_every_gpu_of_the_published_measurements_is_in_the_catalogue() -> None:
    names = set(published_gpu_names())
    assert len(names) > 40
    unknown = []
    for name in sorted(names - set(NAMES_NO_SINGLE_GPU)):
        try:
            catalog.gpu(name)
        except catalog.UnknownEntry as error:
            unknown.append(str(error))
    assert not unknown


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("A100 (SXM, memory size not in file)", "a100-sxm-80gb"),
        ("A100-40GB", "a100-sxm-40gb"),
        ("A100-PCIe-80GB", "a100-pcie-80gb"),
        ("H100 96GB HBM2e 500W (Grand Teton)", "h100-sxm-96gb-500w"),
        ("H100-NVL-80GB", "h100-nvl"),
        ("V100-SXM2", "v100-sxm2-32gb"),
        ("B200-SXM (table says H200, evidently typo)", "b200"),
    ],
)
def test_a_spelling_that_leaves_the_variant_open_means_a_stated_one(spelling: str, name: str) -> None:
    assert catalog.gpu(spelling).name == name


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_is_within_what_gpus_are(name: str) -> None:
    gpu = catalog.gpu(name)
    peaks = gpu.peak_flops
    assert "fp32" in peaks
    assert 1e11 < peaks["fp32"] < 2e14
    ordered = [peaks[precision] for precision in ("fp32", "tf32", "bf16", "fp8") if precision in peaks]
    assert ordered == sorted(ordered), "narrower formats are never slower"
    if {"fp16", "bf16"} <= peaks.keys():
        assert peaks["fp16"] == peaks["bf16"]
    if {"bf16", "fp8"} <= peaks.keys():
        assert peaks["fp8"] / peaks["bf16"] == pytest.approx(2, rel=0.03)
    assert 8e9 < gpu.memory < 320e9
    assert 5e10 < gpu.memory_bandwidth < 1e13
    assert 0.5 <= gpu.matmul_efficiency <= 1
    assert 0.7 <= gpu.memory_efficiency < 1
    assert 1 <= gpu.sm_count <= 320
    assert 0 < gpu.kernel_launch <= 1e-5
    assert 0 <= gpu.host_launch <= 2e-5
    assert gpu.thermal_design_power is not None
    assert 15 <= gpu.thermal_design_power <= 1500


def test_precisions_are_those_of_the_generation() -> None:
    assert set(catalog.gpu("v100").peak_flops) == {"fp32", "fp16"}
    assert set(catalog.gpu("rtx 2080 ti").peak_flops) == {"fp32", "fp16"}
    with_fp8 = {name for name in GPUS if "fp8" in catalog.gpu(name).peak_flops}
    ada_or_later = {"sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "gfx942"}
    assert with_fp8 == {name for name in GPUS if catalog.gpu(name).compute_capability in ada_or_later}


@pytest.mark.parametrize(
    ("name", "best_tflops"),
    [("a100", 271.2), ("h100", 794.5), ("b200", 1745), ("mi300x", 668.4), ("gh200", 828.6), ("a40", 123.1)],
)
def test_the_matmul_ceiling_is_the_best_measured_matmul(name: str, best_tflops: float) -> None:
    gpu = catalog.gpu(name)
    assert gpu.peak_flops["bf16"] * gpu.matmul_efficiency == pytest.approx(best_tflops * 1e12, rel=0.003)


@pytest.mark.skipif(not (SHARED / "measured").is_dir(), reason="published measurements are not beside this checkout")
def test_gpus_agree_with_the_collected_datasheets() -> None:
    with (SHARED / "measured" / "hardware.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] not in NAMES_NO_SINGLE_GPU]
    for row in rows:
        gpu = catalog.gpu(row["gpu"])
        for precision in ("bf16", "fp16", "tf32", "fp8"):
            published = row[f"{precision}_tflops_dense"]
            assert bool(published) == (precision in gpu.peak_flops), f"{gpu.name} {precision}"
            if published:
                assert gpu.peak_flops[precision] == pytest.approx(float(published) * 1e12, rel=0.005)
        assert gpu.peak_flops["fp32"] == pytest.approx(float(row["fp32_tflops"]) * 1e12, rel=0.005)
        # The B200's driver reports 7.67 TB/s where the datasheet prints 8.
        assert gpu.memory_bandwidth == pytest.approx(float(row["mem_bw_GBps"]) * 1e9, rel=0.045)
        # Error correction takes a sixteenth of GDDR6.
        assert gpu.memory == pytest.approx(float(row["memory_GB"]) * 2**30, rel=0.065)
        assert gpu.thermal_design_power == float(row["tdp_W"])
        assert gpu.sm_count == int(row["sm_count"])
        price = row["price_usd_per_gpu_hour"]
        assert gpu.price_per_hour == (float(price) if price else None)


def test_links_carry_their_published_rates_each_way() -> None:
    published = {
        "pcie3": 15.75e9, "pcie4": 31.5e9, "pcie5": 63e9,
        "nvlink2": 150e9, "nvlink3": 300e9, "nvlink4": 450e9, "nvlink5": 900e9,
        "nvlink3-bridge": 56.25e9, "nvlink2-bridge": 50e9,
        "infiniband-400g": 50e9, "roce-200g": 25e9, "ethernet-10g": 1.25e9,
    }  # fmt: skip
    assert {name: catalog.link(name).bandwidth for name in published} == pytest.approx(published)


@pytest.mark.parametrize(
    ("name", "ring_gb_per_s"),
    [("nvlink3", 234.9), ("nvlink4", 365.6), ("nvlink5", 682.2), ("pcie4", 21), ("nvlink2", 134.5)],
)
def test_a_ring_reaches_the_measured_bus_bandwidth(name: str, ring_gb_per_s: float) -> None:
    link = catalog.link(name)
    assert link.bandwidth * link.efficiency == pytest.approx(ring_gb_per_s * 1e9, rel=0.005)


def test_only_nvlink_4_and_5_reduce_in_the_switch() -> None:
    reducing = {name: catalog.link(name) for name in LINKS if catalog.link(name).in_network_reduction}
    assert set(reducing) == {"nvlink4", "nvlink5"}
    measured = {"nvlink4": 473.1e9, "nvlink5": 838e9}
    for name, link in reducing.items():
        assert link.bandwidth * (link.in_network_reduction or 0) == pytest.approx(measured[name], rel=0.001)


def test_network_links_say_who_has_a_nic_and_no_other_link_does() -> None:
    for name in LINKS:
        link = catalog.link(name)
        assert (link.nics is not None) == (link.kind == "network")
        if link.kind == "network":
            assert link.nics == ("per_node" if name.startswith("ethernet") else "per_gpu")
        assert link.latency is None, "no source gives a latency for one hop"


@pytest.mark.parametrize("name", NODES)
def test_a_node_names_links_that_exist_and_the_flows_of_its_topology(name: str) -> None:
    node = catalog.node(name)
    kind = catalog.link(node.link).kind
    allowed = {
        "nvswitch": {"nvlink"},
        "mesh": {"nvlink", "infinity_fabric"},
        "pairs": {"nvlink"},
        "shared_root": {"pcie"},
        "two_sockets": {"pcie"},
        "shared_memory": {"memory"},
    }
    assert kind in allowed[node.topology]
    over_pcie = node.topology in ("pairs", "shared_root", "two_sockets")
    assert (node.concurrent_flows is not None) == over_pcie
    assert (node.concurrent_flows_host is not None) == over_pcie
    assert (node.between_pairs is not None) == (node.topology == "pairs")
    assert (node.cross_socket_flows is not None) == (node.topology == "two_sockets")
    if node.between_pairs:
        assert catalog.link(node.between_pairs).kind == "pcie"
    if node.concurrent_flows and node.concurrent_flows_host:
        assert node.concurrent_flows_host < node.concurrent_flows, "a detour through host memory is never faster"


def ring_over_one_root(node_name: str, gpus: int, peer_to_peer: bool) -> float:
    """The formula of Node.concurrent_flows, in GB/s."""
    node = catalog.node(node_name)
    link = catalog.link(node.link)
    flows = node.concurrent_flows if peer_to_peer else node.concurrent_flows_host
    assert flows is not None
    return link.bandwidth * link.efficiency * min(1, flows / gpus) / 1e9


def test_gpus_behind_one_root_share_it_as_measured() -> None:
    a100 = {gpus: ring_over_one_root("pcie4-shared-root", gpus, peer_to_peer=True) for gpus in (2, 4, 8)}
    assert a100 == pytest.approx({2: 20.9, 4: 20.8, 8: 12.5}, rel=0.02)
    rtx4090 = {gpus: ring_over_one_root("pcie4-shared-root", gpus, peer_to_peer=False) for gpus in (2, 8)}
    assert rtx4090 == pytest.approx({2: 9.08, 8: 2.62}, rel=0.08)
    assert ring_over_one_root("pcie5-shared-root", 8, peer_to_peer=True) == pytest.approx(41.1, rel=0.02)


def test_consumer_gpus_have_no_peer_to_peer_over_pcie_and_server_gpus_do() -> None:
    consumer = {"rtx-2080-ti", "rtx-3090", "rtx-4090", "rtx-5090"}
    without = {name for name in GPUS if not catalog.gpu(name).pcie_peer_to_peer}
    assert without == consumer | {"laptop-cpu"}


def test_list_prints_every_entry_of_the_kinds_asked_for() -> None:
    result = CliRunner().invoke(command, ["list", "links", "nodes"])
    assert result.exit_code == 0
    for name in (*LINKS, *NODES):
        assert name in result.output
    assert "h100-sxm" not in result.output


def test_list_as_json_holds_si_numbers_and_parameter_counts() -> None:
    result = CliRunner().invoke(command, ["list", "--format", "json"])
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert len(rows) == len(EVERY_ENTRY)
    assert rows["nvlink4"]["bandwidth"] == 450e9
    assert rows["nvlink4"]["type"] == "link"
    assert rows["gpt2-124m"]["parameters"] == 124_439_808


def test_show_prints_every_number_with_its_unit_and_source() -> None:
    result = CliRunner().invoke(command, ["show", "H100 SXM"])
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    for expected in ("3.35 TB/s", "79.65 GiB", "700 W", "NVIDIA H100 datasheet (2023)", "karpathy/llm.c"):
        assert expected in text


def test_aliases_that_carry_a_remark_are_found_but_not_shown() -> None:
    [remarked, *_] = [alias for alias in catalog.gpu("h100-sxm").aliases if "(" in alias]
    assert catalog.gpu(remarked).name == "h100-sxm"
    for arguments in (["show", "h100"], ["show", "h100", "--format", "json"], ["list", "gpus", "--format", "json"]):
        output = CliRunner().invoke(command, arguments).output
        assert "h100-sxm5-80gb" in output
        assert remarked not in " ".join(output.split())


@pytest.mark.parametrize("columns", ["5", "100"])
def test_a_list_is_whole_however_narrow_the_terminal(columns: str) -> None:
    output = CliRunner().invoke(command, ["list"], env={"COLUMNS": columns}).output
    assert "…" not in output
    assert all(name in output for name in (*GPUS, *LINKS, *NODES))


def test_show_refuses_an_unknown_name_with_a_suggestion() -> None:
    result = CliRunner().invoke(command, ["show", "llama-2-7bb"])
    assert result.exit_code == 2
    assert "llama-2-7b" in result.output


def test_quantities_in_the_data_are_read_with_their_units() -> None:
    assert DIMENSIONS["memory"] == "bytes"
    assert catalog.gpu("h100").memory == 81559 * 2**20
    assert catalog.gpu("rtx 4090").host_launch == pytest.approx(5e-6)
    assert catalog.link("infiniband-200g").bandwidth == 25e9
