"""Whole forwards of a live engine, timed batch by batch."""
