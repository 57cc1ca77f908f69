"""Does a deployment start, what fits, which term fails, and what frees most.

>>> from aisim_v41 import Parallel, load_hardware, load_model, policy
>>> report = capacity(load_model("deepseek-v4.1-flash"), load_hardware("gb300"),
...                   parallel=Parallel(tp=4), policy=policy("sglang"))
>>> report.starts
True
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import CapacityError, InvalidInputError
from aisim_v41.hardware import Hardware
from aisim_v41.memory.budget import Budget
from aisim_v41.memory.host import HostMemory, disk_terms, host_memory
from aisim_v41.memory.layouts import layout_notes
from aisim_v41.memory.pool import KvPool
from aisim_v41.memory.relief import Relief, reliefs
from aisim_v41.memory.setting import Setting
from aisim_v41.memory.terms import Kind, Term, size, total
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import engine_warnings
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.policy import policy as preset

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReport:
    """Memory of one deployment; figures are of one rank unless they say otherwise.

    Attributes:
        setting: What was asked, every field of the policy included.
        budget: The GPU's memory, shared out.
        pool: KV of one rank, with the exact conversions.
        host: Memory of the hosts.
        disk: What is read from disk.
        tokens: Tokens that fit beside the windows and state of ``setting.requests`` [tokens].
        sessions: Sessions of ``setting.max_length`` tokens that run at once, at most
            ``setting.requests`` of the replica.
        frees_most: Changes that free memory, best first.
    """

    setting: Setting
    budget: Budget
    pool: KvPool
    host: HostMemory
    disk: tuple[Term, ...]
    tokens: int
    sessions: int
    frees_most: tuple[Relief, ...]

    @property
    def kv_bytes(self) -> int:
        """KV pool [B]: what the budget leaves; negative when it is overdrawn."""
        return self.budget.kv_bytes

    @property
    def budget_bytes(self) -> int:
        """Memory that ``memory_fraction`` grants [B]."""
        return self.budget.budget_bytes

    @property
    def weights_bytes(self) -> int:
        """Resident weights and tables on the GPU [B]."""
        return self.bytes_of(Kind.WEIGHTS, Kind.ENGRAM)

    def bytes_of(self, *kinds: Kind) -> int:
        """Bytes [B] of the GPU's terms of some kinds."""
        return sum(term.bytes for term in self.budget.terms if term.kind in kinds)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term of the GPU with the KV pool in it, then host and disk.

        The GPU's terms add up to its memory unless the budget is overdrawn.
        """
        kv = Term(
            name="KV pool",
            kind=Kind.KV,
            bytes=self.kv_bytes,
            formula=f"{self.budget_bytes} B of the budget - {total(self.budget.charged)} B charged",
            source="runtime-semantics §6.3",
        )
        return (*self.budget.terms, kv, *self.host.terms, *self.disk)

    @property
    def needed_kv_bytes(self) -> int:
        """The least KV with which the engine starts: one request of the longest context [B]."""
        length = self.setting.max_length
        if self.pool.window.kind == "per_request":
            return self.pool.admitted_bytes(length)
        return self.pool.bytes_for_sessions(1, length, self.setting.rank_requests)

    @property
    def failing(self) -> str | None:
        """The term that keeps the deployment from starting; None when it starts."""
        beyond = self.budget.first_beyond()
        if beyond is not None:
            return beyond.name
        windows = self.pool.bytes_for(0, self.setting.rank_requests)
        if self.pool.window.kind != "per_request" and self.kv_bytes < windows:
            return f"window pool of {self.setting.rank_requests} running requests"
        if self.kv_bytes < self.needed_kv_bytes:
            return f"KV of one request of {self.setting.max_length} tokens"
        if self.budget.room_left_bytes < 0:
            return max(self.budget.outside, key=lambda term: term.bytes).name
        if self.host.fits is False:
            return "Engram tables in host memory"
        return None

    @property
    def short_bytes(self) -> int:
        """By how much it fails [B]; 0 when it starts."""
        short = [0, self.needed_kv_bytes - self.kv_bytes, -self.budget.room_left_bytes]
        if self.host.fits is False and self.host.available_bytes is not None:
            short.append(self.host.bytes - self.host.available_bytes)
        return max(short)

    @property
    def starts(self) -> bool:
        """Whether the engine comes up and can serve one request of the longest context."""
        return self.failing is None

    @property
    def bytes_per_token(self) -> Fraction:
        """Slope of KV [B/token], pages rounded; see also ``pool.payload_bytes_per_token``."""
        return self.pool.bytes_per_token

    @property
    def fixed_bytes_per_request(self) -> int:
        """What a running request takes whatever its length [B]."""
        return self.pool.fixed_bytes_per_request

    @property
    def replica_tokens(self) -> int:
        """Tokens of the replica: attention-data-parallel ranks hold different ones [tokens]."""
        return self.tokens * self.setting.parallel.dp

    @property
    def printed_tokens(self) -> int:
        """What vLLM would print as "GPU KV cache size": concurrency x longest context [tokens].

        Engines whose windows have a pool of their own print `tokens`.
        """
        if self.kv_bytes <= 0:
            return 0
        if self.pool.window.kind != "per_request":
            return self.tokens
        length = self.setting.max_length
        return int(self.pool.concurrency(self.kv_bytes, length) * length)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader may misread."""
        return tuple(_notes(self))

    def kv_bytes_for(self, tokens: int, requests: int) -> int:
        """KV [B] of ``tokens`` tokens with ``requests`` running requests; see `KvPool`."""
        return self.pool.bytes_for(tokens, requests)

    def tokens_for(self, kv_bytes: int, requests: int) -> int:
        """Most tokens [tokens] in so many bytes; the inverse of `kv_bytes_for`."""
        return self.pool.tokens_for(kv_bytes, requests)

    def kv_parts(self, tokens: int, requests: int) -> tuple[Term, ...]:
        """Entries, index keys, windows and state apart; they add up to `kv_bytes_for`."""
        return self.pool.parts(tokens, requests)

    def sessions_of(self, length: int) -> int:
        """Sessions of ``length`` tokens that run at once on one rank."""
        return _sessions(self.pool, self.kv_bytes, length, self.setting.rank_requests)

    def require(self, *, tokens: int | None = None, sessions: int | None = None,
                length: int | None = None) -> CapacityReport:  # fmt: skip
        """This report, if so much fits on one rank.

        Args:
            tokens: Tokens in the pool [tokens].
            sessions: Sessions at once.
            length: Tokens of each session [tokens]; ``max_length`` when left out.

        Raises:
            InvalidInputError: a number that is no whole number >= 0.
            CapacityError: it does not start, or not so much fits; says by how much and what helps.
        """
        for name, value in (("tokens", tokens), ("sessions", sessions), ("length", length)):
            if value is not None and (type(value) is not int or value < 0):
                raise InvalidInputError(f"require: {name} = {value!r}: must be a whole number >= 0")
        length = self.setting.max_length if length is None else length
        if not self.starts:
            raise CapacityError(
                f"{_where(self)} does not start: {self.failing} fails by {size(self.short_bytes)}. "
                f"{_remedy(self)}"
            )
        if tokens is not None and tokens > self.tokens:
            need = self.kv_bytes_for(tokens, self.setting.rank_requests)
            raise CapacityError(
                f"{tokens} tokens need {size(need)} of KV on {_where(self)}, which has "
                f"{size(self.kv_bytes)}: {self.tokens} tokens. {_remedy(self)}"
            )
        fit = 0 if sessions is None else self.sessions_of(length)
        if sessions is not None and sessions > fit:
            raise CapacityError(
                f"{sessions} sessions of {length} tokens on {_where(self)}: {fit} fit in "
                f"{size(self.kv_bytes)} of KV, at most {self.setting.rank_requests} run. "
                f"{_remedy(self)}"
            )
        return self

    def to_frame(self) -> pd.DataFrame:
        """One row a term.

        Columns: term, kind, place, bytes, gib, estimate, formula, source.
        """
        from aisim_v41.memory.report import terms_frame

        return terms_frame(self.terms)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        from aisim_v41.memory.report import capacity_dict

        return capacity_dict(self)

    def explain(self) -> str:
        """The result as text that fits a screen."""
        from aisim_v41.memory.report import explain_capacity

        return explain_capacity(self)


