"""Where an architecture stops paying, checked by simulating again with the bandwidth that was found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import MODEL, make_scenario

from falsim.scenario import Scenario, load_scenario
from falsim.simulate import simulate
from falsim.studies.break_even import PAYS, break_even

SMALL: dict[str, Any] = {
    "workload": "training",
    "model": MODEL,
    "parallelism": {"data": 1},
    "training": {"sequence_length": 1024, "micro_batch_size": 2, "global_batch_size": 2},
}
INSIDE = SMALL | {
    "parallelism": {"data": 1, "tensor": 4},
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 4, "intra_node": "nvlink3-nvswitch"},
}
ROOT = INSIDE | {"cluster": {"gpu": "rtx-4090", "gpus_per_node": 4, "intra_node": "pcie4-shared-root"}}
ACROSS = SMALL | {
    "parallelism": {"data": 1, "tensor": 8},
    "cluster": {
        "gpu": "a100-sxm-80gb",
        "gpus_per_node": 4,
        "nodes": 2,
        "intra_node": "nvlink3-nvswitch",
        "inter_node": "infiniband-400g",
    },
}
STEP = 1.004
"""Just above: wider than the last refinement, whose neighbours are 10^(6/60/60) = 1.0039 apart."""


def at(data: dict[str, Any], path: str, bandwidth: float, architecture: str) -> float:
    """The gain over GPT with a link of so many bytes/s."""
    scenario = load_scenario(json.dumps(data), [f"{path}={bandwidth / 1e9!r} GB/s"])
    return simulate(scenario)[architecture].speedup_over_gpt - 1.0


def load(data: dict[str, Any]) -> Scenario:
    return load_scenario(json.dumps(data))


@pytest.mark.parametrize("architecture", ["fal", "parallel", "ladder"])
@pytest.mark.parametrize(
    ("data", "path"),
    [
        (INSIDE, "cluster.intra_node.bandwidth"),
        (ROOT, "cluster.intra_node.bandwidth"),
        (ACROSS, "cluster.inter_node.bandwidth"),
    ],
)
@pytest.mark.parametrize("threshold", [PAYS, 0.15])
def test_the_gain_crosses_the_threshold_where_it_says(
    data: dict[str, Any], path: str, architecture: str, threshold: float
) -> None:
    found = break_even(load(data), architecture, threshold)
    assert (found.path, found.architecture, found.threshold) == (path, architecture, threshold)
    crossings = 0
    if found.bandwidth is not None:
        assert found.lowest <= found.bandwidth <= found.highest
        assert at(data, path, found.bandwidth, architecture) >= threshold * (1 - 1e-9)
        assert at(data, path, found.bandwidth * STEP, architecture) < threshold
        crossings += 1
    if found.pays_from is not None:
        assert at(data, path, found.pays_from, architecture) >= threshold * (1 - 1e-9)
        assert at(data, path, found.pays_from / STEP, architecture) < threshold
        crossings += 1
    if crossings == 0:
        ends = [at(data, path, bandwidth, architecture) >= threshold for bandwidth in (found.lowest, found.highest)]
        assert ends == [found.always] * 2


def test_some_crossing_is_found() -> None:
    """A gain needs a slow link: fal pays on a slow one and not on an ideal one; ladder needs compute to hide under."""
    found = break_even(load(INSIDE), "fal")
    assert found.bandwidth is not None
    assert break_even(load(INSIDE), "ladder").pays_from is not None
    assert not found.always
    assert found.current == pytest.approx(300e9)
    assert (found.lowest, found.highest) == pytest.approx((found.current / 1000, found.current * 1000))


def test_gpt_never_pays_over_itself() -> None:
    found = break_even(load(INSIDE), "gpt")
    assert (found.bandwidth, found.pays_from, found.always) == (None, None, False)


def test_without_tensor_parallelism_there_is_nothing_to_break_even_on() -> None:
    with pytest.raises(ValueError, match="tensor"):
        break_even(make_scenario(parallelism={"data": 2}, training={"global_batch_size": 4}), "fal")
