"""Members of a calibration: parameter sets that all could be true, drawn the same way every time.

A member multiplies constants by factors. Whoever compares two architectures evaluates both on every member, so that
what is uncertain for both cancels in their ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np

from falsim.dataflow import Number

MEMBERS = 48


def draw(spreads: Mapping[str, float], members: int = MEMBERS, seed: int = 0) -> dict[str, Number]:
    """Log-normal factors of each constant, an array of `members`; `spreads` are standard deviations of the logarithm.

    The normal scores are made uncorrelated, of mean 0 and variance 1 within the sample, so that few members are enough:
    no constant's factor leans on another's. Raises ValueError for fewer members than that needs.
    """
    if members <= len(spreads) + 1:
        raise ValueError(f"{len(spreads)} constants need more than {len(spreads) + 1} members, not {members}")
    random = Random(seed)
    scores = np.array([[random.gauss(0.0, 1.0) for _ in spreads] for _ in range(members)])
    orthogonal, upper = np.linalg.qr(scores - scores.mean(axis=0))
    scores = orthogonal * np.sign(np.diag(upper)) * np.sqrt(members)
    return {name: np.exp(spread * scores[:, column]) for column, (name, spread) in enumerate(spreads.items())}
