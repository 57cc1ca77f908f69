"""The shell: ``aisim-v41 layers | ledger | estimate | compare | coverage | capacity | sweep |
trace | draw | engram | encode | speculate | prefix | restore | tiers | transfer | fpm | claims |
validate``.

Every command answers in text that fits a terminal, and with ``--json`` as one JSON document on
standard output. Exit codes: 0 answered, 1 a check failed (claims, validate) or the answer could not
be written, 2 bad input.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from aisim_v41.cli import (
    capacity,
    claims,
    compare,
    draw,
    encode,
    engram,
    estimate,
    layers,
    ledger,
    prefix,
    restore,
    speculate,
    sweep,
    trace,
    transfer,
    validate,
)
from aisim_v41.cli.fpm import commands as fpm
from aisim_v41.errors import AisimError

app = typer.Typer(
    name="aisim-v41",
    help="How fast DeepSeek-V4.1-Flash runs on GPUs, and why. No GPU needed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"aisim-v41 {version('aisim-v41')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """How fast DeepSeek-V4.1-Flash runs on GPUs, and why. No GPU needed."""


app.command("layers")(layers.layers)
app.command("ledger")(ledger.ledger)
app.command("estimate")(estimate.estimate)
app.command("compare")(compare.compare)
app.command("coverage")(compare.coverage)
app.command("capacity")(capacity.capacity)
app.command("sweep")(sweep.sweep)
app.command("trace")(trace.trace)
app.command("draw")(draw.draw)
app.command("engram")(engram.engram)
app.command("encode")(encode.encode)
app.command("speculate")(speculate.speculate)
app.command("prefix")(prefix.prefix)
app.command("restore")(restore.restore)
app.command("tiers")(restore.tiers)
app.command("transfer")(transfer.transfer)
app.add_typer(fpm.app, name="fpm")
app.command("claims")(claims.claims)
app.command("validate")(validate.validate)


def run() -> None:
    """Entry point: typed errors, and output that cannot be written, become one line of stderr."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except AisimError as error:
        sys.stderr.write(f"aisim-v41: {error}\n")
        raise SystemExit(2) from None
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(141) from None
    except OSError as error:
        _drop_output()
        sys.stderr.write(f"aisim-v41: the answer could not be written: {error}\n")
        raise SystemExit(1) from None


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on it at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    run()
