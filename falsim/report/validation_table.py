"""A validation as a table for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from falsim.calibration.scores import Score
from falsim.calibration.validate import Validation, notes

BY = {"tensor": "TP", "pipeline": "PP", "gpus": "GPUs"}
SLICED = 20
"""Sets of fewer scored rows are not cut into slices."""


def validation_text(validation: Validation, width: int = 100) -> str:
    """All scores, then slices, what was skipped, and what was taken for blanks."""
    names = ", ".join(validation.calibrations) or "none"
    lines = [f"constants  {names}; nothing is fitted while validating"]
    lines += _table("training steps (errors of time)", validation.sets)
    lines += _slices(validation.sets)
    lines += _table("memory", validation.memory)
    lines += _outcomes(validation)
    lines += _table("collectives", validation.collectives)
    lines += _table("kernels", validation.kernels)
    lines += _skipped(validation, width)
    lines += _taken(validation, width)
    return "\n".join(lines)


def _table(title: str, scores: Mapping[str, Score]) -> list[str]:
    if not scores:
        return []
    wide = max(len(title), *(len(name) for name in scores))
    head = f"{title:<{wide}}  rows scored   MAPE median    bias     R² 90% in"
    return ["", head, *(_row(f"{name:<{wide}}", score) for name, score in scores.items())]


def _row(name: str, score: Score) -> str:
    errors = score.accuracy
    cells = (
        f"{score.rows:5d}",
        f"{score.scored:6d}",
        _number(errors.mape, "5.1f", 6, "%"),
        _number(errors.median_ape, "5.1f", 6, "%"),
        _number(errors.bias, "+6.1f", 7, "%"),
        _number(errors.r2_log, "6.3f", 6),
        _number(score.coverage_90, "4.0f", 5, "%"),
    )
    return " ".join((name, *cells))


def _number(value: float | None, style: str, wide: int, unit: str = "") -> str:
    return f"{'–':>{wide}}" if value is None else f"{value:{style}}{unit}".rjust(wide)


def _slices(scores: Mapping[str, Score]) -> list[str]:
    """MAPE (bias) by degree, for sets large enough that have more than one."""
    lines = []
    for name, score in scores.items():
        for by, short in BY.items():
            cut = [part for part in score.slices if part.by == by]
            if score.scored < SLICED or len(cut) < 2:
                continue
            cells = (f"{p.value}: {p.accuracy.mape:.1f} ({p.accuracy.bias:+.1f})" for p in cut)
            lines.append(f"  {name:<12} {short:<4} {', '.join(cells)}")
    return ["", "slices: MAPE % (bias %)", *lines] if lines else []


def _outcomes(validation: Validation) -> list[str]:
    lines = []
    over, order = validation.out_of_memory, validation.ranking
    if over is not None:
        lines.append(
            f"out of memory  {over.rows} runs: accuracy {_percent(over.accuracy)}, "
            f"precision {_percent(over.precision)}, recall {_percent(over.recall)}"
        )
    if order is not None and order.groups:
        lines.append(
            f"ranking        {order.groups} groups of model × GPUs: Spearman {order.spearman:.2f}, top-1 "
            f"{_percent(order.top_1)}, top-3 {_percent(order.top_3)}, median regret {_percent(order.median_regret)}"
        )
    return ["", *lines] if lines else []


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}%"


def _skipped(validation: Validation, width: int) -> list[str]:
    groups = {**validation.sets, "collectives": validation.collectives.get("all")}
    groups["kernels"] = validation.kernels.get("all")
    found = [
        f"{name}: {count} × {reason}"
        for name, score in groups.items()
        if score is not None
        for reason, count in score.skipped.items()
    ]
    if validation.out_of_memory is not None:
        found += [f"out of memory: {count} × {why}" for why, count in validation.out_of_memory.skipped.items()]
    return _listed("skipped", found, width)


def _taken(validation: Validation, width: int) -> list[str]:
    """By set: what stands for blanks, and why."""
    reasons = notes(validation)
    found = []
    for name, score in validation.sets.items():
        values = ", ".join(f"{what} ({count})" for what, count in score.taken.items())
        text = "; ".join(part for part in (values, reasons.get(name, "")) if part)
        if text:
            found.append(f"{name}: {text}")
    return _listed("taken for blanks (rows), and why", found, width)


def _listed(title: str, found: Iterable[str], width: int) -> list[str]:
    lines = [
        line
        for text in found
        for line in textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    ]
    return ["", title, *lines] if lines else []
