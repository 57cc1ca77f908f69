"""What an engine does with a request: every choice that changes counts, bytes or precision.

A preset describes one engine at one revision (``profiles/deepseek-v4.1-flash/policies.yaml``);
each field can be overridden and is echoed in the result. Meaning and source of every field:
``docs/policies.md``. What presets can be trusted for: docs/assumptions.md, "Presets".
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from aisim_v41.errors import InvalidInputError, MissingProfileError, nearest
from aisim_v41.model.precision import RoleFormats, role_formats
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.plan.builds import UNNAMED, check_build
from aisim_v41.plan.sizes import EVERY, captured_sizes

POLICY_FILE = "deepseek-v4.1-flash/policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePolicy:
    """All choices of a runtime.

    Decoder replay (report §3.2.2; runtime-semantics §1):

    Attributes:
        name: Preset that this policy started from.
        revision: Engine revision or document that the preset describes.
        decoder_replay: Layers after the last KV owner run only a tail of each request's rows.
        replay_tail_rows: Rows kept [rows]; a budget of its own, not the window.
        replay_anchor: The tail ends at the end of the step, or at the end of the prompt.
        replay_floor: Oldest position visible to kept rows when nothing was cut: "tail_start"
            (cut or not, the first kept row), "window_start" (as if there were no replay) or
            "prompt_window" (prompt end minus the tail).
        boundary_layer: The last KV owner runs all rows ("full"), or writes KV for all rows and
            queries with the tail ("kv_only").
        replay_exact: Keep enough rows that the last window is exact: (window - 1) rows a trimmed
            layer, plus one.
        replay_exact_multiple: That number is rounded up to a multiple of this [rows].
        replay_exact_min_tokens: With `replay_exact`, below this many new tokens a step nothing is
            cut [tokens].
        replay_min_tokens: Below this many new tokens a step nothing is cut, exact or not [tokens].
        decode_rows: Decode and verify rows in a step that also prefills: they keep their
            "own_window", they switch replay off for the step ("no_replay"), or they are cut like
            an extend of one row ("as_extend").
        replay_images: Prefills with image rows are cut like text ("as_text"), run all rows late and
            reuse nothing of a cache ("all_rows"), or switch replay off for the step ("no_replay").
        prompt_logprobs: Requests that want prompt log-probabilities are refused ("refuse"), run
            all rows late ("all_rows"), or run all rows with the tail's floor kept apart
            ("two_floors").

    Encoder replay (report §3.2.2; runtime-semantics §2):

    Attributes:
        encoder_replay: What rebuilds window KV after a hit of the global entries alone: nothing
            ("off"), a forward of its own before the step ("separate"), rows put in front of the
            step ("folded"), or a stored snapshot where there is one ("snapshot").
        encoder_replay_rows: Rows recomputed [rows].
        replayed_rows_compress: The compressor also runs on recomputed rows (nothing is stored).
        hit_page_tokens: Prefix-cache hits are cut to a multiple of this [tokens].
        hit_min_tokens: Hits without window KV of this length or less are not used [tokens].

    Indexer (report §2.3.2; runtime-semantics §7):

    Attributes:
        reindex_scoring: Reindex layers score only the candidate pool, or all keys and then mask.
        score_shape: Scores computed for what each query can see ("triangle") or up to the step's
            end for all ("rectangle").
        index_shortcut: Steps that skip scoring while every entry would be selected anyway:
            "never", "decode" (steps without prefill) or "always".

    Bytes, precision and execution:

    Attributes:
        kv_layout: Named cache-row layout, see `aisim_v41.model.cache_rows`.
        sharding: What is split and what is copied under tensor parallelism, slice padding and
            the resident form of ``wo_a``.
        index_arithmetic: Precision of index scoring: "fp4", "fp8" or "bf16"; "fp4_or_bf16" is
            FP4 on GPUs that have it and BF16 elsewhere.
        expert_arithmetic: Precision of routed experts: "mxfp4_mxfp8" or "bf16" (weights
            dequantised).
        attention_head_multiple: Local heads are padded up to a multiple of this in the kernel.
        expert_routing: Draws of experts that a bound counts: one a row ("independent"), one a
            prompt row and one for all rows of a verify step of one request ("per_request"), or a
            single one in all ("fewest").
        expert_locality: Share of experts that a further row of a verify step has in common with
            the rows before it, from 0 (rows draw on their own) to 1 (all draw once): n rows of one
            request make 1 + (n - 1)(1 - locality) draws as expected (OP). None of it is left with
            "independent" routing: OP never expects fewer experts than its bound.
        expert_popularity: How unlike experts are chosen: squared coefficient of variation of their
            popularity, 0 for alike; or the measured share of all choices of each expert. See
            `aisim_v41.plan.expert_load`.
        expert_exchange: With expert parallelism, every rank of a replica sees all rows and their
            sums are reduced ("gather"), or each row is sent to the ranks of its experts and back
            ("all_to_all").
        expert_imbalance: With expert parallelism, work of the fullest rank over the mean, from 1;
            None: what chance and popularity make of it (OP), see `aisim_v41.plan.expert_groups`.
        exchange_padding: Rows that experts see where ranks exchange them under attention data
            parallelism: those of all ranks as they are ("sum"), or every rank filled up to the
            fullest ("max"). Context parallelism always does the latter.
        exchange_return: How the experts' partial sums come back to the ranks of their rows:
            "reduce_scatter", or "all_reduce" of all rows, of which each rank keeps its own.
        fusion: Fusion profile, see `aisim_v41.ops.fusion`. The bound takes it; OP too where no
            build of the engine is known for the GPU, or where it was overridden.
        build: Dated build of the engine whose kernels OP prices, see `aisim_v41.plan.builds`;
            "any": the newest known one, with the spread of all of them in the band.
        decode_streams: Kernels of decode and verify steps that do not depend on each other run on
            side streams ("side") or one after another ("single"); prefill always does the latter.
        prefill_execution: "eager", "breakable_graph" (attention, and late layers of a replay, run
            eagerly between captured pieces) or "full_graph".
        prefill_graph_tokens: Largest step with a prefill that graphs were captured for [tokens];
            larger ones run eagerly. 0: of any size.
        decode_execution: "eager" or "full_graph".
        decode_graph_sizes: Batch sizes captured for decode steps, as in "1, 2, 4, 8-256/8", or
            "every": a step is filled up to the next and runs eagerly above the largest.
        verify_graph_sizes: The same for verify steps.
        graph_size_counts: What such a size counts: "requests" or "rows".
        verify_lengths: All requests of a verify step have as many rows, as have the requests that
            fill its graph ("uniform"); or graphs hold any lengths ("ragged"): the rows of all
            requests together are filled up to a captured number.

    Memory (runtime-semantics §6):

    Attributes:
        engram_residency: Where the tables are: "hbm" (rows over ranks), "host_sharded",
            "host_shared" (one copy) or "disk".
        engram_distinct_share: Share of looked-up rows that are distinct within a step.
        engram_prefetch: Rows of tables outside the GPU are fetched from the start of the step
            beside earlier layers ("step"), before the layers with nothing beside ("none"), or
            during the step before ("previous"; a prompt's ids are known then, a decode's not).
        engram_hit_share: Share of a rank's distinct rows that a cache has: of tables on a host one
            in GPU memory, of tables on disk one in host memory.
        engram_cache_mib: Size of that cache for one rank [MiB].
        engram_host_pages: A pinned table takes its own bytes on the host ("exact"), whole pages
            of 2 MiB ("huge"), or the allocator rounds every tensor up to a power of two
            ("power_of_two").
        vision_weights: The vision encoder and its projector are loaded.
        speculation: Whether the DSpark blocks are loaded and drafting: "off" or "dspark".
        draft_tokens: Tokens drafted for one request and step when they are [tokens].
        draft_pool: KV of the draft blocks is counted block by block ("layers"), or the whole KV
            pool is enlarged by one layer's share ("pool_share").
        page_tokens: Tokens of one KV page.
        page_counts: A page spans ``page_tokens`` tokens for every owner ("tokens"), or holds as
            many entries, so that an owner of ratio r spans r times as many tokens ("entries").
        kv_blocks: Every kind of row has pages of its own ("own"), or all of them draw blocks of
            one size from one pool ("shared", see `aisim_v41.memory.blocks`).
        window_slots: Window rows kept for one running request [rows] (ring capacity).
        window_page_rows: Window rows of one page [rows].
        window_pool: Window KV is a ring for each request ("per_request"), a pool sized as a
            ratio of the token pool ("ratio"), or a pool sized by the most that the running
            requests, the chunks in flight and the kept prefix tails can hold ("request_cap").
        window_ratio: That ratio.
        window_evict_tokens: Tokens that a request may decode before rows that left its window
            are freed [tokens] ("request_cap").
        prefix_tails: Cached window tails kept for each running request ("request_cap").
        pair_ring_rows: FP32 rows kept for one request and owner for groups that are not complete
            (value and score side by side) [rows].
        memory_fraction: Share of the GPU's memory that the engine takes for what
            ``fraction_covers`` names.
        fraction_covers: "all" (weights, buffers, reserves and KV share that memory) or "static"
            (weights and KV; buffers and graphs live in the rest).
        chunk_tokens: Largest number of prefill tokens in one step [tokens].
        max_requests: Largest number of running requests.
        index_workspace: The scores of a step are kept whole ("full") or in row blocks ("tiled").
        index_score_bytes: Buffer that one score takes [B].
        index_tile_mib: Largest block of scores when they are tiled [MiB].
        gather_workspace: Flat buffers for gathered keys and rows of whole contexts: "none", the
            index "keys" of one context while they are scored, or "vllm"
            (see `aisim_v41.memory.workspace`).
        graph_pool_mib: Memory of captured graphs [MiB]; an allowance.
        runtime_reserve_mib: Context, libraries and allocator slack [MiB]; an allowance.
        collective_mib: Buffers of the collectives when there are several GPUs [MiB]; an allowance.
        exchange_mib: Buffers of an all-to-all between experts [MiB]; an allowance.

    Formats and refusals:

    Attributes:
        formats: Number formats by role in place of those of checkpoint and layout, as in
            "main_kv=fp8_e4m3+32,head=fp8" (`aisim_v41.model.precision`).
        engine_rules: What the preset's engine refuses is an error ("enforced"), or runs with a
            warning that names every engine which would refuse it ("warned").
    """

    name: str
    revision: str
    decoder_replay: bool = False
    replay_tail_rows: int = 128
    replay_anchor: Literal["step_end", "prompt_end"] = "step_end"
    replay_floor: Literal["tail_start", "window_start", "prompt_window"] = "tail_start"
    boundary_layer: Literal["full", "kv_only"] = "full"
    replay_exact: bool = False
    replay_exact_multiple: int = 256
    replay_exact_min_tokens: int = 16384
    replay_min_tokens: int = 0
    decode_rows: Literal["own_window", "no_replay", "as_extend"] = "own_window"
    replay_images: Literal["as_text", "all_rows", "no_replay"] = "as_text"
    prompt_logprobs: Literal["refuse", "all_rows", "two_floors"] = "refuse"
    encoder_replay: Literal["off", "separate", "folded", "snapshot"] = "off"
    encoder_replay_rows: int = 128
    replayed_rows_compress: bool = False
    hit_page_tokens: int = 1
    hit_min_tokens: int = 0
    reindex_scoring: Literal["candidates", "dense"] = "candidates"
    score_shape: Literal["triangle", "rectangle"] = "triangle"
    index_shortcut: Literal["never", "decode", "always"] = "never"
    kv_layout: str = "trained"
    sharding: ShardingRules = field(default_factory=ShardingRules)
    index_arithmetic: Literal["fp4", "fp8", "bf16", "fp4_or_bf16"] = "fp4"
    expert_arithmetic: Literal["mxfp4_mxfp8", "bf16"] = "mxfp4_mxfp8"
    attention_head_multiple: int = 1
    expert_routing: Literal["independent", "per_request", "fewest"] = "per_request"
    expert_locality: float = 0.4
    expert_popularity: float | tuple[float, ...] = 1.0
    expert_exchange: Literal["gather", "all_to_all"] = "gather"
    expert_imbalance: float | None = None
    exchange_padding: Literal["sum", "max"] = "sum"
    exchange_return: Literal["reduce_scatter", "all_reduce"] = "reduce_scatter"
    fusion: Literal["elementary", "single_pass", "sglang_decode", "vllm_mega_mhc"] = "single_pass"
    build: str = UNNAMED
    decode_streams: Literal["side", "single"] = "side"
    prefill_execution: Literal["eager", "breakable_graph", "full_graph"] = "eager"
    prefill_graph_tokens: int = 0
    decode_execution: Literal["eager", "full_graph"] = "full_graph"
    decode_graph_sizes: str = EVERY
    verify_graph_sizes: str = EVERY
    graph_size_counts: Literal["requests", "rows"] = "requests"
    verify_lengths: Literal["uniform", "ragged"] = "uniform"
    engram_residency: Literal["hbm", "host_sharded", "host_shared", "disk"] = "hbm"
    engram_distinct_share: float = 1.0
    engram_prefetch: Literal["step", "none", "previous"] = "step"
    engram_hit_share: float = 0.0
    engram_cache_mib: int = 0
    engram_host_pages: Literal["exact", "huge", "power_of_two"] = "exact"
    vision_weights: bool = True
    speculation: Literal["off", "dspark"] = "off"
    draft_tokens: int = 5
    draft_pool: Literal["layers", "pool_share"] = "layers"
    page_tokens: int = 256
    page_counts: Literal["tokens", "entries"] = "tokens"
    kv_blocks: Literal["own", "shared"] = "own"
    window_slots: int = 128
    window_page_rows: int = 128
    window_pool: Literal["per_request", "ratio", "request_cap"] = "per_request"
    window_ratio: float = 0.1
    window_evict_tokens: int = 128
    prefix_tails: int = 4
    pair_ring_rows: int = 2
    memory_fraction: float = 0.9
    fraction_covers: Literal["all", "static"] = "all"
    chunk_tokens: int = 8192
    max_requests: int = 256
    index_workspace: Literal["full", "tiled"] = "full"
    index_score_bytes: int = 2
    index_tile_mib: int = 2048
    gather_workspace: Literal["none", "keys", "vllm"] = "none"
    graph_pool_mib: int = 2600
    runtime_reserve_mib: int = 1024
    collective_mib: int = 512
    exchange_mib: int = 1024
    formats: str = ""
    engine_rules: Literal["enforced", "warned"] = "enforced"

    def __post_init__(self) -> None:
        for f in fields(self):
            _check_field(f.name, getattr(self, f.name), _field_types()[f.name])
        for name in ("decode_graph_sizes", "verify_graph_sizes"):
            captured_sizes(getattr(self, name), f"policy field {name}")
        check_build(self.build, self.name)
        try:
            object.__setattr__(self, "formats", str(role_formats(self.formats)))
        except InvalidInputError as error:
            raise InvalidInputError(f"policy field formats: {error}") from None

    def with_overrides(self, **overrides: Any) -> RuntimePolicy:
        """A copy with some fields changed; fields of ``sharding`` may be named directly.

        Raises:
            InvalidInputError: an unknown field, or a value that the field does not take.
        """
        own = {f.name for f in fields(self)} - {"name", "revision"}
        rules = {f.name for f in fields(ShardingRules)}
        unknown = sorted(set(overrides) - own - rules)
        if unknown:
            raise InvalidInputError(
                f"policy has no field {unknown[0]!r}; {nearest(unknown[0], own | rules)}"
            )
        for_rules = {key: overrides.pop(key) for key in sorted(set(overrides) & rules)}
        sharding = overrides.pop("sharding", self.sharding)
        if for_rules:
            _check_field("sharding", sharding, ShardingRules)
            sharding = replace(sharding, **for_rules)
        return replace(self, sharding=sharding, **overrides)

    @property
    def role_formats(self) -> RoleFormats:
        """`formats` as a record."""
        return role_formats(self.formats)

    @property
    def origin(self) -> RuntimePolicy:
        """The preset of this policy's name; for a name of the user's own, the defaults."""
        return _presets().get(self.name) or RuntimePolicy(name=self.name, revision=self.revision)

    def changed_fields(self) -> dict[str, Any]:
        """Fields in which this policy differs from its `origin`, those of its sharding rules under
        their own names."""
        base = self.origin
        changed = _differences(self, base)
        if changed.pop("sharding", None) is not None:
            changed |= _differences(self.sharding, base.sharding)
        return changed


def _differences(one: Any, other: Any) -> dict[str, Any]:
    """Fields of a record that differ from another's."""
    return {
        f.name: getattr(one, f.name)
        for f in fields(one)
        if getattr(one, f.name) != getattr(other, f.name)
    }


