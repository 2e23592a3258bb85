"""Numbers that may be arrays of configurations: the few operations that plain Python would do one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Number = Any
"""A float or a numpy array of floats; everything broadcasts."""


def more_than_one(degree: Number) -> bool:
    """Whether a degree of parallelism is above one; arrays hold configurations of one structure, so all or none."""
    return bool(np.all(np.asarray(degree) > 1))


def largest(values: Sequence[Number]) -> Number:
    """The largest of several numbers, per configuration."""
    return np.max(np.stack(np.broadcast_arrays(*values)), axis=0)


def of_largest(keys: Sequence[Number], candidates: Sequence[Mapping[str, Number]]) -> dict[str, Number]:
    """The values of the candidate whose key is largest, per configuration."""
    stacked = np.stack(np.broadcast_arrays(*keys))
    chosen = np.argmax(stacked, axis=0)[None, ...]
    picked = {}
    for name in candidates[0]:
        column = np.stack([np.broadcast_to(values[name], stacked.shape[1:]) for values in candidates])
        picked[name] = np.take_along_axis(column, chosen, axis=0)[0]
    return picked
