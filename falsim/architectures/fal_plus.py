"""FAL+ (arXiv 2510.14614): FAL with the MHA→MLP edge put back; costs GPT's all-reduces, for a better perplexity.

Where g enters relative to the MLP's norm is not in any source we could read; either place costs the same.
"""

from falsim.architectures.base import Architecture, Carried
from falsim.architectures.fal import gpt_with_signal
from falsim.dataflow import Block, Tensor


class FalPlus(Architecture):
    """Block 1: a GPT block, g = Nf(A1). Later: y = x + [a(N1 x)];  x' = y + [m(N2 y + g)]."""

    name = "fal_plus"
    title = "FAL+"
    equation = "y = x + [a(N1 x)];  x' = y + [m(N2 y + g)],  g = Nf([a1(N1 x1)])"

    def first(self, b: Block, x: Tensor) -> Carried:
        """A GPT block that keeps its attention's output."""
        return gpt_with_signal(b, x)

    def later(self, b: Block, carried: Carried) -> Carried:
        """The block."""
        x, g = carried["x"], carried["g"]
        y = x + b.attention(b.norm(x))
        return {"x": y + b.mlp(b.norm(y) + g), "g": g}
