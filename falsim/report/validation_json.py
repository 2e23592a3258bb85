"""A validation as JSON. Percentages are 0 to 100; what is not known is null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from falsim.calibration.scores import Accuracy, Score
from falsim.calibration.validate import Validation, notes

SCHEMA_VERSION = 1
Json = dict[str, Any]


def validation_json(validation: Validation) -> str:
    """All scores; parts whose file was not given are left out."""
    reasons = notes(validation)
    data: Json = {
        "schema_version": SCHEMA_VERSION,
        "calibrations": list(validation.calibrations),
        "sets": {name: _score(score) | _why(reasons.get(name)) for name, score in validation.sets.items()},
    }
    for part, scores in (
        ("memory", validation.memory),
        ("collectives", validation.collectives),
        ("kernels", validation.kernels),
    ):
        if scores:
            data[part] = {name: _score(score) for name, score in scores.items()}
    if validation.out_of_memory is not None:
        over = validation.out_of_memory
        data["out_of_memory"] = {
            "rows": over.rows,
            "accuracy": _rounded(over.accuracy),
            "precision": _rounded(over.precision),
            "recall": _rounded(over.recall),
            "skipped": dict(over.skipped),
        }
    if validation.ranking is not None:
        data["ranking"] = {name: _rounded(value) for name, value in asdict(validation.ranking).items()}
    return json.dumps(data, indent=2, ensure_ascii=False)


def _score(score: Score) -> Json:
    data: Json = {
        "rows": score.rows,
        "scored": score.scored,
        "skipped": dict(score.skipped),
        **_errors(score.accuracy),
        "coverage_90": _rounded(score.coverage_90),
    }
    if score.taken:
        data["taken"] = dict(score.taken)
    if score.slices:
        data["slices"] = _slices(score)
    return data


def _slices(score: Score) -> Mapping[str, Mapping[str, Json]]:
    """By degree, then by its value."""
    cut: dict[str, dict[str, Json]] = {}
    for part in score.slices:
        cut.setdefault(part.by, {})[str(part.value)] = {"rows": part.accuracy.rows, **_errors(part.accuracy)}
    return cut


def _errors(errors: Accuracy) -> Json:
    return {
        "mape": _rounded(errors.mape),
        "median_ape": _rounded(errors.median_ape),
        "bias": _rounded(errors.bias),
        "r2_log": _rounded(errors.r2_log),
    }


def _why(note: str | None) -> Json:
    return {"note": note} if note else {}


def _rounded(value: float | None) -> float | None:
    """Six digits after the point: enough for a percentage, and the same on every machine."""
    return None if value is None else round(value, 6)
