"""Blocks as dataflow over placed tensors: recorded, lowered forward, derived backward, changed by passes."""

from falsim.dataflow.arrays import Number, largest, more_than_one, of_largest
from falsim.dataflow.backward import Backward
from falsim.dataflow.block import Block, Dims, NodeKind, Tensor
from falsim.dataflow.expression import Expression, wanted_placements
from falsim.dataflow.lowering import Forward
from falsim.dataflow.ops import (
    Attention,
    Collective,
    CollectiveKind,
    Elementwise,
    Gemm,
    Graph,
    Group,
    Op,
    Phase,
    Placement,
    Stream,
    Transfer,
    Work,
)
from falsim.dataflow.recompute import before, replay, saved_bytes

__all__ = [
    "Attention",
    "Backward",
    "Block",
    "Collective",
    "CollectiveKind",
    "Dims",
    "Elementwise",
    "Expression",
    "Forward",
    "Gemm",
    "Graph",
    "Group",
    "NodeKind",
    "Number",
    "Op",
    "Phase",
    "Placement",
    "Stream",
    "Tensor",
    "Transfer",
    "Work",
    "before",
    "largest",
    "more_than_one",
    "of_largest",
    "replay",
    "saved_bytes",
    "wanted_placements",
]
