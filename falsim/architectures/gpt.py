"""GPT: the pre-LN block of GPT-2; two all-reduces forward, two backward."""

from falsim.architectures.base import Architecture, Carried
from falsim.dataflow import Block


class Gpt(Architecture):
    """y = x + [a(N1 x)];  x' = y + [m(N2 y)]."""

    name = "gpt"
    title = "GPT"
    equation = "y = x + [a(N1 x)];  x' = y + [m(N2 y)]"

    def later(self, b: Block, carried: Carried) -> Carried:
        """The block."""
        x = carried["x"]
        y = x + b.attention(b.norm(x))
        return {"x": y + b.mlp(b.norm(y))}
