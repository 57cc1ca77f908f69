"""Pictures (docs/pictures.md): each takes what the library returns and optional axes, and returns
the axes. None shows itself; each says its units, source and assumptions.

Needs matplotlib, the extra ``plots``, which is imported when something is drawn.
"""

from aisim_v41.pictures.canvas import look, save
from aisim_v41.pictures.layers import layer_map, token_map
from aisim_v41.pictures.memory import capacity_bars, capacity_terms
from aisim_v41.pictures.predictions import predictions
from aisim_v41.pictures.rooflines import methods, roofline
from aisim_v41.pictures.sliders import Sliders
from aisim_v41.pictures.steps import breakdown, timeline
from aisim_v41.pictures.sweeps import pareto, surface
from aisim_v41.pictures.tornados import tornado

__all__ = [
    "Sliders",
    "breakdown",
    "capacity_bars",
    "capacity_terms",
    "layer_map",
    "look",
    "methods",
    "pareto",
    "predictions",
    "roofline",
    "save",
    "surface",
    "timeline",
    "token_map",
    "tornado",
]