def capacity(
    model: Model,
    hardware: Hardware,
    parallel: Parallel | None = None,
    policy: RuntimePolicy | None = None,
    *,
    max_length: int | None = None,
    requests: int | None = None,
    hosts: int = 1,
    host_memory_bytes: int | None = None,
) -> CapacityReport:
    """What one replica of a deployment can hold.

    A deployment that does not fit is an answer (``starts`` is False), not an error.

    Args:
        model: From `load_model`.
        hardware: From `load_hardware`.
        parallel: Ranks per dimension; one GPU when left out.
        policy: From `policy`; "paper" when left out. Residency of the Engram tables, KV layout,
            chunk, memory fraction and what is loaded are its fields.
        max_length: Longest context that the engine admits [tokens]; the model's when left out.
        requests: Running requests of the replica; the policy's ``max_requests`` when left out.
        hosts: Hosts that the replica spans.
        host_memory_bytes: Memory of all those hosts [B]; the hardware file's when left out.

    Raises:
        InvalidInputError, OutOfRangeError: an argument that describes nothing.
        UnsupportedPlanError: the mapping does not divide the model, or the engine refuses it.
    """
    chosen = preset("paper") if policy is None else policy
    limit = getattr(chosen, "max_requests", None) if requests is None else requests
    longest = getattr(model, "max_context", None) if max_length is None else max_length
    setting = Setting(
        model=model,
        hardware=hardware,
        parallel=Parallel() if parallel is None else parallel,
        policy=chosen,
        max_length=longest,  # type: ignore[arg-type]  # a wrong model or policy is refused there
        requests=limit,  # type: ignore[arg-type]
        hosts=hosts,
        host_memory_bytes=host_memory_bytes,
    )
    shared, pool = setting.budget(), setting.pool()
    kv_bytes = shared.kv_bytes
    tokens = pool.tokens_for(kv_bytes, setting.rank_requests)
    fits = kv_bytes >= pool.bytes_for(setting.max_length, setting.rank_requests)
    loaded = sum(t.bytes for t in shared.charged if t.kind in (Kind.WEIGHTS, Kind.ENGRAM))
    return CapacityReport(
        setting=setting,
        budget=shared,
        pool=pool,
        host=host_memory(
            model,
            hardware,
            setting.parallel,
            setting.policy,
            loaded_bytes=loaded,
            hosts=hosts,
            available_bytes=host_memory_bytes,
        ),
        disk=disk_terms(model, setting.policy),
        tokens=tokens,
        sessions=_sessions(pool, kv_bytes, setting.max_length, setting.rank_requests),
        frees_most=reliefs(setting, kept_tokens=tokens if fits else None),
    )