_POSITIVE = {
    "replay_tail_rows", "replay_exact_multiple", "encoder_replay_rows", "hit_page_tokens",
    "attention_head_multiple", "page_tokens", "window_slots", "chunk_tokens", "max_requests",
    "draft_tokens", "window_page_rows", "window_evict_tokens", "prefix_tails", "pair_ring_rows",
    "index_score_bytes", "index_tile_mib", "graph_pool_mib", "runtime_reserve_mib",
    "collective_mib", "exchange_mib",
}  # fmt: skip
_MAX_INT = 1 << 30
_MAY_BE_ZERO = {"expert_locality", "engram_hit_share"}
"""Shares that may be 0."""
_POPULARITY = "expert_popularity"
_IMBALANCE = "expert_imbalance"
_MOST_IMBALANCED = 1000.0
_MOST_SKEWED = 100.0
_ROUNDING = 1e-6


@cache
def _field_types() -> dict[str, Any]:
    return typing.get_type_hints(RuntimePolicy)


def _check_field(name: str, value: object, expected: Any) -> None:
    if typing.get_origin(expected) is Literal:
        allowed = typing.get_args(expected)
        if not (isinstance(value, str) and value in allowed):
            raise InvalidInputError(f"policy field {name} = {value!r}: must be one of {allowed}")
    elif expected is int:
        low = 1 if name in _POSITIVE else 0
        if type(value) is not int or not low <= value <= _MAX_INT:
            raise InvalidInputError(
                f"policy field {name} = {value!r}: must be a whole number from {low} to {_MAX_INT}"
            )
    elif name == _IMBALANCE:
        _check_imbalance(value)
    elif expected is float:
        number = typing.cast(float, value) if type(value) in (int, float) else -1.0
        if not 0 <= number <= 1 or (number == 0 and name not in _MAY_BE_ZERO):
            limits = "from 0 to 1" if name in _MAY_BE_ZERO else "above 0 and at most 1"
            raise InvalidInputError(f"policy field {name} = {value!r}: must be a share {limits}")
    elif name == _POPULARITY:
        _check_popularity(value)
    elif not isinstance(value, expected):
        raise InvalidInputError(
            f"policy field {name} = {value!r}: must be of type {expected.__name__}"
        )


