"""Ladder Residual (arXiv 2501.06589): every sub-block reads the residual without its predecessor's result.

So the all-reduce of a sub-block runs under the next one. Block i is written with its predecessor's results carried
in: u holds everything up to the attention before, m the MLP before, still on its way; n = N1 u is made where u is.
"""

from falsim.architectures.base import Architecture, Carried
from falsim.dataflow import Block, Tensor


class Ladder(Architecture):
    """a = [a(N1 u)];  v = u + m_before;  m = [m(N2 v)];  u' = v + a."""

    name = "ladder"
    title = "Ladder"
    equation = "a = [a(N1 u)];  v = u + m_before;  m = [m(N2 v)];  u' = v + a"
    merge_partial_gradients = None
    local = frozenset({"n"})

    def first(self, b: Block, x: Tensor) -> Carried:
        """Block 1 has no MLP before it."""
        a = b.sync(b.attention(b.norm(x)))
        m = b.sync(b.mlp(b.norm(x)))
        u = x + a
        return {"u": u, "n": b.norm(u), "m": m}

    def later(self, b: Block, carried: Carried) -> Carried:
        """The block."""
        a = b.sync(b.attention(carried["n"]))
        v = carried["u"] + carried["m"]
        m = b.sync(b.mlp(b.norm(v)))
        u = v + a
        return {"u": u, "n": b.norm(u), "m": m}

    def leave(self, b: Block, carried: Carried) -> Tensor:
        """The last MLP joins the residual."""
        return carried["u"] + carried["m"]
