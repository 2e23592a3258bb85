"""Questions that take many simulations, such as where an architecture stops paying."""
