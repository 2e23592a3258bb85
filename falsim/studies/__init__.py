"""Questions that need many simulations: break-even points, sweeps, plans."""
