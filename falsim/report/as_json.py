"""A result as JSON: SI units, fixed key order, no timestamps, so equal runs give equal bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from falsim.program.counts import CollectiveCounts, Tally
from falsim.report.breakdown import breakdown
from falsim.report.measured import comparisons
from falsim.report.remarks import remarks
from falsim.scenario import Scenario
from falsim.simulate import ArchitectureResult, Result
from falsim.studies.break_even import BreakEven

Json = dict[str, Any]


def json_text(result: Result, even: BreakEven | None, verdict: str) -> str:
    """The JSON document of one run, with a newline at its end.

    Raises:
        ValueError: a number is not finite.
    """
    document: Json = {
        "schema_version": result.schema_version,
        "version": result.version,
        "name": result.scenario.name,
        "scenario_hash": result.scenario_hash,
        "calibration": {"name": result.calibration, "kind": result.calibration_kind},
        "seed": result.seed,
        "world_size": result.scenario.world_size,
        "results": [_result(result.scenario, each) for each in result.results],
        "break_even": None if even is None else _break_even(even),
        "verdict": verdict,
        "measured": _measured(result),
        "notes": list(result.notes),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _result(scenario: Scenario, result: ArchitectureResult) -> Json:
    parts = breakdown(result)
    return {
        "architecture": result.architecture,
        "equation": result.equation,
        "step_time_s": result.step_time_s,
        "step_time_interval_s": _interval(result.step_time_interval_s),
        "tokens_per_s": result.tokens_per_s,
        "tokens_per_s_per_gpu": result.tokens_per_s_per_gpu,
        "mfu": result.mfu,
        "mfu_causal": result.mfu_causal,
        "hfu": result.hfu,
        "speedup_over_gpt": result.speedup_over_gpt,
        "speedup_interval": _interval(result.speedup_interval),
        "breakdown_s": parts,
        "exposed_communication_s": result.exposed_communication_s,
        "bubble_s": parts["pipeline_bubble"],
        "tensor_communication_s": result.tensor_communication_s,
        "collectives": _collectives(result.collectives, with_experts=scenario.parallelism.expert > 1),
        "memory": _memory(result),
        "notes": list(remarks(scenario, result.architecture)),
    }


def _interval(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _collectives(counts: CollectiveCounts, *, with_experts: bool) -> Json:
    """Counts and bytes per micro-batch; `recompute` is the part of `backward` that replays."""
    other = Tally(_added(counts.other_forward, counts.other_backward))
    shown: Json = {
        "blocks": {
            "forward": _tally(counts.forward),
            "backward": _tally(counts.backward),
            "recompute": _tally(counts.recompute),
        },
        "other": {
            "count": round(other.count),
            "bytes": round(other.bytes),
            "forward": _tally(counts.other_forward),
            "backward": _tally(counts.other_backward),
            "per_step": _tally(counts.other_per_step),
        },
    }
    if with_experts:
        shown["expert"] = _tally(counts.expert)
    return shown


def _added(first: Tally, second: Tally) -> dict[Any, tuple[Any, Any]]:
    kinds = [*first.by_kind, *(kind for kind in second.by_kind if kind not in first.by_kind)]
    none = (0.0, 0.0)
    pairs = {kind: (first.by_kind.get(kind, none), second.by_kind.get(kind, none)) for kind in kinds}
    return {kind: (a[0] + b[0], a[1] + b[1]) for kind, (a, b) in pairs.items()}


def _tally(tally: Tally) -> Json:
    """Totals, then each kind that occurs, by name; chunks of one collective count together as one."""
    kinds = {
        kind.value: {"count": round(count), "bytes": round(size)}
        for kind, (count, size) in sorted(tally.by_kind.items(), key=lambda item: item[0].value)
        if round(count)
    }
    return {"count": round(tally.count), "bytes": round(tally.bytes), **kinds}


def _memory(result: ArchitectureResult) -> Json:
    """Whole bytes: the parts add up to the peak exactly."""
    parts = {part: round(float(size)) for part, size in result.memory.parts.items()}
    return {**parts, "peak": sum(parts.values()), "capacity": round(result.memory_capacity), "fits": result.fits}


def _break_even(even: BreakEven) -> Json:
    shown = ("path", "architecture", "threshold", "current", "bandwidth", "pays_from", "always")
    values = asdict(even)
    return {key: values[key] for key in shown}


def _measured(result: Result) -> Json | None:
    """What was measured, what is predicted for it, and their ratio; null for metrics nobody measured."""
    measured = result.measured
    if measured is None:
        return None
    rows = {row.metric: row for row in comparisons(result)}
    return {
        "architecture": measured.architecture,
        "step_time_s": measured.step_time,
        "tokens_per_s_per_gpu": measured.tokens_per_s_per_gpu,
        "mfu": measured.mfu,
        "source": measured.source,
        "predicted": {metric: row.predicted for metric, row in rows.items()},
        "predicted_over_measured": {metric: row.ratio for metric, row in rows.items()},
    }
