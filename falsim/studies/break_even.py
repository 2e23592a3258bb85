"""Where an architecture stops paying: the link bandwidth at which its gain over GPT falls below a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from falsim.costs.prices import prices_of
from falsim.dataflow import Number
from falsim.engines.schedule import run_step
from falsim.program import Program
from falsim.scenario import Scenario

PAYS = 0.05
"""A gain below this is taken as not worth another architecture."""
POINTS = 61


@dataclass(frozen=True)
class BreakEven:
    """Where a gain of `threshold` is reached as one link's bandwidth changes.

    Above `bandwidth` (bytes/s of the scenario's field `path`) the gain is smaller. It is None when the gain stays on
    one side from `lowest` to `highest`: `always` tells on which.
    """

    path: str
    architecture: str
    threshold: float
    current: float
    bandwidth: float | None
    always: bool
    lowest: float
    highest: float


def break_even(scenario: Scenario, architecture: str, threshold: float = PAYS) -> BreakEven:
    """The bandwidth of the slowest link in the tensor-parallel group at which the gain over GPT falls to `threshold`.

    Found on a grid from 1/1000 to 1000 times the present bandwidth, refined once; a gain is a paired ratio of step
    times.
    """
    across = scenario.parallelism.tensor > scenario.cluster.gpus_per_node
    path = "cluster.inter_node.bandwidth" if across else "cluster.intra_node.bandwidth"
    link = scenario.cluster.inter_node if across else scenario.cluster.intra_node
    assert link is not None
    programs = (Program(scenario, "gpt"), Program(scenario, architecture))
    lowest, highest = link.bandwidth / 1000.0, link.bandwidth * 1000.0
    grid = np.geomspace(lowest, highest, POINTS)
    pays = _gain(scenario, programs, grid, across=across) >= threshold
    found: float | None = None
    if pays.any() and not pays[-1]:
        last = int(np.flatnonzero(pays)[-1])
        fine = np.geomspace(grid[last], grid[last + 1], POINTS)
        found = float(fine[np.flatnonzero(_gain(scenario, programs, fine, across=across) >= threshold)[-1]])
    return BreakEven(path, architecture, threshold, link.bandwidth, found, bool(pays[-1]), lowest, highest)


def _gain(scenario: Scenario, programs: tuple[Program, Program], bandwidth: Number, *, across: bool) -> Number:
    """Speed-up over GPT minus one, for an array of bandwidths of the link inside or across nodes."""
    cluster = scenario.cluster
    if across and cluster.inter_node is not None:
        inter = cluster.inter_node.model_copy(update={"bandwidth": bandwidth})
        changed = cluster.model_copy(update={"inter_node": inter})
    else:
        between = cluster.intra_node.between_pairs
        scale = bandwidth / cluster.intra_node.bandwidth
        pairs = between and between.model_copy(update={"bandwidth": between.bandwidth * scale})
        intra = cluster.intra_node.model_copy(update={"bandwidth": bandwidth, "between_pairs": pairs})
        changed = cluster.model_copy(update={"intra_node": intra})
    prices = prices_of(scenario.model_copy(update={"cluster": changed}))
    gpt, other = (run_step(program, prices).seconds for program in programs)
    return gpt / other - 1.0
