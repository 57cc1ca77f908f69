"""Before anything else is imported: matrices here are small, and processes share the cores."""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from hypothesis import settings  # noqa: E402

settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing here
settings.load_profile("untimed")
