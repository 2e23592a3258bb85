"""What an architecture says: its blocks as equations, what it carries from block to block, and its own defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from falsim.dataflow import Block, Tensor

Carried = Mapping[str, Tensor]
"""The tensors a block hands to the next, by name."""


class Architecture(ABC):
    """A transformer block as dataflow. A subclass writes `later`, and `first` where block 1 differs.

    `a + b` adds, `b.norm`, `b.attention` and `b.mlp` are N, a and m of the equations, `b.sync(t)` is [t]. Nothing is
    said of collectives or of the backward pass: both are derived (`falsim.dataflow`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """The name people print."""
    equation: ClassVar[str]
    merge_partial_gradients: ClassVar[bool | None] = False
    """Default of the switch of that name: add the input gradients of several linears before reducing them. None: never,
    because a merged reduction would start too late to be hidden."""
    local: ClassVar[frozenset[str]] = frozenset()
    """Carried tensors the next pipeline stage makes again from the others, so they are not sent."""
    independent_branches: ClassVar[bool] = False
    """Whether attention and MLP of a block may run at the same time on one GPU (`concurrent_attention_mlp`)."""
    free_collectives: ClassVar[bool] = False
    """Whether tensor-parallel collectives cost nothing: a bound, not a model."""

    def first(self, b: Block, x: Tensor) -> Carried:
        """Block 1, from the embedding x."""
        return self.later(b, {"x": x})

    @abstractmethod
    def later(self, b: Block, carried: Carried) -> Carried:
        """Block i > 1, from what block i - 1 carried."""

    def leave(self, b: Block, carried: Carried) -> Tensor:
        """The last block's output."""
        return carried["x"]
