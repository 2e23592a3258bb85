"""The parallel block of GPT-J (github.com/kingoflolz/mesh-transformer-jax) and PaLM (arXiv 2204.02311, section 2)."""

from falsim.architectures.base import Architecture, Carried
from falsim.dataflow import Block


class Parallel(Architecture):
    """x' = x + [a(N x) + m(N x)]."""

    name = "parallel"
    title = "parallel"
    equation = "x' = x + [a(N x) + m(N x)]"
    merge_partial_gradients = True
    independent_branches = True

    def later(self, b: Block, carried: Carried) -> Carried:
        """The block."""
        x = carried["x"]
        n = b.norm(x)
        return {"x": x + b.attention(n) + b.mlp(n)}
