"""Which calibration prices which measurements: the one place to change when there are more."""

from __future__ import annotations

from falsim.catalog.calibration import calibration_names, shipped_for
from falsim.catalog.entries import Gpu


def calibration_for(name: str, gpu: Gpu, asked: str | None) -> str:
    """The shipped calibration for a set on a GPU: the one asked for, else the one named after the set or the GPU."""
    if asked is not None:
        return asked
    return name if name in calibration_names() else shipped_for(gpu)
