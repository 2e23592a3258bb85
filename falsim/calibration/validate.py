"""Predicts everything in tables of measurements and says how far off it is. Nothing is fitted here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from falsim.calibration import collectives, evaluate, kernels, nanotron, steps
from falsim.calibration.defaults import note_of, set_of
from falsim.calibration.scores import (
    Floats,
    OutOfMemory,
    Ranking,
    Score,
    Slice,
    accuracy,
    out_of_memory,
    ranking,
    slices,
)
from falsim.calibration.tables import read_table
from falsim.scenario import Scenario


@dataclass(frozen=True)
class Pair:
    """One measurement and its prediction: seconds, or bytes."""

    name: str
    """The set."""
    id: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class Validation:
    """How predictions compare with each table that was given; empty or None for the others.

    Errors of steps and kernels are errors of time: a throughput or a FLOP rate stands for the time it took.
    """

    calibrations: tuple[str, ...]
    """The calibrations that priced the rows."""
    sets: Mapping[str, Score] = field(default_factory=dict)
    memory: Mapping[str, Score] = field(default_factory=dict)
    """`allocated` after the step and `reserved` at its peak."""
    out_of_memory: OutOfMemory | None = None
    ranking: Ranking | None = None
    collectives: Mapping[str, Score] = field(default_factory=dict)
    kernels: Mapping[str, Score] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()

    def above(self, limit: float) -> tuple[tuple[str, float], ...]:
        """Sets of steps whose MAPE is above `limit` percent."""
        scores = ((name, score.accuracy.mape) for name, score in self.sets.items())
        return tuple((name, mape) for name, mape in scores if mape is not None and mape > limit)


def validate(
    steps_file: str | Path | None = None,
    nanotron_file: str | Path | None = None,
    collectives_file: str | Path | None = None,
    kernels_file: str | Path | None = None,
    calibration: str | None = None,
) -> Validation:
    """Compare predictions with the tables given; `calibration` None chooses one by set and GPU.

    Raises:
        SourceError: a table cannot be read or is not what it should be; every problem has its line.
        UnknownCalibration: no shipped calibration has this name.
    """
    step_rows = read_table(steps_file, steps.COLUMNS, steps.REQUIRED) if steps_file else ()
    run_rows = read_table(nanotron_file, nanotron.COLUMNS, nanotron.REQUIRED) if nanotron_file else ()
    collective_rows = (
        read_table(collectives_file, collectives.COLUMNS, collectives.REQUIRED) if collectives_file else ()
    )
    kernel_rows = read_table(kernels_file, kernels.COLUMNS, kernels.REQUIRED) if kernels_file else ()
    used: Counter[str] = Counter()
    pairs: list[Pair] = []
    sets = _steps(
        [steps.case_of(row, calibration) for row in step_rows], [set_of(row) for row in step_rows], used, pairs
    )
    runs = _runs([nanotron.case_of(row, calibration) for row in run_rows], used, pairs) if run_rows else _Runs()
    timed = [collectives.case_of(row, calibration) for row in collective_rows]
    timed_kernels = [kernels.case_of(row, calibration) for row in kernel_rows]
    return Validation(
        sets={**sets, **runs.sets},
        memory=runs.memory,
        out_of_memory=runs.out_of_memory,
        ranking=runs.ranking,
        collectives=_collectives(timed, used, pairs),
        kernels=_kernels(timed_kernels, used, pairs),
        calibrations=tuple(sorted(used)),
        pairs=tuple(pairs),
    )


@dataclass(frozen=True)
class _Runs:
    """What is said of nanotron's runs."""

    sets: Mapping[str, Score] = field(default_factory=dict)
    memory: Mapping[str, Score] = field(default_factory=dict)
    out_of_memory: OutOfMemory | None = None
    ranking: Ranking | None = None


