"""Pipeline schedules: the order of forward and backward passes on every rank.

GPipe (arXiv 1811.06965), 1F1B (PipeDream-Flush, arXiv 2006.09503) and interleaved 1F1B (arXiv 2104.04473, section 2.2;
Megatron-LM megatron/core/pipeline_parallel/schedules.py).
"""

from __future__ import annotations

from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of one rank: a chunk of its layers, for one micro-batch."""

    forward: bool
    chunk: int
    micro_batch: int


def order(schedule: str, ranks: int, virtual: int, micro_batches: int, rank: int) -> list[Pass]:
    """The passes of one rank in the order it runs them; `schedule` is 1f1b, gpipe or interleaved."""
    total = micro_batches * virtual
    if schedule == "gpipe":
        warmup = total
    elif schedule == "interleaved":
        warmup = total if micro_batches == ranks else min((ranks - rank - 1) * 2 + (virtual - 1) * ranks, total)
    else:
        warmup = min(ranks - rank - 1, total)
    group = ranks * virtual

    def forward(k: int) -> Pass:
        return Pass(True, k % group // ranks, k // group * ranks + k % ranks)

    def backward(k: int) -> Pass:
        return Pass(False, virtual - 1 - k % group // ranks, k // group * ranks + k % ranks)

    if virtual == 1:
        forward, backward = (lambda k: Pass(True, 0, k)), (lambda k: Pass(False, 0, k))
    passes = [forward(k) for k in range(warmup)]
    for k in range(total - warmup):
        passes += [forward(warmup + k), backward(k)]
    return passes + [backward(k) for k in range(total - warmup, total)]
