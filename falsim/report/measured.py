"""A measured value beside its prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from falsim.simulate import Result

Metric = Literal["step_time_s", "tokens_per_s_per_gpu", "mfu"]


@dataclass(frozen=True)
class Comparison:
    """One metric: what was measured and what is predicted; None where the measured architecture was not priced."""

    metric: Metric
    measured: float
    predicted: float | None

    @property
    def ratio(self) -> float | None:
        """Predicted over measured."""
        return None if self.predicted is None else self.predicted / self.measured


def comparisons(result: Result) -> tuple[Comparison, ...]:
    """Every metric the scenario has a measured value of."""
    measured = result.measured
    if measured is None:
        return ()
    priced = next((each for each in result.results if each.architecture == measured.architecture), None)
    rows: tuple[tuple[Metric, float | None, float | None], ...] = (
        ("step_time_s", measured.step_time, priced.step_time_s if priced else None),
        ("tokens_per_s_per_gpu", measured.tokens_per_s_per_gpu, priced.tokens_per_s_per_gpu if priced else None),
        ("mfu", measured.mfu, priced.mfu if priced else None),
    )
    return tuple(Comparison(metric, value, predicted) for metric, value, predicted in rows if value is not None)
