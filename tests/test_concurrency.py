"""Attention and MLP of a block at once: the best case, and only where neither reads the other."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import make_scenario

from falsim.costs.prices import Prices, prices_of
from falsim.dataflow import Graph, Op, Stream
from falsim.engines.concurrency import concurrent_seconds
from falsim.engines.schedule import run_step
from falsim.engines.stream import run_pass
from falsim.program import Program

WIDE = {"hidden_size": 8192, "intermediate_size": 32768, "num_attention_heads": 64, "num_key_value_heads": 8}
SCENARIOS: list[dict[str, Any]] = [
    {},
    {"parallelism": {"tensor": 4}},
    {"parallelism": {"tensor": 8}, "model": WIDE},
    {"parallelism": {"tensor": 4, "sequence": True}, "training": {"sequence_length": 8192}},
    {"parallelism": {"tensor": 4}, "training": {"attention": "unfused"}},
    {"parallelism": {"tensor": 4}, "training": {"recompute": "full"}},
    {"parallelism": {"tensor": 4}, "implementation": {"overlap": "async_tp"}},
    {"parallelism": {"tensor": 4}, "cluster": {"gpu": "rtx-4090", "intra_node": "pcie4-shared-root"}},
    {"parallelism": {"tensor": 2, "pipeline": 2}, "training": {"global_batch_size": 8}},
]


def seconds(architecture: str, sections: dict[str, Any], *, concurrent: bool) -> float:
    switches = sections.get("implementation", {}) | {"concurrent_attention_mlp": concurrent}
    scenario = make_scenario(**sections | {"implementation": switches})
    return float(run_step(Program(scenario, architecture), prices_of(scenario)).seconds)


@pytest.mark.parametrize("architecture", ["fal", "parallel"])
@pytest.mark.parametrize("sections", SCENARIOS)
def test_independent_branches_at_once_are_never_slower(architecture: str, sections: dict[str, Any]) -> None:
    at_once, in_turn = (seconds(architecture, sections, concurrent=concurrent) for concurrent in (True, False))
    assert at_once <= in_turn * (1 + 1e-12)


@pytest.mark.parametrize("architecture", ["fal", "parallel"])
def test_something_is_gained_where_one_branch_leaves_the_tensor_cores_idle(architecture: str) -> None:
    sections: dict[str, Any] = {"model": {"hidden_size": 512, "intermediate_size": 512, "num_attention_heads": 8}}
    sections["model"]["num_key_value_heads"] = 8
    at_once, in_turn = (seconds(architecture, sections, concurrent=concurrent) for concurrent in (True, False))
    assert at_once < in_turn


@pytest.mark.parametrize("architecture", ["gpt", "fal_plus", "ladder", "no_sync"])
@pytest.mark.parametrize("sections", SCENARIOS)
def test_an_architecture_whose_mlp_reads_its_attention_gains_nothing(
    architecture: str, sections: dict[str, Any]
) -> None:
    at_once, in_turn = (seconds(architecture, sections, concurrent=concurrent) for concurrent in (True, False))
    assert at_once == in_turn


def compute(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.stream is Stream.COMPUTE and op.work is not None]


def resources(graph: Graph, prices: Prices) -> tuple[float, float]:
    """Summed seconds of tensor cores and of memory of every kernel of a graph, each at its full rate."""
    demands = [(op.share, prices.demand(op.work)) for op in compute(graph)]
    return tuple(float(sum(share * demand[r] for share, demand in demands)) for r in (0, 1))  # type: ignore[return-value]


@pytest.mark.parametrize("architecture", ["fal", "parallel"])
@pytest.mark.parametrize("sections", SCENARIOS)
def test_no_block_is_faster_than_its_busier_resource(architecture: str, sections: dict[str, Any]) -> None:
    scenario = make_scenario(**sections)
    prices = prices_of(scenario)
    block = Program(scenario, architecture).blocks["later"]
    for graph in (block.forward, block.backward):
        alone = [op.share * prices.seconds(op.work) for op in graph.ops]
        at_once = concurrent_seconds(graph, alone, prices)
        busy = sum(float(t) for t, op in zip(at_once, graph.ops, strict=True) if op.stream is Stream.COMPUTE)
        assert busy >= max(resources(graph, prices)) * (1 - 1e-12)
        for together, single, op in zip(at_once, alone, graph.ops, strict=True):
            assert together <= single * (1 + 1e-12)
            if op.stream is not Stream.COMPUTE:
                assert together == single


@pytest.mark.parametrize("architecture", ["fal", "parallel"])
def test_a_pass_ends_no_earlier_than_the_busier_resource_of_its_blocks(architecture: str) -> None:
    for sections in SCENARIOS:
        scenario = make_scenario(**sections)
        program, prices = Program(scenario, architecture), prices_of(scenario)
        for runs in (program.forward(0), program.backward(0)):
            needed = [resources(run.graph, prices) for run in runs for _ in range(run.count)]
            floor = max(sum(pair[0] for pair in needed), sum(pair[1] for pair in needed))
            assert float(run_pass(runs, prices, concurrent=True).duration) >= floor * (1 - 1e-12)
