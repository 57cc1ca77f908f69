"""Options that several commands share, and what they mean."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

import typer

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.precision import ROLES
from aisim_v41.model.sharding import ShardingRules, StoredAs
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Kind, Request
from aisim_v41.units import KIB, MIB

ModelOption = Annotated[
    str, typer.Option("--model", help="Packaged name, or a path to a config.json.")
]
GpuOption = Annotated[str, typer.Option("--gpu", help="Packaged name, or a path to a YAML file.")]
TpOption = Annotated[int, typer.Option("--tp", help="Tensor-parallel GPUs.")]
EpOption = Annotated[int, typer.Option("--ep", help="Groups of ranks with different experts.")]
DpOption = Annotated[
    int, typer.Option("--dp", help="Attention-data-parallel ranks, each with its own requests.")
]
CpOption = Annotated[
    int, typer.Option("--cp", help="Context-parallel ranks, over which rows are dealt.")
]
EngineOption = Annotated[
    str,
    typer.Option("--engine", help="Policy preset: paper, sglang, vllm, atom, trtllm; or custom."),
]
ReplayOption = Annotated[
    str, typer.Option("--decoder-replay", help="on, off, or both side by side.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "--format",
        metavar="FIELD=VALUE",
        help="Change a policy field, or the number format of a role (main_kv=fp8_e4m3+32); "
        "repeatable.",
    ),
]
SetFieldOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="As for other commands; repeatable."),
]
"""`SetOption` where ``--format`` is the format of a file."""
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
PrefillOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prefill",
        metavar="[COUNTx]NEW[@PREFIX][:IMAGES]",
        help="Prompt tokens to compute, after PREFIX computed ones, the first IMAGES of them those "
        "of images; repeatable.",
    ),
]
DecodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--decode",
        metavar="[COUNTx]CONTEXT",
        help="Decode of one token a request after CONTEXT computed ones; repeatable.",
    ),
]
VerifyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--verify",
        metavar="[COUNTx]ROWS@CONTEXT",
        help="Verification of ROWS speculated rows a request; repeatable.",
    ),
]
DEFAULT_MODEL = "deepseek-v4.1-flash"
_NUMBERS_OR_NONE = {"expert_imbalance"}
"""Policy fields that are None by default and otherwise a number."""
_OWN_OPTIONS = {
    "decoder_replay": "--decoder-replay instead (a command without it does not depend on replay)",
    "name": "--engine to choose a preset; its name is not a field to change",
    "revision": "--engine to choose a preset; its revision is not a field to change",
}


def step_model(name: str) -> Model:
    """The model of a command that counts or prices steps."""
    return require_step_model(load_model(name))


def whole(text: str, what: str, example: str) -> int:
    """A whole number with an optional unit: 8192, 8k (8,192), 1m (1,048,576).

    Raises:
        InvalidInputError: it is not one.
    """
    factor = {"k": KIB, "m": MIB}.get(text[-1:].lower(), 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise InvalidInputError(f"{what} {text!r}: must be a whole number, for example {example}")
    return int(digits) * factor


def _parse(option: str, text: str, kind: Kind) -> Request:
    example = {"prefill": "8192 or 4x8k@32k", "decode": "32x32768", "verify": "8x6@4096"}[kind]
    plain, colon, image_text = text.lower().partition(":")
    images = whole(image_text, option, "1200:994") if colon else 0
    head, _, prefix_text = plain.partition("@")
    count_text, times, size_text = head.rpartition("x")
    count = whole(count_text, option, example) if times else 1
    size = whole(size_text, option, example)
    prefix = whole(prefix_text, option, example) if "@" in text else 0
    if kind == "decode":
        if "@" in text or colon:
            raise InvalidInputError(f"{option} {text!r}: write [COUNTx]CONTEXT, such as {example}")
        return Request(new_tokens=1, prefix_tokens=size, kind="decode", count=count)
    return Request(
        new_tokens=size, prefix_tokens=prefix, kind=kind, count=count, image_tokens=images
    )


def requests_from(
    prefill: list[str] | None, decode: list[str] | None, verify: list[str] | None
) -> list[Request]:
    """Requests of a step as written on the command line.

    Raises:
        InvalidInputError: none at all, or one that cannot be read.
    """
    requests = [_parse("--prefill", text, "prefill") for text in prefill or []]
    requests += [_parse("--decode", text, "decode") for text in decode or []]
    requests += [_parse("--verify", text, "verify") for text in verify or []]
    if not requests:
        raise InvalidInputError("no requests: give --prefill, --decode or --verify")
    return requests


def policies(
    engine: str, replay: str, changes: list[str] | None
) -> list[tuple[Literal["on", "off"], RuntimePolicy]]:
    """The policy, once or with decoder replay on and off.

    Raises:
        InvalidInputError: an unknown field, or a value that it does not take.
    """
    if replay not in ("on", "off", "both"):
        raise InvalidInputError(f"--decoder-replay {replay!r}: must be on, off or both")
    base = policy(engine, **overrides(changes))
    settings: list[Literal["on", "off"]] = ["on", "off"]
    return [
        (setting, base.with_overrides(decoder_replay=setting == "on"))
        for setting in settings
        if replay in (setting, "both")
    ]


def one_policy(engine: str, replay: str, changes: list[str] | None) -> RuntimePolicy:
    """The policy of a command that takes one.

    Raises:
        InvalidInputError: replay on and off side by side, or an unknown field or value.
    """
    settings = policies(engine, replay, changes)
    if len(settings) != 1:
        raise InvalidInputError("--decoder-replay both: must be on or off here")
    return settings[0][1]


def overrides(changes: list[str] | None) -> dict[str, Any]:
    """FIELD=VALUE texts as values of the policy field's type.

    Raises:
        InvalidInputError: not of that form, not of that type, or a field with its own option.
    """
    found: dict[str, Any] = {}
    defaults = RuntimePolicy(name="", revision="")
    known = {f.name: getattr(defaults, f.name) for f in fields(RuntimePolicy)}
    known |= {f.name: getattr(defaults.sharding, f.name) for f in fields(ShardingRules)}
    formats: list[str] = []
    for change in changes or []:
        name, equals, text = change.partition("=")
        if not equals:
            raise InvalidInputError(f"--set {change!r}: must be FIELD=VALUE")
        if name in ROLES and (name not in known or text not in list(StoredAs)):
            formats.append(change)
            if name in known:  # wo_a: a format of its own is not widened at load
                found[name] = StoredAs.CHECKPOINT.value
            continue
        if name in _OWN_OPTIONS:
            raise InvalidInputError(f"--set {change}: use {_OWN_OPTIONS[name]}")
        if name not in {*known, "base"}:
            raise InvalidInputError(
                f"policy has no field {name!r}, and no role; {nearest(name, [*known, *ROLES])}"
            )
        found[name] = _typed(name, text, known.get(name))
    if formats:
        found["formats"] = ",".join([*filter(None, [found.get("formats", "")]), *formats])
    return found


def _typed(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "on", "off"):
            raise InvalidInputError(f"--set {name}={text}: must be true or false")
        return text.lower() in ("true", "on")
    if isinstance(default, int):
        return whole(text, f"--set {name}", "8192")
    if isinstance(default, float) or name in _NUMBERS_OR_NONE:
        try:
            return float(text)
        except ValueError:
            raise InvalidInputError(f"--set {name}={text}: must be a number") from None
    return text


def plans(
    model: str,
    parallel: Parallel,
    engine: str,
    replay: str,
    changes: list[str] | None,
    requests: list[Request],
) -> list[tuple[str, Plan]]:
    """One plan a replay setting."""
    loaded = step_model(model)
    return [
        (setting, Plan(loaded, requests, parallel, chosen))
        for setting, chosen in policies(engine, replay, changes)
    ]
