"""Columns of a table of forwards: one row a record, its requests as lists (docs/forwards.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["text", "whole", "real", "texts", "wholes", "reals", "flags"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: as in the file.
        kind: ``text``, ``whole`` (64-bit integer), ``real`` (double), or a list of them;
            ``flags``: a list of booleans.
        unit: of the values; ``name`` for text, ``1`` for counts.
        meaning: what it is.
        nullable: a row, or an entry of a list, may have none.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    nullable: bool = False


REQUESTS: Final = (
    Column("new_tokens", "wholes", "token", "tokens that each request computes"),
    Column("prefix_tokens", "wholes", "token", "positions of each computed before the step"),
    Column("kind", "texts", "name", "prefill, decode or verify"),
    Column("count", "wholes", "1", "identical requests that an entry stands for"),
    Column("prompt_tokens", "wholes", "token", "length of the whole prompt; none: ends here", True),
    Column("window", "texts", "name", "where the prefix's window is: running, cached, missing, "
           "snapshot"),
    Column("window_start", "wholes", "token", "first position whose window rows exist"),
    Column("prompt_logprobs", "flags", "1", "log-probabilities of the prompt are asked for"),
)  # fmt: skip
"""Lists of one length, an entry a request, in the order of the fields of `Request`; empty in rows
of sums."""

ADDED: Final = (
    Column("image_tokens", "wholes", "token", "rows of each that belong to images"),
    Column("rank", "wholes", "1", "attention-data-parallel rank of each; none: dealt", True),
)  # fmt: skip
"""Further fields of `Request`, as `REQUESTS`, at the end of the file. A file has such a column only
where a request has another value than the field's default: so files from before there was such a
field are read as they were meant, and files without such requests stay the same to the byte."""

SUMS: Final = (
    Column("prefill_requests", "whole", "1", "requests that prefill", True),
    Column("prefill_tokens", "whole", "token", "tokens that they compute", True),
    Column("prefill_kv_tokens", "whole", "token", "positions of theirs computed before", True),
    Column("prefill_length_variance", "real", "token²", "population variance of the lengths of "
           "their whole prompts; none: not known", True),
    Column("decode_requests", "whole", "1", "requests that decode one token", True),
    Column("decode_kv_tokens", "whole", "token", "positions of theirs computed before", True),
    Column("decode_kv_variance", "real", "token²", "population variance of those; none: not known",
           True),
)  # fmt: skip
"""None in rows of requests."""

MEASURED: Final = (
    Column("status", "text", "name", "how the measurement ended"),
    Column("latency_ms", "real", "millisecond", "statistic of the measurements; none unless ok",
           True),
    Column("samples_ms", "reals", "millisecond", "single measurements, where they are known"),
    Column("samples", "whole", "1", "measurements behind latency_ms"),
    Column("run", "text", "name", "process that measured"),
    Column("order", "whole", "1", "position in the run; none: not known", True),
    Column("regime", "text", "name", "label of the conditions in the source"),
    Column("point", "text", "name", "name in the source"),
    Column("source", "text", "name", "file and place"),
    Column("note", "text", "name", "anything else"),
)  # fmt: skip

COLUMNS: Final = (*REQUESTS, *SUMS, *MEASURED)
"""Columns of every file, in its order; those of `ADDED` that it has come after them."""
