"""The shell: ``aisim-v41 layers | ledger | estimate | compare | coverage | capacity | claims |
validate``.

Every command answers in text that fits a terminal, and with ``--json`` as one JSON document on
standard output. Exit codes: 0 answered, 1 a check failed (claims, validate), 2 bad input.
"""

from __future__ import annotations

import sys

import typer

from aisim_v41.cli import capacity, claims, compare, estimate, layers, ledger, validate
from aisim_v41.errors import AisimError

app = typer.Typer(
    name="aisim-v41",
    help="How fast DeepSeek-V4.1-Flash runs on GPUs, and why. No GPU needed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("layers")(layers.layers)
app.command("ledger")(ledger.ledger)
app.command("estimate")(estimate.estimate)
app.command("compare")(compare.compare)
app.command("coverage")(compare.coverage)
app.command("capacity")(capacity.capacity)
app.command("claims")(claims.claims)
app.command("validate")(validate.validate)


def run() -> None:
    """Entry point: typed errors become one line on standard error."""
    try:
        app()
    except AisimError as error:
        sys.stderr.write(f"aisim-v41: {error}\n")
        raise SystemExit(2) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None


if __name__ == "__main__":
    run()
