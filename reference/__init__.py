"""The torch.distributed implementation that falsim is calibrated against (not written yet)."""
