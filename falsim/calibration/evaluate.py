"""Predicts many scenarios at once: those of one structure in one call over arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from falsim.calibration.scores import Floats
from falsim.costs.prices import Prices, prices_of
from falsim.dataflow import Number
from falsim.engines.schedule import run_step
from falsim.engines.stream import run_pass
from falsim.program import Program
from falsim.program.flops import step_flops
from falsim.program.memory import memory_of
from falsim.program.sharding import Run
from falsim.program.stacking import by_structure
from falsim.scenario import Scenario

ALLOCATED = ("weights", "gradients", "optimizer", "communication_buffers")
"""The parts of a GPU's memory that stay allocated between steps."""
BLOCKS = ("first", "later", "last", "only")

Adjust = Callable[[Scenario, Sequence[int]], Scenario]
"""Puts arrays of further numbers into a stacked scenario, given which of the scenarios it holds."""


@dataclass(frozen=True)
class Steps:
    """Predictions by scenario: seconds, and FLOPs of a step by convention."""

    seconds: Floats
    model_flops: Floats
    causal_flops: Floats
    hardware_flops: Floats


@dataclass(frozen=True)
class Blocks:
    """Seconds of one block alone, from idle streams to idle streams; backward holds what is recomputed."""

    forward: Floats
    backward: Floats


@dataclass(frozen=True)
class Memories:
    """Bytes of the fullest GPU."""

    allocated: Floats
    peak: Floats


def steps(scenarios: Sequence[Scenario], architecture: str = "gpt", adjust: Adjust | None = None) -> Steps:
    """One training step of every scenario."""
    found = _empty(4, len(scenarios))
    for positions, stacked in by_structure(scenarios):
        whole = adjust(stacked, positions) if adjust is not None else stacked
        flops = step_flops(whole)
        values = (
            run_step(Program(whole, architecture), prices_of(whole)).seconds,
            flops.model,
            flops.model_causal,
            flops.hardware,
        )
        _fill(found, positions, values)
    return Steps(*found)


def blocks(scenarios: Sequence[Scenario], architecture: str = "gpt") -> Blocks:
    """One block of every scenario."""
    found = _empty(2, len(scenarios))
    for positions, stacked in by_structure(scenarios):
        program, prices = Program(stacked, architecture), prices_of(stacked)
        _fill(found, positions, (_block(program.forward(0), prices), _block(program.backward(0), prices)))
    return Blocks(*found)


def memories(scenarios: Sequence[Scenario], architecture: str = "gpt") -> Memories:
    """The memory of every scenario's fullest GPU."""
    found = _empty(2, len(scenarios))
    for positions, stacked in by_structure(scenarios):
        memory = memory_of(Program(stacked, architecture))
        allocated = sum(memory.parts[part] for part in ALLOCATED)
        _fill(found, positions, (allocated, memory.peak))
    return Memories(*found)


def _block(runs: Sequence[Run], prices: Prices) -> Number:
    """Seconds of one block among the pieces of a pass."""
    run = next(run for run in runs if run.kind in BLOCKS)
    return run_pass([Run(run.kind, run.graph, 1)], prices).duration


def _empty(columns: int, rows: int) -> tuple[Floats, ...]:
    return tuple(np.zeros(rows) for _ in range(columns))


def _fill(columns: Sequence[Floats], positions: Sequence[int], values: Sequence[Number]) -> None:
    for column, value in zip(columns, values, strict=True):
        column[list(positions)] = value
