"""FAL, First Attentions Last (arXiv 2510.14614): the first attention feeds every later MLP; one all-reduce a block.

Whether block 1 keeps its own MHA→MLP edge is not in any source we could read; `first_block` has both readings.
"""

from falsim.architectures.base import Architecture, Carried
from falsim.dataflow import Block, Tensor


class Fal(Architecture):
    """Block 1: A1 = [a(N1 x)], g = Nf(A1). Later: x' = x + [a(N1 x) + m(N2 x + g)]."""

    name = "fal"
    title = "FAL"
    equation = "x' = x + [a(N1 x) + m(N2 x + g)],  g = Nf([a1(N1 x1)])"
    merge_partial_gradients = True
    independent_branches = True

    def first(self, b: Block, x: Tensor) -> Carried:
        """A GPT block that keeps its attention's output, or with `first_block: fal` x' = x + A1 + [m(N2 x + g)]."""
        if b.first_block == "gpt":
            return gpt_with_signal(b, x)
        a1 = b.sync(b.attention(b.norm(x)))
        g = b.norm(a1)
        return {"x": x + a1 + b.mlp(b.norm(x) + g), "g": g}

    def later(self, b: Block, carried: Carried) -> Carried:
        """Attention and MLP both read x; their partial sums are added and reduced once."""
        x, g = carried["x"], carried["g"]
        return {"x": x + b.attention(b.norm(x)) + b.mlp(b.norm(x) + g), "g": g}


def gpt_with_signal(b: Block, x: Tensor) -> Carried:
    """A1 = [a(N1 x)];  y = x + A1;  x' = y + [m(N2 y)];  g = Nf(A1)."""
    a1 = b.sync(b.attention(b.norm(x)))
    g = b.norm(a1)
    y = x + a1
    return {"x": y + b.mlp(b.norm(y)), "g": g}
