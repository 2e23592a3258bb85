"""Engines place the ops of a step in time."""
