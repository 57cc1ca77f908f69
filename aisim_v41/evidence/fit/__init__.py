"""Fitting the laws to packaged tables; a command, ``python -m aisim_v41.evidence.fit``."""
