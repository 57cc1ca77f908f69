"""Measurements of others, read into records, and written for others (docs/io.md)."""

from aisim_v41.io.aisimulate_fpm import read_aisimulate_fpm
from aisim_v41.io.csv_steps import read_csv_steps
from aisim_v41.io.dynamo_fpm import read_dynamo_fpm
from aisim_v41.io.export import write_dynamo_fpm
from aisim_v41.io.imported import Imported, Skipped
from aisim_v41.io.registry import IMPORTERS, Importer, read_steps, sniff
from aisim_v41.io.self_benchmark import read_self_benchmark
from aisim_v41.io.sglang_bench import read_sglang_bench
from aisim_v41.io.vllm_latency import read_vllm_latency

__all__ = [
    "IMPORTERS",
    "Imported",
    "Importer",
    "Skipped",
    "read_aisimulate_fpm",
    "read_csv_steps",
    "read_dynamo_fpm",
    "read_self_benchmark",
    "read_sglang_bench",
    "read_steps",
    "read_vllm_latency",
    "sniff",
    "write_dynamo_fpm",
]
