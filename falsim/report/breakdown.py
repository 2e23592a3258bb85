"""The parts of a step as they are shown: rounding noise of the engine's sums is not a part."""

from __future__ import annotations

from falsim.simulate import ArchitectureResult

NOISE = 1e-12
"""Parts below this share of the step are differences of equal sums: zero, whatever their sign."""


def breakdown(result: ArchitectureResult) -> dict[str, float]:
    """Seconds by part, none of them negative; they add up to the step time."""
    least = NOISE * result.step_time_s
    return {part: 0.0 if abs(seconds) < least else seconds for part, seconds in result.breakdown_s.items()}
