"""Sweeps: every combination of a space of plans, policies, mappings and GPUs (docs/sweeps.md)."""