def _steps(
    read: Sequence[steps.Case | steps.Skipped], names: Sequence[str], used: Counter[str], pairs: list[Pair]
) -> dict[str, Score]:
    """The score of every set, in the order of the table."""
    cases = [case for case in read if isinstance(case, steps.Case)]
    used.update(case.scenario.calibration or "" for case in cases)
    predicted, measured = step_times(cases)
    pairs += [Pair(c.name, c.id, float(m), float(p)) for c, m, p in zip(cases, measured, predicted, strict=True)]
    scores = {}
    for name in dict.fromkeys(names):
        mine = [index for index, case in enumerate(cases) if case.name == name]
        scores[name] = Score(
            rows=names.count(name),
            accuracy=accuracy(predicted[mine], measured[mine]),
            skipped=Counter(s.reason for s in read if isinstance(s, steps.Skipped) and s.name == name),
            taken=_counted(cases[index].taken for index in mine),
            slices=_degrees([cases[index].scenario for index in mine], predicted[mine], measured[mine]),
        )
    return scores


def step_times(cases: Sequence[steps.Case]) -> tuple[Floats, Floats]:
    """Predicted and measured seconds of a step, or of one block where that was measured.

    A throughput is turned into the time of the step it belongs to, a FLOP rate by the FLOPs that its set counts.
    """
    predicted, measured = np.zeros(len(cases)), np.zeros(len(cases))
    layers = [case.metric in steps.LAYER_METRICS for case in cases]
    for architecture in dict.fromkeys(case.architecture for case in cases):
        whole = [i for i, c in enumerate(cases) if c.architecture == architecture and not layers[i]]
        found = evaluate.steps([cases[i].scenario for i in whole], architecture)
        predicted[whole] = found.seconds
        for place, index in enumerate(whole):
            flops = getattr(found, f"{cases[index].flops}_flops")[place]
            measured[index] = _measured_seconds(cases[index], float(flops))
        alone = [i for i, c in enumerate(cases) if c.architecture == architecture and layers[i]]
        blocks = evaluate.blocks([cases[i].scenario for i in alone], architecture)
        for place, index in enumerate(alone):
            forward = cases[index].metric == "layer_fwd_s"
            predicted[index] = (blocks.forward if forward else blocks.backward)[place]
            measured[index] = cases[index].measured
    return predicted, measured


def _measured_seconds(case: steps.Case, flops: float) -> float:
    scenario, value = case.scenario, case.measured
    match case.metric:
        case "iteration_s":
            return value
        case "tokens_per_s_per_gpu":
            return scenario.tokens_per_step / (value * scenario.world_size)
        case "tflops_per_gpu":
            return flops / (value * 1e12 * scenario.world_size)
        case _:
            peak = scenario.cluster.gpu.peak_flops[scenario.training.precision]
            return flops / (value * peak * scenario.world_size)


def _runs(read: Sequence[nanotron.Case | nanotron.Skipped], used: Counter[str], pairs: list[Pair]) -> _Runs:
    """Step times of the runs that ended, memory, out-of-memory outcomes of all, and the order of configurations."""
    cases = [case for case in read if isinstance(case, nanotron.Case)]
    skipped = [case for case in read if isinstance(case, nanotron.Skipped)]
    used.update(case.scenario.calibration or "" for case in cases)
    timed = [case for case in cases if case.step_s is not None]

    def adjusted(stacked: Scenario, positions: Sequence[int]) -> Scenario:
        return nanotron.with_environment(timed, stacked, positions)

    seconds = evaluate.steps([case.scenario for case in timed], adjust=adjusted).seconds
    measured = np.array([case.step_s for case in timed], dtype=float)
    memory = evaluate.memories([case.scenario for case in cases])
    capacity = np.array([case.scenario.cluster.gpu.memory for case in cases])
    pairs += [Pair(nanotron.NAME, c.id, float(m), float(p)) for c, m, p in zip(timed, measured, seconds, strict=True)]
    without_time = Counter(case.reason for case in skipped if not case.ran_out_of_memory)
    score = Score(
        rows=len(timed) + sum(without_time.values()),
        accuracy=accuracy(seconds, measured),
        skipped=without_time,
        taken=_counted(case.taken for case in timed),
        slices=_degrees([case.scenario for case in timed], seconds, measured),
    )
    held = {
        "allocated": _memory([case.allocated for case in cases], memory.allocated, without_time),
        "reserved": _memory([case.reserved for case in cases], memory.peak, without_time),
    }
    outcomes = out_of_memory(
        [bool(over) for over in memory.peak > capacity],
        [case.ran_out_of_memory for case in cases],
        Counter(case.reason for case in skipped),
    )
    return _Runs({nanotron.NAME: score}, held, outcomes, ranking(nanotron.ranked(timed, seconds)))