def _sessions(pool: KvPool, kv_bytes: int, length: int, requests: int) -> int:
    """Sessions at once; windows of a pool are set aside for all running requests."""
    slots = None if pool.window.kind == "per_request" else requests
    return min(requests, pool.sessions_for(kv_bytes, length, slots))


def _where(report: CapacityReport) -> str:
    setting = report.setting
    mapping = ", ".join(f"{name} {ranks}" for name, ranks in setting.parallel.named().items())
    gpus = setting.parallel.gpus
    return f"{setting.policy.name} on {gpus} x {setting.hardware.name} ({mapping})"


def _remedy(report: CapacityReport) -> str:
    if not report.frees_most:
        return "Nothing that this library knows frees more."
    best = report.frees_most[0]
    return f"Most is freed by: {best.change} ({size(best.freed_bytes)})."


def _notes(report: CapacityReport) -> list[str]:
    notes = list(layout_notes(report.setting.policy, report.setting.hardware))
    guessed = total(term for term in report.budget.terms if term.estimate)
    if guessed:
        notes.append(f"{size(guessed)} are allowances or assumed shapes, not counts")
    if report.host.terms or report.host.unified or report.host.loads is False:
        notes.append(f"host memory: {report.host.verdict}")
    window = report.pool.window
    if window.kind not in ("per_request", "rings"):
        rows = window.rows(report.tokens, report.setting.rank_requests)
        notes.append(
            f"window pool of {rows} rows ({window.kind}): the smaller of the two pools bounds the "
            "prefix hits"
        )
    setting = report.setting
    architecture = setting.hardware.architecture
    return [*notes, *engine_warnings(setting.policy, setting.parallel, architecture)]
