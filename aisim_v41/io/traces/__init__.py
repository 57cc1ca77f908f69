"""Kernels of a profiler's trace, and which operators they are (docs/collectors.md, "Import")."""
