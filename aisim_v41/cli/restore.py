"""``aisim-v41 restore`` and ``tiers``: fetch a stored prefix or compute it; where to store it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aisim_v41.caching.restore import (
    HOWS,
    break_even_rate,
    break_even_tokens,
    restore_or_recompute,
)
from aisim_v41.caching.state import TAIL, Domain
from aisim_v41.caching.tiers import Tier, gpu_tier, kept, report_tiers, row_of
from aisim_v41.caching.ways import Way, way_to
from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    EngineOption,
    GpuOption,
    JsonOption,
    ModelOption,
    ReplayOption,
    SetOption,
    TpOption,
    one_policy,
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.reports.caching import restore_text, tiers_text
from aisim_v41.units import GB, GB_PER_S, MICROSECOND

WayOption = Annotated[
    str, typer.Option("--way", help="host, disk, network or peer: what the state travels over.")
]
RateOption = Annotated[
    float | None,
    typer.Option("--gb-per-s", help="Rate of that way, instead of the hardware file's."),
]
StartOption = Annotated[
    float, typer.Option("--start-us", help="Before the first byte of a transfer.")
]


def way_from(hardware: Hardware, name: str, gb_per_s: float | None, start_us: float) -> Way:
    """The way that options describe."""
    rate = None if gb_per_s is None else gb_per_s * GB_PER_S
    return way_to(hardware, name, bytes_per_s=rate, start_s=start_us * MICROSECOND)


def restore(
    prefixes: Annotated[
        list[str],
        typer.Option("--prefix", help="Length of the stored prefix [tokens]; repeatable."),
    ],
    new: Annotated[
        str, typer.Option("--new", help="Tokens of the prompt behind it [tokens].")
    ] = "256",
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    way: WayOption = "host",
    gb_per_s: RateOption = None,
    start_us: StartOption = 0.0,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "off",
    changes: SetOption = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol or op.")] = "auto",
    at_once: Annotated[
        bool, typer.Option("--at-once", help="The first layer waits for all state.")
    ] = False,
    break_even: Annotated[
        bool,
        typer.Option(
            "--break-even", help="Shortest prefix and slowest way at which fetching pays."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Fetch a stored prefix, with or without its window, or compute it again."""
    hardware = load_hardware(gpu)
    asked: dict[str, Any] = {
        "new_tokens": whole(new, "--new", "256"),
        "way": way_from(hardware, way, gb_per_s, start_us),
        "policy": one_policy(engine, decoder_replay, changes),
        "parallel": Parallel(tp=tp),
        "method": method,
        "layerwise": not at_once,
    }
    loaded = step_model(model)
    lengths = [whole(text, "--prefix", "64k") for text in prefixes]
    reports = [restore_or_recompute(loaded, hardware, length, **asked) for length in lengths]
    limits: dict[str, int | None] = {}
    rates: list[dict[str, float | None]] = []
    if break_even:
        limits = {how: break_even_tokens(loaded, hardware, how, **asked) for how in HOWS[1:]}
        start_s = asked["way"].start_s
        del asked["way"], asked["layerwise"]
        rates = [
            {
                how: break_even_rate(loaded, hardware, length, how, start_s=start_s, **asked)
                for how in HOWS[1:]
            }
            for length in lengths
        ]
    if json:
        document: dict[str, object] = {"prefixes": [report.to_dict() for report in reports]}
        if break_even:
            document |= {"break_even_tokens": limits, "break_even_bytes_per_s": rates}
        print_json(document)
        return
    print_text(restore_text(reports))
    for how, limit in limits.items():
        pays = "at no length" if limit is None else f"from {limit:,} tokens"
        print_text(f"{how} is faster than recompute {pays}")
    for length, known in zip(lengths, rates, strict=bool(rates)):
        shown = ", ".join(
            f"{how} from {rate / GB_PER_S:.3g} GB/s"
            for how, rate in known.items()
            if rate is not None
        )
        print_text(f"{length:,} tokens: {shown or 'at no rate'}")


def tiers(
    prefix: Annotated[
        str, typer.Option("--prefix", help="Length of a prefix that is read back [tokens].")
    ] = "64k",
    turn: Annotated[
        str, typer.Option("--turn", help="Tokens that one turn adds [tokens].")
    ] = "2000",
    turns_per_s: Annotated[
        float, typer.Option("--turns-per-s", help="Turns that end in a second.")
    ] = 1.0,
    window_gb: Annotated[
        float | None,
        typer.Option("--window-gb", help="Size of the window pool; by default a tenth of a host."),
    ] = None,
    store_gb: Annotated[
        float | None, typer.Option("--store-gb", help="Size of the store of entries.")
    ] = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    way: WayOption = "host",
    gb_per_s: RateOption = None,
    start_us: StartOption = 0.0,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Where state is kept between turns: how much fits, and how long it lasts."""
    hardware = load_hardware(gpu)
    store = way_from(hardware, way, gb_per_s, start_us)
    if window_gb is None:
        pool, entries = report_tiers(hardware, store)
    else:
        host = way_to(hardware, "host")
        pool = Tier(name="host window pool", domains=TAIL, bytes=window_gb * GB, way=host)
        entries = Tier(name="store of entries", domains=(Domain.ENTRIES,), way=store)
    if store_gb is not None:
        entries = Tier(
            name=entries.name, domains=entries.domains, bytes=store_gb * GB, way=entries.way
        )
    loaded, policy = step_model(model), one_policy(engine, "off", changes)
    gpu_memory = gpu_tier(loaded, hardware, Parallel(tp=tp), policy)
    found = kept(
        loaded,
        policy,
        (pool, entries) if gpu_memory is None else (gpu_memory, pool, entries),
        prefix_tokens=whole(prefix, "--prefix", "64k"),
        turn_tokens=whole(turn, "--turn", "2000"),
        turns_per_s=turns_per_s,
    )
    if json:
        print_json({"tiers": [row_of(one) for one in found]})
    else:
        print_text(tiers_text(found))
