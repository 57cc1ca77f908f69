"""The table of errors in docs/calibration.md is that of the residual files.

``python tests/evidence/test_document.py`` rewrites it.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from aisim_v41.tables.schema import GPUS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "calibration.md"
ROWS = (
    ("sglang", "product.bf16", "product.bf16, SGLang"),
    ("sglang", "product.fp8", "product.fp8, SGLang"),
    ("trtllm", "product.fp8", "product.fp8, TensorRT-LLM"),
    ("sglang", "experts.mxfp4", "experts.mxfp4, SGLang"),
    ("vllm", "experts.mxfp4", "experts.mxfp4, vLLM"),
    ("vllm", "attention", "attention, vLLM"),
    ("sglang", "scores.fp8", "scores.fp8, SGLang"),
    ("sglang", "select", "select, SGLang"),
    ("sglang", "hyper.pre", "hyper.pre, SGLang"),
    ("sglang", "hyper.post", "hyper.post, SGLang"),
    ("vllm", "hyper.fused", "hyper.fused, vLLM"),
    ("any", "quantise", "quantise"),
    ("any", "all_reduce.sglang@4", "all-reduce, SGLang, 4 GPUs"),
    ("any", "all_reduce.vllm@4", "all-reduce, vLLM, 4 GPUs"),
    ("any", "all_gather.nccl@4", "all-gather, NCCL, 4 GPUs"),
)


def table() -> str:
    found: dict[tuple[str, str, str], str] = {}
    for gpu in GPUS:
        path = ROOT / "profiles" / gpu / "op" / "calibration_residuals.csv"
        for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
            if row["part"] == "left out":
                key = row["law"].replace("_older", "")
                text = f"{float(row['median_error']):.3f}/{float(row['p90_error']):.2f}"
                found[gpu, row["engine"], key] = text
    lines = [f"| law | {' | '.join(GPUS)} |", "|---" * (1 + len(GPUS)) + "|"]
    for engine, law, title in ROWS:
        cells = [found.get((gpu, engine, law), "") for gpu in GPUS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def between(text: str) -> re.Match[str]:
    found = re.search(r"(<!-- errors: begin -->\n)(.*?)(<!-- errors: end -->)", text, re.DOTALL)
    assert found is not None
    return found


def test_the_table_of_errors_is_up_to_date():
    found = between(PAGE.read_text(encoding="utf-8"))[2]
    assert found.strip() == table(), "run: python tests/evidence/test_document.py"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    place = between(page)
    page = f"{page[: place.end(1)]}{table()}\n{page[place.start(3) :]}"
    PAGE.write_text(page, encoding="utf-8")
