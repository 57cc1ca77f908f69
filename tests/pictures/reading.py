"""What a picture shows, read back from its artists."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle


def colour(artist) -> str:
    faces = artist.get_facecolor()
    return to_hex(faces[0] if getattr(faces, "ndim", 1) > 1 else faces).upper()


def bars(ax: Axes) -> list[tuple[str, float, float, float, str]]:
    """Mark, start, length, middle and colour of every horizontal bar."""
    return [
        (
            bar.get_gid(), bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2,
            colour(bar),
        )
        for bar in ax.patches
        if isinstance(bar, Rectangle) and bar.get_gid() and bar.get_width() > 0
    ]  # fmt: skip


def key(ax: Axes) -> list[str]:
    """Names in the key."""
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def spans(collection) -> list[tuple[float, float]]:
    """Start and length of every bar of a broken one."""
    boxes = [path.get_extents() for path in collection.get_paths()]
    return [(box.x0, box.width) for box in boxes]
