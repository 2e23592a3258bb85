"""One training step of one architecture on one scenario: lowered blocks, stages, and what stands around them."""

from falsim.program.step import Program, Segment

__all__ = ["Program", "Segment"]
