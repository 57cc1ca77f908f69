"""Measured forwards: what ran, in what, and how long it took (docs/forwards.md)."""
