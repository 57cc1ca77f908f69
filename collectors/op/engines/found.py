"""Whose kernels an operator has: those of the engines first, then the collectors' own.

None of these packages was at hand when the adapters were written: they follow the packages' public
signatures, and whether one is right shows on the owner's GPU, by the check of its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from collectors.case import Case
from collectors.errors import CollectorError, UnavailableError
from collectors.op.kind import Implementation, Kind

_HERE = "collectors.op.engines"
_QUANTISED = {"dtype": ("fp8_block128",), "operand": ("quantised",)}
ENGINES: Mapping[str, tuple[Implementation, ...]] = {
    "site_norm": (
        Implementation("sglang", "rmsnorm", f"{_HERE}.norms:build_sgl_kernel"),
        Implementation("vllm", "rms_norm", f"{_HERE}.norms:build_vllm"),
        Implementation("trtllm", "flashinfer_rmsnorm", f"{_HERE}.norms:build_flashinfer"),
    ),
    "final_norm": (
        Implementation("sglang", "rmsnorm", f"{_HERE}.norms:build_sgl_kernel"),
        Implementation("vllm", "rms_norm", f"{_HERE}.norms:build_vllm"),
        Implementation("trtllm", "flashinfer_rmsnorm", f"{_HERE}.norms:build_flashinfer"),
    ),
    "gemm": (
        Implementation("sglang", "deep_gemm_fp8_gemm_nt", f"{_HERE}.products:build_deep_gemm",
                       _QUANTISED),
    ),
    "sparse_attention": (
        Implementation("sglang", "flash_mla_sparse_fwd", f"{_HERE}.attention:build_flash_mla",
                       {"layout": ("bytes1024",)}),
    ),
    "router_select": (
        Implementation("trtllm", "noaux_tc_op", f"{_HERE}.experts:build_trtllm_select"),
    ),
}  # fmt: skip
"""Operators, and the kernels that engines have for them."""


def implementations(kind: Kind) -> Iterator[Implementation]:
    """Every implementation of a kind, best first; whether one is here shows when it is built."""
    yield from ENGINES.get(kind.operator, ())
    yield from kind.implementations


def availability(device_name: str) -> list[dict[str, str]]:
    """Every kernel of an engine, and whether it is here, with the reason."""
    import torch

    from collectors.op.kinds.registry import KINDS

    found = []
    for operator, kernels in ENGINES.items():
        for one in kernels:
            case = _smallest(KINDS[operator], one)
            try:
                one.load()(case, torch.device(device_name))
                said = "here"
            except UnavailableError as error:
                said = str(error)
            except (CollectorError, RuntimeError) as error:
                said = f"cannot be set up: {error}"[:160]
            found.append({"operator": operator, "engine": one.engine, "kernel": one.kernel_source,
                          "status": said})  # fmt: skip
    return found


def _smallest(kind: Kind, one: Implementation) -> Case:
    """A small case that an implementation serves."""
    sizes = {rule.name: max(rule.lowest, _SMALL.get(rule.name, 1)) for rule in kind.sizes
             if rule.default is None}  # fmt: skip
    options = {name: words[0] for name, words in one.serves.items()}
    return kind.complete(Case(kind.operator, sizes, options))


_SMALL = {"outputs": 128, "inputs": 128, "keys_per_row": 64, "heads": 64, "rows": 8}
