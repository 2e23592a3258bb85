"""Comparing predictions with what others measured; the data files stay outside the project."""
