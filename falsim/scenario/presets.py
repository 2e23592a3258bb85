"""Turns names of presets and the fields on top of them into catalogue entries and links: fields win."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from falsim import catalog
from falsim.catalog.entries import Entry, Gpu, Link, Node
from falsim.scenario.report import Report
from falsim.scenario.schema import InterNode, IntraNode, PairLink, Section
from falsim.scenario.written import GpuFields, InterNodeFields, IntraNodeFields, LinkFields, Preset
from falsim.yaml_source import Path

AnEntry = TypeVar("AnEntry", bound=Entry)
ASection = TypeVar("ASection", bound=Section)

GPU: Path = ("cluster", "gpu")
INTRA_NODE: Path = ("cluster", "intra_node")
INTER_NODE: Path = ("cluster", "inter_node")

# What joins the GPUs of a node when a bare link is named instead of a node.
_ROOT_OF_LINK = {f"pcie{generation}-x16": f"pcie{generation}-shared-root" for generation in (3, 4, 5)}
_TOPOLOGY_OF_LINK = {
    "nvlink": "nvswitch",
    "infinity_fabric": "nvswitch",
    "pcie": "shared_root",
    "memory": "shared_memory",
}


def resolve_gpu(fields: GpuFields, report: Report) -> Gpu | None:
    """The catalogue's GPU with the file's fields on top; None when a problem was reported."""
    values = given(fields)
    base: dict[str, Any] = {"name": "custom", "title": "custom GPU", "sources": {"*": "the scenario file"}}
    if fields.preset is not None:
        preset = look_up(catalog.gpu, fields.preset, (*GPU, "preset"), report)
        if preset is None:
            return None
        base = on_top_of(preset, values)
        values["peak_flops"] = preset.peak_flops | (fields.peak_flops or {})
    try:
        return Gpu.model_validate(base | values)
    except ValidationError as error:
        missing = [str(details["loc"][0]) for details in error.errors()]
        report.add(f"without a preset these fields are missing: {', '.join(missing)} (or add preset: NAME)", GPU)
        return None


def resolve_intra_node(fields: IntraNodeFields, report: Report) -> IntraNode | None:
    """The links inside a node: a node preset or a bare link, with the file's fields on top."""
    values = given(fields)
    base: dict[str, Any] = {}
    pairs_preset = None
    if fields.preset is not None:
        path = (*INTRA_NODE, "preset")
        preset = look_up(_node_or_link, fields.preset, path, report)
        if preset is None:
            return None
        link = preset if isinstance(preset, Link) else catalog.link(preset.link)
        if link.kind == "network":
            report.add(f"{link.name} joins nodes, not the GPUs of one (use it as cluster.inter_node)", path)
            return None
        base = _shared_fields(link, IntraNode) | {"topology": _TOPOLOGY_OF_LINK[link.kind]}
        if isinstance(preset, Node):
            base |= _shared_fields(preset, IntraNode)
            pairs_preset = preset.between_pairs
        base["preset"] = preset.name
    pairs = fields.between_pairs
    if pairs_preset is not None and (pairs is None or pairs.preset is None):
        pairs = (pairs or LinkFields()).model_copy(update={"preset": pairs_preset})
    values["between_pairs"] = _resolve_pair_link(pairs, report) if pairs is not None else None
    links = _build(IntraNode, base | values, INTRA_NODE, report)
    if links is not None and fields.in_network_reduction is None and not links.switched:
        return links.model_copy(update={"in_network_reduction": None})  # the preset's switch is not there any more
    return links


def resolve_inter_node(fields: InterNodeFields, gpus_per_node: int, report: Report) -> InterNode | None:
    """The links between nodes: a link preset with the file's fields on top."""
    base: dict[str, Any] = {"nics_per_node": 1}
    if fields.preset is not None:
        path = (*INTER_NODE, "preset")
        link = look_up(catalog.link, fields.preset, path, report)
        if link is None:
            return None
        if link.kind in ("pcie", "memory"):
            report.add(f"{link.name} does not leave a node (name a network, for example infiniband-400g)", path)
            return None
        nics = gpus_per_node if link.nics == "per_gpu" else 1
        base = _shared_fields(link, InterNode) | {"preset": link.name, "nics_per_node": nics}
    return _build(InterNode, base | given(fields), INTER_NODE, report)


def inside_one_gpu(gpu: Gpu) -> IntraNode:
    """What stands for the links of a node that has one GPU and names no link: the GPU's own memory."""
    return IntraNode.model_validate(
        dict.fromkeys(IntraNode.model_fields)
        | {
            "topology": "shared_memory",
            "kind": "memory",
            "bandwidth": gpu.memory_bandwidth,
            "efficiency": gpu.memory_efficiency,
        }
    )


def look_up(find: Callable[[str], AnEntry], name: str, path: Path, report: Report) -> AnEntry | None:
    """The catalogue entry of this name; reports an unknown name at `path` and returns None."""
    try:
        return find(name)
    except catalog.UnknownEntry as error:
        report.add(str(error), path)
        return None


def given(fields: Preset) -> dict[str, Any]:
    """The fields a file gives on top of a preset, as SI values."""
    return {name: value for name, value in fields if name != "preset" and value is not None}


def on_top_of(preset: Entry, values: dict[str, Any]) -> dict[str, Any]:
    """The preset's fields, with the scenario named as the source of those that `values` will replace."""
    sources = preset.sources | dict.fromkeys(values, "the scenario file")
    return {name: value for name, value in preset if name not in values} | {"sources": sources}


def _node_or_link(name: str) -> Node | Link:
    """A node preset, or the link of that name; the error proposes close names of both.

    PCIe never stands alone: its preset with one root says how many flows the root carries.
    """
    try:
        return catalog.node(name)
    except catalog.UnknownEntry as no_node:
        try:
            link = catalog.link(name)
            return catalog.node(_ROOT_OF_LINK[link.name]) if link.name in _ROOT_OF_LINK else link
        except catalog.UnknownEntry as no_link:
            close = (*no_node.suggestions[:2], *no_link.suggestions[:2])
            raise catalog.UnknownEntry("node or link", name, close) from None


def _resolve_pair_link(fields: LinkFields, report: Report) -> PairLink | None:
    path = (*INTRA_NODE, "between_pairs")
    base: dict[str, Any] = {}
    if fields.preset is not None:
        link = look_up(catalog.link, fields.preset, (*path, "preset"), report)
        if link is None:
            return None
        base = _shared_fields(link, PairLink) | {"preset": link.name}
    return _build(PairLink, base | given(fields), path, report)


def _shared_fields(entry: Entry, section: type[Section]) -> dict[str, Any]:
    """The fields of a catalogue entry that the section has too."""
    return {name: value for name, value in entry if name in section.model_fields and name != "between_pairs"}


def _build(section: type[ASection], values: dict[str, Any], path: Path, report: Report) -> ASection | None:
    """The section; reports which fields are missing when there is no preset to take them from."""
    try:
        return section.model_validate(dict.fromkeys(section.model_fields) | values)
    except ValidationError as error:
        missing = [str(details["loc"][0]) for details in error.errors()]
        report.add(f"without a preset these fields are missing: {', '.join(missing)} (or add preset: NAME)", path)
        return None
