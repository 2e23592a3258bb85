"""Predicts many scenarios at once: those of one structure in one call over arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np

from falsim.calibration.scores import Floats
from falsim.costs.prices import Prices, prices_of
from falsim.dataflow import Number
from falsim.engines.schedule import run_step
from falsim.engines.stacking import by_structure
from falsim.engines.stream import run_pass
from falsim.program import Program
from falsim.program.flops import step_flops
from falsim.program.memory import memory_of
from falsim.program.sharding import Run
from falsim.scenario import Scenario

ALLOCATED = ("weights", "gradients", "optimizer", "communication_buffers")
"""The parts of a GPU's memory that stay allocated between steps."""
SETTLED = {"1f1b": 1, "interleaved": 2}
"""Rounds of micro-batches after which a pipeline is taken to have settled: the first interleaved one is special."""
BLOCKS = ("first", "later", "last", "only")

WORTH_CORES = 48
"""Groups from which on other processes are worth starting."""

Group = tuple[list[int], Scenario]
"""Which scenarios a stacked one holds, and it."""
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
    """One training step of every scenario.

    A pipeline that runs many micro-batches settles: every further round of as many micro-batches as stages takes as
    long as the one before. Steps longer than one more round than `SETTLED` are drawn on from the last two of those.
    """
    sample = [part for index, scenario in enumerate(scenarios) for part in _sampled(index, scenario)]
    groups = list(_grouped([part.scenario for part in sample]))
    if adjust is not None:
        groups = [(own, adjust(stacked, [sample[place].index for place in own])) for own, stacked in groups]
    found = _predicted(partial(_step, architecture), groups, 4, len(sample))
    combined = _empty(4, len(scenarios))
    for place, part in enumerate(sample):
        for column, value in zip(combined, found, strict=True):
            column[part.index] += part.weight * value[place]
    return Steps(*combined)


@dataclass(frozen=True)
class _Part:
    """A scenario whose prediction enters that of scenario `index` with a weight."""

    index: int
    scenario: Scenario
    weight: float


def _sampled(index: int, scenario: Scenario) -> tuple[_Part, ...]:
    """The scenario itself, or two shorter steps of it from which the rest follows linearly."""
    stages, count = scenario.parallelism.pipeline, scenario.num_micro_batches
    settled = SETTLED[scenario.parallelism.pipeline_schedule]
    short, long = settled * stages, (settled + 1) * stages
    if stages == 1 or count <= long:
        return (_Part(index, scenario, 1.0),)
    beyond = (count - long) / stages
    return (
        _Part(index, _with_micro_batches(scenario, long), 1.0 + beyond),
        _Part(index, _with_micro_batches(scenario, short), -beyond),
    )


def _with_micro_batches(scenario: Scenario, count: int) -> Scenario:
    size = count * scenario.parallelism.data * scenario.training.micro_batch_size
    training = scenario.training.model_copy(update={"global_batch_size": size})
    return scenario.model_copy(update={"training": training})


def blocks(scenarios: Sequence[Scenario], architecture: str = "gpt") -> Blocks:
    """One block of every scenario."""
    return Blocks(*_predicted(partial(_blocks, architecture), list(_grouped(scenarios)), 2, len(scenarios)))


def memories(scenarios: Sequence[Scenario], architecture: str = "gpt") -> Memories:
    """The memory of every scenario's fullest GPU.

    It depends neither on how GPUs are joined nor, beyond one micro-batch for each stage, on how many follow.
    """
    groups = list(_grouped([_one_node(scenario) for scenario in scenarios]))
    return Memories(*_predicted(partial(_memory, architecture), groups, 2, len(scenarios)))


def _step(architecture: str, stacked: Scenario) -> tuple[Number, ...]:
    flops = step_flops(stacked)
    seconds = run_step(Program(stacked, architecture), prices_of(stacked)).seconds
    return seconds, flops.model, flops.model_causal, flops.hardware


def _blocks(architecture: str, stacked: Scenario) -> tuple[Number, ...]:
    program, prices = Program(stacked, architecture), prices_of(stacked)
    return _block(program.forward(0), prices), _block(program.backward(0), prices)


def _memory(architecture: str, stacked: Scenario) -> tuple[Number, ...]:
    memory = memory_of(Program(stacked, architecture))
    return sum(memory.parts[part] for part in ALLOCATED), memory.peak


def _one_node(scenario: Scenario) -> Scenario:
    """The same ranks in one node, with no more micro-batches than fill a 1F1B pipeline."""
    cluster = scenario.cluster.model_copy(update={"gpus_per_node": scenario.world_size, "nodes": 1})
    scenario = scenario.model_copy(update={"cluster": cluster})
    parallel = scenario.parallelism
    if parallel.pipeline_schedule != "1f1b":
        return scenario
    return _with_micro_batches(scenario, min(scenario.num_micro_batches, parallel.pipeline))


def _grouped(scenarios: Sequence[Scenario]) -> Iterator[Group]:
    """Groups of one structure; a scenario that is alone stays one of plain numbers, which are faster than arrays."""
    for positions, stacked in by_structure(scenarios):
        yield positions, stacked if len(positions) > 1 else scenarios[positions[0]]


def _block(runs: Sequence[Run], prices: Prices) -> Number:
    """Seconds of one block among the pieces of a pass."""
    run = next(run for run in runs if run.kind in BLOCKS)
    return run_pass([Run(run.kind, run.graph, 1)], prices).duration


def _predicted(
    predict: Callable[[Scenario], tuple[Number, ...]], groups: Sequence[Group], columns: int, rows: int
) -> tuple[Floats, ...]:
    """`columns` numbers for each of `rows` scenarios; many groups are shared out over the cores."""
    stacked = [scenario for _, scenario in groups]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if len(groups) < WORTH_CORES or cores == 1:
        values = [predict(scenario) for scenario in stacked]
    else:
        with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as pool:
            values = list(pool.map(predict, stacked, chunksize=8))
    found = _empty(columns, rows)
    for (positions, _), row in zip(groups, values, strict=True):
        for column, value in zip(found, row, strict=True):
            column[positions] = value
    return found


def _empty(columns: int, rows: int) -> tuple[Floats, ...]:
    return tuple(np.zeros(rows) for _ in range(columns))
