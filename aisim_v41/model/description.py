"""The model, read once: plain frozen records that every later layer builds on.

Nothing here knows of tokens, time, GPUs or files. `aisim_v41.model.load` makes a `Model`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aisim_v41.model.formats import Format
from aisim_v41.model.layers import Layer, LayerKind
from aisim_v41.model.precision import AS_STORED, RoleFormats


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Shapes of one attention layer (report §4.2.1; config fields of the same names)."""

    heads: int
    head_dim: int
    """Width of one head and of the one latent that is key and value for all heads."""
    rope_dim: int
    q_rank: int
    o_rank: int
    """Width of the output latent of one group."""
    o_groups: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Lightning indexer and its candidate pool (report §2.3.2)."""

    heads: int
    head_dim: int
    top_k: int
    candidate_blocks: int
    """Blocks kept by the candidate source; 0 when the model has no pool."""
    candidate_block: int
    """Consecutive entries in one block; 1 when the model has no pool."""

    @property
    def candidate_positions(self) -> int:
        """Most entries in the pool of one query; 0 without a pool."""
        return self.candidate_blocks * self.candidate_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts of every backbone layer (or of every draft block)."""

    routed: int
    top_k: int
    shared: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperConnections:
    """Manifold-constrained hyper-connections: parallel residual streams (report §2.4.1)."""

    streams: int
    sinkhorn_iterations: int

    @property
    def coefficients(self) -> int:
        """Outputs of the coefficient projection: pre, post and a mixing matrix."""
        return self.streams * (self.streams + 2)

    @property
    def coefficient_kinds(self) -> int:
        """Pre, post and mixing coefficients: each kind has one learned scale."""
        return 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Engram:
    """N-gram memory modules (report §2.4.2)."""

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    """Table rows per module."""
    max_ngram: int
    heads: int
    head_dim: int
    compressed_vocab: int
    """Classes of token ids that are hashed."""
    primes_from: int | None = None
    """Where the search for the primes of the hash starts; None if the config does not say."""
    pad_token: int | None = None
    """Token whose class stands for missing history; None if the config does not say."""

    @property
    def rows_per_token(self) -> int:
        """Table rows looked up per token and module: one per n-gram order and hash head."""
        return (self.max_ngram - 1) * self.heads

    @property
    def width(self) -> int:
        """Values looked up per token and module: inputs of the Engram projection."""
        return self.rows_per_token * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """DSpark drafter (report §2.4.3)."""

    blocks: int
    positions: int
    taps: tuple[int, ...]
    """Layers whose attention inputs feed the drafter."""
    markov_rank: int
    experts: Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """Vision encoder and projector (report §2.1.1)."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    patch: int
    downsample: int
    max_image_tokens: int
    min_pixels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFormats:
    """How the checkpoint stores each kind of matrix."""

    linear: Format
    experts: Format
    table: Format
    plain: Format
    """Unquantised matrices and norms (BF16)."""
    wide: Format
    """Coefficients, sinks and biases (FP32)."""
    roles: RoleFormats = AS_STORED
    """Formats that a policy puts in place of those (`aisim_v41.model.reformatted`)."""

    @property
    def dense(self) -> Format:
        """Projections, as they are loaded."""
        return self.linear if self.roles.dense is None else self.roles.dense.matrix()

    @property
    def output_down(self) -> Format:
        """Grouped output projection, as it is loaded."""
        return self.dense if self.roles.wo_a is None else self.roles.wo_a.matrix()

    @property
    def routed(self) -> Format:
        """Routed experts, as they are loaded."""
        given = self.roles.expert_weights
        return self.experts if given is None else given.matrix()

    @property
    def engram_rows(self) -> Format:
        """Engram tables, as they are loaded."""
        return self.table if self.roles.engram_rows is None else self.roles.engram_rows.matrix()

    @property
    def head(self) -> Format:
        """Output head, as it is loaded."""
        return self.plain if self.roles.head is None else self.roles.head.matrix()

    @property
    def of_draft(self) -> StoredFormats:
        """Formats of the draft blocks: those of the checkpoint, or the one given for them."""
        given = self.roles.draft
        if given is None:
            return replace(self, roles=AS_STORED)
        return replace(self, linear=given.matrix(), experts=given.matrix(), roles=AS_STORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """DeepSeek-V4.1-Flash, or any config of the same architecture.

    Raises nothing; whoever builds one has checked it (`aisim_v41.model.load.load_model`).
    """

    name: str
    revision: str
    """Checkpoint revision for a packaged model, else ``sha256:`` of the config file."""
    hidden: int
    vocab: int
    max_context: int
    layers: tuple[Layer, ...]
    attention: Attention
    indexer: Indexer | None
    experts: Experts
    hyper: HyperConnections
    engram: Engram | None
    draft: Draft | None
    vision: Vision | None
    formats: StoredFormats
    unknown_keys: tuple[str, ...] = ()
    """Config keys that were kept but change nothing that is modelled."""
    config_sha256: str = field(default="", init=False, compare=False, repr=False)
    """Digest of the config's content, however it is written (`aisim_v41.canonical`). Set by
    `aisim_v41.model.load` alone; a model that is changed in Python (``replace``) has none."""

    @property
    def kv_owners(self) -> tuple[Layer, ...]:
        """Layers that write global entries and index keys, in order."""
        return tuple(layer for layer in self.layers if layer.owns_kv)

    @property
    def boundary(self) -> int | None:
        """Last KV owner: every later layer can run on a tail of rows (report §3.2.2)."""
        return self.kv_owners[-1].index if self.kv_owners else None

    def count(self, kind: LayerKind) -> int:
        """Number of backbone layers of one kind."""
        return sum(layer.kind == kind for layer in self.layers)
