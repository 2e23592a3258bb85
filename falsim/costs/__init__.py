"""Seconds of one op: kernels on a device, collectives on a network."""
