"""Clusters for measurements: a GPU's name and a wiring as the resolved sections of a scenario."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from falsim import catalog
from falsim.calibration.cells import Unpredictable
from falsim.calibration.defaults import Wiring, fp4_over_fp8
from falsim.catalog.entries import Gpu
from falsim.scenario.presets import inside_one_gpu, resolve_inter_node, resolve_intra_node
from falsim.scenario.report import Report
from falsim.scenario.schema import Cluster, InterNode, IntraNode
from falsim.scenario.written import InterNodeFields, IntraNodeFields
from falsim.yaml_source import compose_yaml


@lru_cache(maxsize=4096)
def cluster_of(gpu: str, gpus: int, wiring: Wiring, *, fp4: bool = False) -> Cluster:
    """`gpus` GPUs, joined by presets; a last node is never half full: nodes shrink until they are all alike."""
    room = min(gpus, wiring.gpus_per_node)
    room = room if gpus % room == 0 else gcd(gpus, room)
    return nodes_of(gpu, room, gpus // room, wiring, fp4=fp4)


@lru_cache(maxsize=4096)
def nodes_of(gpu: str, gpus_per_node: int, nodes: int, wiring: Wiring, *, fp4: bool = False) -> Cluster:
    """So many nodes with so many of their GPUs in use; the network cards are shared out over all GPUs of a node.

    Raises:
        Unpredictable: the catalogue does not know the GPU, or the GPU has no fp4 rate where one is asked for.
    """
    entry = gpu_of(gpu)
    if fp4:
        factor = fp4_over_fp8(entry.name)
        if factor is None:
            raise Unpredictable("the GPU has no fp4 rate")
        entry = entry.model_copy(update={"peak_flops": entry.peak_flops | {"fp8": entry.peak_flops["fp8"] * factor}})
    whole = wiring.gpus_per_node
    cards = None if wiring.nics_per_node is None else max(1, wiring.nics_per_node * min(gpus_per_node, whole) // whole)
    inside = _intra_node(wiring.intra_node) if gpus_per_node > 1 else inside_one_gpu(entry)
    return Cluster.model_construct(
        gpu=entry,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        intra_node=inside,
        inter_node=_inter_node(wiring.inter_node, cards, gpus_per_node) if nodes > 1 else None,
    )


def gpu_of(name: str) -> Gpu:
    """The catalogue's GPU of this name or alias; raises Unpredictable for an unknown one."""
    found = _gpu(name)
    if found is None:
        raise Unpredictable(f"GPU {name!r} is not in the catalogue")
    return found


@lru_cache(maxsize=512)
def _gpu(name: str) -> Gpu | None:
    try:
        return catalog.gpu(name)
    except catalog.UnknownEntry:
        return None


@lru_cache(maxsize=256)
def _intra_node(preset: str) -> IntraNode:
    report = _report()
    node = resolve_intra_node(IntraNodeFields.model_validate({"preset": preset}), report)
    assert node is not None, preset
    return node


@lru_cache(maxsize=256)
def _inter_node(preset: str, cards: int | None, gpus_per_node: int) -> InterNode:
    report = _report()
    fields = InterNodeFields.model_validate({"preset": preset})
    node = resolve_inter_node(fields, gpus_per_node, report)
    assert node is not None, preset
    return node if cards is None else node.model_copy(update={"nics_per_node": cards})


def _report() -> Report:
    """A report that nobody reads: presets of the data file are known to exist."""
    return Report(compose_yaml("{}", "validation_defaults.yaml"), {}, {})
