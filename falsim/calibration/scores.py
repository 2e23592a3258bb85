"""How far predictions are from measurements. Percentages are 0 to 100; errors are (predicted - measured) / measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Accuracy:
    """The errors of some pairs; None where there are too few of them."""

    rows: int
    mape: float | None
    """Mean absolute percentage error."""
    median_ape: float | None
    bias: float | None
    """Mean signed percentage error; positive is predicted too large."""
    r2_log: float | None
    """Share of the variance of log(measured) that log(predicted) explains."""


@dataclass(frozen=True)
class Slice:
    """The accuracy of the rows that share one value of `by`."""

    by: str
    value: int
    accuracy: Accuracy


@dataclass(frozen=True)
class Score:
    """One set of measurements against its predictions."""

    rows: int
    accuracy: Accuracy
    skipped: Mapping[str, int]
    """Rows that could not be predicted, by reason."""
    coverage_90: float | None = None
    """Share of measurements inside the 90% interval; None where the calibration has a single member."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """What was taken for blanks or read into the set, and for how many rows."""
    slices: tuple[Slice, ...] = ()

    @property
    def scored(self) -> int:
        """Rows that were predicted."""
        return self.accuracy.rows


@dataclass(frozen=True)
class OutOfMemory:
    """How well predicted out-of-memory outcomes match; percentages, None without a case."""

    rows: int
    accuracy: float | None
    precision: float | None
    """Of those predicted to run out of memory, how many did."""
    recall: float | None
    """Of those that ran out of memory, how many were predicted to."""
    skipped: Mapping[str, int]


@dataclass(frozen=True)
class Ranking:
    """How well configurations of one model on as many GPUs are ordered; means over groups, percentages."""

    groups: int
    spearman: float | None
    """Mean rank correlation of predicted and measured throughput, -1 to 1."""
    top_1: float | None
    """Groups whose best configuration is predicted to be the best."""
    top_3: float | None
    """Groups whose best configuration is among the three predicted to be best."""
    median_regret: float | None
    """Throughput lost by running the configuration predicted to be best."""


def accuracy(predicted: Floats, measured: Floats) -> Accuracy:
    """Errors of pairs of positive numbers."""
    count = len(measured)
    if count == 0:
        return Accuracy(0, None, None, None, None)
    error = 100.0 * (predicted - measured) / measured
    residual = np.log(predicted) - np.log(measured)
    spread = np.log(measured) - np.mean(np.log(measured))
    variance = float(spread @ spread)
    return Accuracy(
        rows=count,
        mape=float(np.mean(np.abs(error))),
        median_ape=float(np.median(np.abs(error))),
        bias=float(np.mean(error)),
        r2_log=1.0 - float(residual @ residual) / variance if count > 1 and variance > 0.0 else None,
    )


def slices(predicted: Floats, measured: Floats, by: Mapping[str, Sequence[int]]) -> tuple[Slice, ...]:
    """The accuracy for every value of every property; `by` holds one value for each pair."""
    found = []
    for name, values in by.items():
        column = np.asarray(values)
        for value in np.unique(column):
            chosen = column == value
            found.append(Slice(name, int(value), accuracy(predicted[chosen], measured[chosen])))
    return tuple(found)


def out_of_memory(predicted: Sequence[bool], happened: Sequence[bool], skipped: Mapping[str, int]) -> OutOfMemory:
    """Confusion of two series of outcomes."""
    pairs = Counter(zip(predicted, happened, strict=True))
    hits, right = pairs[True, True], pairs[True, True] + pairs[False, False]
    return OutOfMemory(
        rows=len(predicted),
        accuracy=_percent(right, len(predicted)),
        precision=_percent(hits, hits + pairs[True, False]),
        recall=_percent(hits, hits + pairs[False, True]),
        skipped=skipped,
    )


def ranking(groups: Iterable[tuple[Floats, Floats]], smallest: int = 3) -> Ranking:
    """Order within groups of (predicted, measured) throughputs; groups of fewer than `smallest` say nothing."""
    correlations, first, third, regrets = [], [], [], []
    for predicted, measured in groups:
        if len(measured) < smallest:
            continue
        best = int(np.argmax(measured))
        order = np.argsort(-predicted, kind="stable")
        correlations.append(spearman(predicted, measured))
        first.append(order[0] == best)
        third.append(best in order[:3])
        regrets.append(100.0 * (1.0 - measured[order[0]] / measured[best]))
    if not regrets:
        return Ranking(0, None, None, None, None)
    return Ranking(
        groups=len(regrets),
        spearman=float(np.mean(correlations)),
        top_1=100.0 * float(np.mean(first)),
        top_3=100.0 * float(np.mean(third)),
        median_regret=float(np.median(regrets)),
    )


def spearman(one: Floats, other: Floats) -> float:
    """Spearman's rank correlation, ties sharing their mean rank; 0 where one of them does not vary."""
    first, second = _ranks(one), _ranks(other)
    first, second = first - first.mean(), second - second.mean()
    norm = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / norm if norm > 0.0 else 0.0


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[inverse]
    return ranks


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None