def _check_imbalance(value: object) -> None:
    number = typing.cast(float, value) if type(value) in (int, float) else -1.0
    if value is not None and not 1 <= number <= _MOST_IMBALANCED:
        raise InvalidInputError(
            f"policy field {_IMBALANCE} = {value!r}: must be None (from popularity), or a number "
            f"from 1 to {_MOST_IMBALANCED:g}"
        )


def _check_popularity(value: object) -> None:
    number = typing.cast(float, value) if type(value) in (int, float) else -1.0
    if 0 <= number <= _MOST_SKEWED:
        return
    if isinstance(value, tuple) and value:
        known = all(type(share) in (int, float) and 0 <= share <= 1 for share in value)
        if known and abs(sum(value) - 1) <= _ROUNDING:
            return
    shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:76]} ..."
    raise InvalidInputError(
        f"policy field {_POPULARITY} = {shown}: must be a number from 0 (alike) to "
        f"{_MOST_SKEWED:g}, or a tuple of shares from 0 to 1 that sum to 1, one an expert"
    )


@cache
def _presets() -> dict[str, RuntimePolicy]:
    from aisim_v41.reading import read_mapping
    from aisim_v41.resources import find

    raw = read_mapping(find("profiles", POLICY_FILE, ".yaml"))
    presets: dict[str, RuntimePolicy] = {}
    for name, entry in raw["presets"].items():
        base = RuntimePolicy(name=name, revision=entry["revision"])
        presets[name] = base.with_overrides(**entry["fields"])
    return presets


