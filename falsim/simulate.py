"""The one entry point: a scenario in, a result out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from falsim import __version__
from falsim.catalog.calibration import Calibration
from falsim.costs.ensemble import draw
from falsim.costs.prices import calibration_of, prices_of
from falsim.dataflow import Number
from falsim.engines.schedule import BUBBLE, PIPELINE_COMMUNICATION, StepTimes, run_step
from falsim.engines.stream import (
    CONTEXT_COMMUNICATION,
    DATA_COMMUNICATION,
    EXPERT_COMMUNICATION,
    TENSOR_COMMUNICATION,
)
from falsim.program import Program
from falsim.program.counts import CollectiveCounts, collective_counts
from falsim.program.flops import step_flops
from falsim.program.memory import Memory, memory_of
from falsim.scenario import Scenario, scenario_hash
from falsim.scenario.schema import Measured

SCHEMA_VERSION = 1
EXPOSED = (
    TENSOR_COMMUNICATION,
    EXPERT_COMMUNICATION,
    CONTEXT_COMMUNICATION,
    DATA_COMMUNICATION,
    PIPELINE_COMMUNICATION,
)

Interval = tuple[float, float]


@dataclass(frozen=True)
class ArchitectureResult:
    """What one architecture costs per step; seconds, bytes, fractions.

    The intervals are 90% ones over the members of a calibration; None where the calibration has a single member.
    """

    architecture: str
    equation: str
    step_time_s: float
    step_time_interval_s: Interval | None
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    mfu_causal: float
    hfu: float
    speedup_over_gpt: float
    speedup_interval: Interval | None
    breakdown_s: dict[str, float]
    tensor_communication_s: float
    """Raw seconds of tensor-parallel collectives, hidden or not, on the way of the breakdown's rank."""
    collectives: CollectiveCounts
    memory: Memory
    memory_capacity: float

    @property
    def fits(self) -> bool:
        """Whether the peak is below the GPU's memory."""
        return float(self.memory.peak) <= self.memory_capacity

    @property
    def exposed_communication_s(self) -> float:
        """Seconds of the step in which compute waits for a collective or a context-parallel message."""
        return sum(self.breakdown_s[part] for part in EXPOSED)

    @property
    def bubble_s(self) -> float:
        """Seconds of the step in which the rank waits for other pipeline stages."""
        return self.breakdown_s[BUBBLE]


@dataclass(frozen=True)
class Result:
    """All architectures of a scenario, in its order."""

    scenario: Scenario
    scenario_hash: str
    calibration: str
    calibration_kind: str
    results: tuple[ArchitectureResult, ...]
    measured: Measured | None
    notes: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION
    version: str = __version__
    seed: int = 0

    def __getitem__(self, architecture: str) -> ArchitectureResult:
        """The result of one architecture; raises KeyError if it was not asked for."""
        for result in self.results:
            if result.architecture == architecture:
                return result
        raise KeyError(architecture)


def simulate(scenario: Scenario) -> Result:
    """Price one training step for every architecture of a scenario.

    Speed-ups are over `gpt` on the same scenario, computed even where `gpt` is not asked for.
    """
    constants = calibration_of(scenario)
    programs = {name: Program(scenario, name) for name in dict.fromkeys((*scenario.architectures, "gpt"))}
    prices = prices_of(scenario)
    steps = {name: run_step(program, prices) for name, program in programs.items()}
    members: dict[str, Number] = {}
    if constants.spreads:
        spread = prices_of(scenario, draw(constants.spreads))
        members = {name: run_step(program, spread).seconds for name, program in programs.items()}
    results = tuple(
        _result(programs[name], steps[name], steps["gpt"], members.get(name), members.get("gpt"))
        for name in scenario.architectures
    )
    return Result(
        scenario=scenario,
        scenario_hash=scenario_hash(scenario),
        calibration=constants.name,
        calibration_kind=constants.kind,
        results=results,
        measured=scenario.measured,
        notes=(*scenario.notes, *_assumed(scenario, constants)),
    )


def _assumed(scenario: Scenario, constants: Calibration) -> tuple[str, ...]:
    """What the calibration does not know of this GPU and had to assume."""
    gpu = scenario.cluster.gpu
    known = gpu.compute_capability in constants.flash_efficiency or "flash_efficiency" in constants.constants
    if scenario.training.attention == "flash" and not known:
        share = f"{constants.flash_efficiency_other:.0%} of the peak"
        return (f"flash attention on {gpu.title} is assumed to reach {share}: {constants.name} has no figure for it",)
    return ()


def interval(values: Number) -> Interval:
    """The central 90% of the members."""
    low, high = np.quantile(np.asarray(values), (0.05, 0.95))
    return float(low), float(high)


def _result(
    program: Program, step: StepTimes, gpt: StepTimes, members: Number | None, gpt_members: Number | None
) -> ArchitectureResult:
    """`members` are the step's seconds on every member of the ensemble, those of GPT beside them in the same order."""
    scenario = program.scenario
    seconds = float(step.seconds)
    flops = step_flops(scenario)
    available = seconds * scenario.world_size * scenario.cluster.gpu.peak_flops[scenario.training.precision]
    memory = memory_of(program)
    return ArchitectureResult(
        architecture=program.architecture.name,
        equation=program.architecture.equation,
        step_time_s=seconds,
        step_time_interval_s=None if members is None else interval(members),
        tokens_per_s=scenario.tokens_per_step / seconds,
        tokens_per_s_per_gpu=scenario.tokens_per_step / seconds / scenario.world_size,
        mfu=flops.model / available,
        mfu_causal=flops.model_causal / available,
        hfu=flops.hardware / available,
        speedup_over_gpt=float(gpt.seconds) / seconds,
        speedup_interval=None if members is None or gpt_members is None else interval(gpt_members / members),
        breakdown_s={part: float(value) for part, value in step.parts.items()},
        tensor_communication_s=float(step.tensor_communication),
        collectives=collective_counts(program),
        memory=Memory({part: float(value) for part, value in memory.parts.items()}),
        memory_capacity=scenario.cluster.gpu.memory,
    )
