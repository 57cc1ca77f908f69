"""The shell: ``aisim-v41-collect op|fpm VERB ...``, ``folder``, ``import``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from collectors.errors import CollectorError

GROUPS = {
    "op": ("collectors.op.cli", "time operators of the model, one by one"),
    "fpm": ("collectors.fpm.cli", "time whole forwards of a live engine"),
    "import": ("collectors.imports.cli", "turn tables and traces of others into ours"),
}
"""Commands: the module that adds their arguments, and what they do."""
BAD_INPUT = 2
NOT_GOOD = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code.

    0: done; 1: a check found something; 2: bad input or a refusal; 130, 143: stopped by a signal.
    """
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        chosen = _parser(given).parse_args(given)
        return int(chosen.run(chosen))
    except CollectorError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_GOOD


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Every command; only the one that is given loads what it needs."""
    parser = argparse.ArgumentParser(prog="aisim-v41-collect", description=__doc__.split("\n")[0])
    groups = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, about) in GROUPS.items():
        group = groups.add_parser(name, help=about, description=about)
        if name in given[:1]:
            import_module(module).add_to(group)
    folder = groups.add_parser("folder", help="print where these programs lie, to be copied")
    folder.set_defaults(run=_folder)
    return parser


def _folder(_: argparse.Namespace) -> int:
    print(Path(__file__).resolve().parent)
    return 0