def _memory(measured: Sequence[float | None], predicted: Floats, skipped: Mapping[str, int]) -> Score:
    known = [index for index, value in enumerate(measured) if value is not None]
    values = np.array([measured[index] for index in known], dtype=float)
    return Score(len(known) + sum(skipped.values()), accuracy(predicted[known], values), skipped)


def _collectives(read: Sequence[collectives.Case | str], used: Counter[str], pairs: list[Pair]) -> dict[str, Score]:
    """All collectives, then by kind and by whether they leave a node."""
    if not read:
        return {}
    cases = [case for case in read if isinstance(case, collectives.Case)]
    used.update(case.scenario.calibration or "" for case in cases)
    predicted, measured = collectives.seconds_of(cases), np.array([case.seconds for case in cases], dtype=float)
    name = collectives.NAME
    pairs += [Pair(name, c.kind, float(m), float(p)) for c, m, p in zip(cases, measured, predicted, strict=True)]
    labels = [f"{case.kind}, {'one node' if case.nodes == 1 else 'nodes'}" for case in cases]
    large = [case.size >= 1_000_000 for case in cases]
    scores = {"all": _whole(read, cases, predicted, measured)}
    scores["1 MB and more"] = _part([i for i, big in enumerate(large) if big], predicted, measured)
    scores["below 1 MB"] = _part([i for i, big in enumerate(large) if not big], predicted, measured)
    return scores | _by_label(labels, predicted, measured)


def _kernels(read: Sequence[kernels.Case | str], used: Counter[str], pairs: list[Pair]) -> dict[str, Score]:
    """All kernels, then by kind and GPU."""
    if not read:
        return {}
    cases = [case for case in read if isinstance(case, kernels.Case)]
    used.update(case.scenario.calibration or "" for case in cases)
    predicted, measured = kernels.seconds_of(cases), np.array([case.seconds for case in cases], dtype=float)
    name = kernels.NAME
    pairs += [Pair(name, c.kind, float(m), float(p)) for c, m, p in zip(cases, measured, predicted, strict=True)]
    scores = {"all": _whole(read, cases, predicted, measured)}
    scores |= _by_label([case.kind for case in cases], predicted, measured)
    return scores | _by_label([f"{case.kind}, {case.gpu}" for case in cases], predicted, measured)


def _whole(
    read: Sequence[collectives.Case | kernels.Case | str],
    cases: Sequence[collectives.Case | kernels.Case],
    predicted: Floats,
    measured: Floats,
) -> Score:
    taken = _counted(case.taken for case in cases if isinstance(case, collectives.Case))
    skipped = Counter(reason for reason in read if isinstance(reason, str))
    return Score(len(read), accuracy(predicted, measured), skipped, taken=taken)


def _by_label(labels: Sequence[str], predicted: Floats, measured: Floats) -> dict[str, Score]:
    chosen = {label: [i for i, other in enumerate(labels) if other == label] for label in sorted(set(labels))}
    return {label: _part(members, predicted, measured) for label, members in chosen.items()}


def _part(members: list[int], predicted: Floats, measured: Floats) -> Score:
    return Score(len(members), accuracy(predicted[members], measured[members]), {})


def _degrees(scenarios: Sequence[Scenario], predicted: Floats, measured: Floats) -> tuple[Slice, ...]:
    by = {
        "tensor": [s.parallelism.tensor for s in scenarios],
        "pipeline": [s.parallelism.pipeline for s in scenarios],
        "gpus": [s.world_size for s in scenarios],
    }
    return slices(predicted, measured, by)


def _counted(taken: Iterable[Iterable[str]]) -> dict[str, int]:
    """What was taken and for how many rows, the most frequent first."""
    return dict(Counter(value for values in taken for value in values).most_common())


def notes(validation: Validation) -> dict[str, str]:
    """Why the defaults of the sets are what they are, for those that have a note."""
    found = {name: note_of(name) for name in validation.sets}
    return {name: note for name, note in found.items() if note}