def preset_names() -> tuple[str, ...]:
    """Names that `policy` accepts."""
    return tuple(sorted(_presets()))


CUSTOM = "custom"
"""Not a preset: any of them without its engine's refusals."""


def policy(name: str, *, base: str | None = None, **overrides: Any) -> RuntimePolicy:
    """A preset, with fields changed by keyword.

    Args:
        name: "paper", "sglang", "vllm", "atom" or "trtllm"; or "custom": the preset ``base``
            without what its engine refuses (``engine_rules="warned"``).
        base: What "custom" starts from, "paper" if not given.
        **overrides: Fields of `RuntimePolicy` or of its sharding rules.

    Raises:
        MissingProfileError: no preset of that name.
        InvalidInputError: an unknown field or a value it does not take; a base for a preset.

    Example:
        >>> policy("sglang", decoder_replay=True).replay_tail_rows
        128
        >>> policy("custom", base="sglang").engine_rules
        'warned'
    """
    if name == CUSTOM:
        name = "paper" if base is None else base
        overrides = {"engine_rules": "warned"} | overrides
    elif base is not None:
        raise InvalidInputError(f"policy({name!r}, base={base!r}): only 'custom' has a base")
    presets = _presets()
    if not isinstance(name, str) or name not in presets:
        known = [*presets, CUSTOM] if base is None else presets
        raise MissingProfileError(f"no policy named {name!r}; {nearest(str(name), known)}")
    return presets[name].with_overrides(**overrides) if overrides else presets[name]
