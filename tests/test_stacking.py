"""Arrays of configurations give exactly what single configurations give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import make_scenario

from falsim.costs.prices import prices_of
from falsim.engines.schedule import run_step
from falsim.engines.stacking import by_structure, structure
from falsim.program import Program
from falsim.program.memory import memory_of
from falsim.scenario import Scenario

WIDE = {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8}
NARROW = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8}
EXPERTS = {"num_experts": 8, "num_experts_per_token": 2}
TWO_NODES = {"gpus_per_node": 4, "nodes": 2, "inter_node": "infiniband-400g"}
MIXED: list[dict[str, Any]] = [
    {},
    {"model": WIDE},
    {"model": NARROW, "training": {"sequence_length": 2048, "micro_batch_size": 4, "global_batch_size": 16}},
    {"model": {"vocab_size": 50257}, "training": {"global_batch_size": 6}},
    {"parallelism": {"tensor": 2}},
    {"parallelism": {"tensor": 4}, "model": WIDE, "training": {"global_batch_size": 8}},
    {"parallelism": {"tensor": 4, "data": 2}, "training": {"global_batch_size": 8}, "cluster": TWO_NODES},
    {"parallelism": {"tensor": 2, "data": 4}, "training": {"global_batch_size": 8}, "cluster": TWO_NODES},
    {"parallelism": {"tensor": 2, "data": 4}, "training": {"global_batch_size": 16}, "cluster": TWO_NODES},
    {"parallelism": {"tensor": 2, "sequence": True}},
    {"parallelism": {"tensor": 4, "sequence": True}, "model": WIDE, "training": {"global_batch_size": 4}},
    {"parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe"}, "training": {"global_batch_size": 8}},
    {"parallelism": {"pipeline": 2}, "model": WIDE, "training": {"global_batch_size": 8}},
    {"parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe"}, "training": {"global_batch_size": 16}},
    {"parallelism": {"tensor": 2, "pipeline": 2}, "model": {"tie_word_embeddings": True}},
    {"parallelism": {"tensor": 4, "pipeline": 2}, "model": {"tie_word_embeddings": True}},
    {"parallelism": {"tensor": 2, "sequence": True, "pipeline": 2}, "training": {"global_batch_size": 4}},
    {"parallelism": {"tensor": 4, "sequence": True, "pipeline": 2}, "training": {"global_batch_size": 4}},
    {"parallelism": {"data": 8, "expert": 2}, "model": EXPERTS, "training": {"global_batch_size": 16}},
    {"parallelism": {"data": 4, "expert": 2}, "model": EXPERTS, "training": {"global_batch_size": 8}},
    {"parallelism": {"data": 4, "expert": 4, "tensor": 2}, "model": EXPERTS, "training": {"global_batch_size": 8}},
    {"parallelism": {"data": 4, "zero": 1}, "training": {"global_batch_size": 8}},
    {"parallelism": {"data": 2, "zero": 1}, "model": NARROW, "training": {"global_batch_size": 8}},
    {"parallelism": {"data": 4, "zero": 3}, "training": {"global_batch_size": 8}},
    {"parallelism": {"data": 2, "zero": 3}, "training": {"global_batch_size": 8}},
    {"parallelism": {"context": 2}, "training": {"sequence_length": 2048}},
    {"parallelism": {"context": 4}, "training": {"sequence_length": 4096}},
    {"parallelism": {"tensor": 2}, "implementation": {"overlap": "async_tp"}},
    {"parallelism": {"tensor": 4}, "implementation": {"overlap": "async_tp"}, "model": WIDE},
    {"parallelism": {"tensor": 2}, "training": {"recompute": "full"}},
    {"parallelism": {"tensor": 4}, "training": {"recompute": "full"}, "model": NARROW},
    {"parallelism": {"tensor": 2}, "implementation": {"concurrent_attention_mlp": True}},
    {"parallelism": {"tensor": 4}, "implementation": {"concurrent_attention_mlp": True}, "model": WIDE},
    {"parallelism": {"tensor": 2}, "cluster": {"gpu": "rtx-4090", "intra_node": "pcie4-two-sockets"}},
]


@pytest.fixture(scope="module")
def scenarios() -> list[Scenario]:
    return [make_scenario(**sections) for sections in MIXED]


@pytest.mark.parametrize("architecture", ["gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync"])
def test_steps_of_arrays_are_those_of_single_scenarios(scenarios: list[Scenario], architecture: str) -> None:
    for positions, stacked in by_structure(scenarios):
        times = run_step(Program(stacked, architecture), prices_of(stacked))
        seconds = np.broadcast_to(times.seconds, len(positions))
        raw = np.broadcast_to(times.tensor_communication, len(positions))
        for place, position in enumerate(positions):
            alone = run_step(Program(scenarios[position], architecture), prices_of(scenarios[position]))
            assert seconds[place] == pytest.approx(float(alone.seconds), rel=1e-12), MIXED[position]
            assert raw[place] == pytest.approx(float(alone.tensor_communication), rel=1e-12), MIXED[position]
            for part, value in times.parts.items():
                found = float(np.broadcast_to(value, len(positions))[place])
                assert found == pytest.approx(float(alone.parts[part]), rel=1e-9, abs=1e-12), (part, MIXED[position])


@pytest.mark.parametrize("architecture", ["gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync"])
def test_peaks_of_arrays_are_those_of_single_scenarios(scenarios: list[Scenario], architecture: str) -> None:
    for positions, stacked in by_structure(scenarios):
        peaks = np.broadcast_to(memory_of(Program(stacked, architecture)).peak, len(positions))
        for place, position in enumerate(positions):
            alone = memory_of(Program(scenarios[position], architecture)).peak
            assert peaks[place] == pytest.approx(float(alone), rel=1e-12), MIXED[position]


def test_experts_with_and_without_replicas_are_of_two_structures() -> None:
    """Data 2 and expert 2: nobody shares an expert; data 4: two ranks do, and reduce its gradients."""
    alone, shared = (
        make_scenario(model=EXPERTS, parallelism={"data": data, "expert": 2}, training={"global_batch_size": 2 * data})
        for data in (2, 4)
    )
    assert structure(alone) != structure(shared)


def test_every_scenario_is_in_one_group(scenarios: list[Scenario]) -> None:
    groups = list(by_structure(scenarios))
    assert sorted(position for positions, _ in groups for position in positions) == list(range(len(scenarios)))
    assert max(len(positions) for positions, _ in groups) >= 4  # something is stacked at all
    assert len(groups) < len(scenarios)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"parallelism": {"tensor": 2}}),
        ({"parallelism": {"tensor": 2}}, {"parallelism": {"tensor": 2, "sequence": True}}),
        ({}, {"model": {"num_layers": 8}}),
        ({}, {"model": EXPERTS}),
        ({}, {"training": {"recompute": "full"}}),
        ({}, {"cluster": {"gpu": "a100-sxm-80gb"}}),
        (
            {"parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe"}, "training": {"global_batch_size": 8}},
            {"parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe"}, "training": {"global_batch_size": 16}},
        ),
        (
            {"parallelism": {"tensor": 8}, "cluster": TWO_NODES},
            {"parallelism": {"tensor": 4, "data": 2}, "cluster": TWO_NODES, "training": {"global_batch_size": 4}},
        ),
    ],
)
def test_what_changes_graphs_or_loops_is_structure(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert structure(make_scenario(**one)) != structure(make_scenario(**other))
