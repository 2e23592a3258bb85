"""A result as CSV: one row per architecture, units in the names of the columns."""

from __future__ import annotations

import csv
import io

from falsim.report.breakdown import breakdown
from falsim.simulate import ArchitectureResult, Result

Cell = str | int | float | None


def csv_text(result: Result) -> str:
    """Header and one row per architecture; lines end with a newline only, an empty cell is a value not known."""
    rows = [_row(result, each) for each in result.results]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _row(result: Result, each: ArchitectureResult) -> dict[str, Cell]:
    time, speedup = each.step_time_interval_s or (None, None), each.speedup_interval or (None, None)
    parts = breakdown(each)
    blocks = each.collectives
    return {
        "name": result.scenario.name,
        "scenario_hash": result.scenario_hash,
        "calibration": result.calibration,
        "calibration_kind": result.calibration_kind,
        "world_size": result.scenario.world_size,
        "architecture": each.architecture,
        "step_time_s": each.step_time_s,
        "step_time_low_s": time[0],
        "step_time_high_s": time[1],
        "tokens_per_s": each.tokens_per_s,
        "tokens_per_s_per_gpu": each.tokens_per_s_per_gpu,
        "mfu": each.mfu,
        "mfu_causal": each.mfu_causal,
        "hfu": each.hfu,
        "speedup_over_gpt": each.speedup_over_gpt,
        "speedup_low": speedup[0],
        "speedup_high": speedup[1],
        "exposed_communication_s": each.exposed_communication_s,
        "bubble_s": parts["pipeline_bubble"],
        "tensor_communication_s": each.tensor_communication_s,
        **{f"breakdown_{part}_s": seconds for part, seconds in parts.items()},
        "blocks_forward_collectives": round(blocks.forward.count),
        "blocks_forward_collective_bytes": round(blocks.forward.bytes),
        "blocks_backward_collectives": round(blocks.backward.count),
        "blocks_backward_collective_bytes": round(blocks.backward.bytes),
        **{f"memory_{part}_bytes": round(float(size)) for part, size in each.memory.parts.items()},
        "memory_peak_bytes": sum(round(float(size)) for size in each.memory.parts.values()),
        "memory_capacity_bytes": round(each.memory_capacity),
        "fits": str(each.fits).lower(),
    }
