"""The bound no architecture can pass: GPT with every tensor-parallel collective free."""

from falsim.architectures.gpt import Gpt


class NoSync(Gpt):
    """GPT's equations, wrong results, no waiting."""

    name = "no_sync"
    title = "the no-sync bound"
    equation = "y = x + a(N1 x);  x' = y + m(N2 y), nothing synchronised"
    free_collectives = True
