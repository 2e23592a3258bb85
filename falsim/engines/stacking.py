"""Many scenarios of one structure as a single scenario of arrays, so that they are evaluated in one call."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from pydantic import BaseModel

from falsim.costs.topology import nodes_spanned, process_groups
from falsim.scenario import Scenario

NUMBERS: dict[str, tuple[str, ...]] = {
    "model": (
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    ),
    "parallelism": ("tensor", "context", "data", "expert"),
    "training": ("sequence_length", "micro_batch_size", "global_batch_size"),
    "cluster": ("gpus_per_node", "nodes"),
}
"""The fields that may differ within one structure."""
NAMES = ("name", "title", "aliases", "sources")


def structure(scenario: Scenario) -> Hashable:
    """What must be equal for two scenarios to share their graphs and loops.

    Beside every field that is not in `NUMBERS`: which degrees exceed one, which process groups leave a node, the number
    of layers and, in a pipeline that is not plain 1F1B, of micro-batches.
    """
    cluster, parallel = scenario.cluster, scenario.parallelism
    groups = process_groups(scenario)
    shared = cluster.intra_node.topology != "nvswitch"
    return (
        *(_rest(getattr(scenario, section), names) for section, names in NUMBERS.items() if section != "cluster"),
        _rest(scenario.implementation, ()),
        tuple(size > 1 for size, _ in groups.values()),
        tuple(_placement(size, stride, cluster.gpus_per_node) for size, stride in groups.values()),
        (tuple(groups.values()), cluster.gpus_per_node) if shared else (),
        cluster.nodes > 1,
        scenario.num_micro_batches if parallel.pipeline > 1 and parallel.pipeline_schedule != "1f1b" else None,
        scenario.calibration,
        cluster.gpu.model_dump_json(),
        cluster.intra_node.model_dump_json(),
        cluster.inter_node and cluster.inter_node.model_dump_json(),
    )


def _rest(section: BaseModel, numbers: tuple[str, ...]) -> Hashable:
    return tuple(value for key, value in section.__dict__.items() if key not in numbers and key not in NAMES)


def _placement(size: int, stride: int, gpus_per_node: int) -> tuple[bool, bool]:
    """Whether a process group leaves a node, and whether several of its ranks share one."""
    nodes = nodes_spanned(size, stride, gpus_per_node)
    return bool(nodes > 1), bool(size > nodes)


def stack(scenarios: Sequence[Scenario]) -> Scenario:
    """One scenario whose numbers are arrays over `scenarios`, which must be of one structure."""
    first = scenarios[0]
    sections = {}
    for section, names in NUMBERS.items():
        columns = {
            name: np.array([getattr(getattr(s, section), name) for s in scenarios], dtype=np.int64) for name in names
        }
        sections[section] = getattr(first, section).model_copy(update=columns)
    return first.model_copy(update=sections)


def by_structure(scenarios: Sequence[Scenario]) -> Iterator[tuple[list[int], Scenario]]:
    """Groups of one structure: the positions of their members, and the stacked scenario."""
    groups: dict[Hashable, list[int]] = {}
    for position, scenario in enumerate(scenarios):
        groups.setdefault(structure(scenario), []).append(position)
    for positions in groups.values():
        yield positions, stack([scenarios[position] for position in positions])
