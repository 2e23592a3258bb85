"""`python -m falsim` is the same as `falsim`."""

from falsim.cli import main

main(prog_name="falsim")
