"""Runs the notebooks and keeps them with their pictures: ``python notebooks/run.py [NAME ...]``.

What is kept reads well where nothing runs: text and pictures stay, sliders and anything that
differs from run to run (times of execution, numbers of widgets, warnings) do not.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).resolve().parent
SECONDS = 120
"""Longest time of one cell."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WIDGET = "application/vnd.jupyter.widget-view+json"


def notebooks() -> list[Path]:
    """All of them, in order."""
    return sorted(FOLDER.glob("[0-9]*.ipynb"))


def executed(path: Path) -> NotebookNode:
    """A notebook after all of its cells have run in a new kernel, in its own folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    os.environ |= ONE_THREAD
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
    )
    found: NotebookNode = client.execute()
    return found


def tidy(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what differs from run to run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place:02d}"
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.outputs = _joined(output for output in cell.outputs if _stays(output))
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None
            if "metadata" in output:
                output.metadata = {}
            if "image/png" in output.get("data", {}):
                png = _small(output.data["image/png"])
                output.data = {"image/png": png, "text/plain": "<picture>"}
    return notebook


def _joined(outputs: Iterable[NotebookNode]) -> list[NotebookNode]:
    """Text that was printed in a row as one output: a kernel sends it in pieces as it likes."""
    found: list[NotebookNode] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def _small(png: str) -> str:
    """The picture in 256 colours: half of the bytes, and the same to the eye."""
    picture = Image.open(BytesIO(b64decode(png))).convert("RGB")
    file = BytesIO()
    picture.quantize(256, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return b64encode(file.getvalue()).decode()


def _stays(output: NotebookNode) -> bool:
    return WIDGET not in output.get("data", {}) and output.get("name") != "stderr"


def main(names: list[str]) -> None:
    """Run those whose name holds one of the words, or all."""
    for path in notebooks():
        if not names or any(name in path.name for name in names):
            nbformat.write(tidy(executed(path)), path)
            sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
