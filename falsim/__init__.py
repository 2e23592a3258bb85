"""falsim: what a transformer block costs on given GPUs and links, and whether another block would pay."""

__version__ = "0.1.0"
