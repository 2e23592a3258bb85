"""Where an architecture stops paying: the link bandwidth at which its gain over GPT falls below a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from falsim.costs.prices import prices_of
from falsim.dataflow import Group, Number
from falsim.engines.schedule import run_step
from falsim.program import Program
from falsim.scenario import Scenario

PAYS = 0.05
"""A gain below this is taken as not worth another architecture."""
POINTS = 61


@dataclass(frozen=True)
class BreakEven:
    """Where a gain of `threshold` is reached as one link's bandwidth changes.

    Rising above `bandwidth` (bytes/s of the scenario's field `path`) makes the gain smaller, falling below `pays_from`
    too: an architecture that hides communication needs compute to hide it under. Either is None where the gain does not
    cross the threshold on that side between `lowest` and `highest`; `always` says that it pays in the whole range.
    """

    path: str
    architecture: str
    threshold: float
    current: float
    bandwidth: float | None
    always: bool
    lowest: float
    highest: float
    pays_from: float | None = None


def break_even(scenario: Scenario, architecture: str, threshold: float = PAYS) -> BreakEven:
    """The bandwidth of the slowest link in the tensor-parallel group at which the gain over GPT falls to `threshold`.

    Found on a grid from 1/1000 to 1000 times the present bandwidth, refined once; a gain is a paired ratio of step
    times. Raises ValueError without tensor parallelism.
    """
    if scenario.parallelism.tensor == 1:
        raise ValueError("without tensor parallelism there is no link to break even on")
    across = prices_of(scenario).network.layouts[Group.TENSOR].across
    path = "cluster.inter_node.bandwidth" if across else "cluster.intra_node.bandwidth"
    link = scenario.cluster.inter_node if across else scenario.cluster.intra_node
    assert link is not None
    programs = (Program(scenario, "gpt"), Program(scenario, architecture))

    def pays(bandwidths: Number) -> Number:
        return _gain(scenario, programs, bandwidths, across=across) >= threshold

    lowest, highest = link.bandwidth / 1000.0, link.bandwidth * 1000.0
    grid = np.geomspace(lowest, highest, POINTS)
    paying = np.flatnonzero(pays(grid))
    upper = lower = None
    if paying.size and paying[-1] + 1 < POINTS:
        fine = np.geomspace(grid[paying[-1]], grid[paying[-1] + 1], POINTS)
        upper = float(fine[np.flatnonzero(pays(fine))[-1]])
    if paying.size and paying[0] > 0:
        fine = np.geomspace(grid[paying[0] - 1], grid[paying[0]], POINTS)
        lower = float(fine[np.flatnonzero(pays(fine))[0]])
    always = paying.size == POINTS
    return BreakEven(path, architecture, threshold, link.bandwidth, upper, always, lowest, highest, lower)


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
