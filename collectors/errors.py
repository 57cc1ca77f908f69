"""What goes wrong with a collection, in words that say where and what would be right."""

from __future__ import annotations


class CollectorError(Exception):
    """Root of all errors of the collectors; the shell prints the message and nothing else."""


class InputError(CollectorError, ValueError):
    """An argument, a plan, a case or a file is not what it must be."""


class ConflictError(CollectorError):
    """Two things that must agree do not: a run and its plan, rows of one key, two identities."""


class UnavailableError(CollectorError):
    """A kernel, an engine or a device that a case needs is not here."""


class WriteError(CollectorError):
    """A file cannot be written: disk full, folder read-only or gone."""
