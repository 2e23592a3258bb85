"""Members of a calibration: parameter sets that all could be true, drawn the same way every time.

A member multiplies constants by factors. Whoever compares two architectures evaluates both on every member, so that
what is uncertain for both cancels in their ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from falsim.dataflow import Number

MEMBERS = 48


def draw(spreads: Mapping[str, float], members: int = MEMBERS) -> dict[str, Number]:
    """Log-normal factors of each constant, an array of `members`; `spreads` are standard deviations of the logarithm.

    Points of an additive recurrence with the generalised golden ratio fill the unit cube evenly without a random
    generator (M. Roberts, The unreasonable effectiveness of quasirandom sequences, 2018).
    """
    ratio = _golden(len(spreads))
    index = np.arange(1, members + 1)
    factors = {}
    for dimension, (name, spread) in enumerate(spreads.items(), start=1):
        points = (0.5 + index * ratio**-dimension) % 1.0
        normal = np.array([NormalDist().inv_cdf(float(point)) for point in points])
        factors[name] = np.exp(spread * (normal - normal.mean()))
    return factors


def _golden(dimensions: int) -> float:
    """The positive root of x^(d+1) = x + 1."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    return root
