"""A table of forwards keeps every field that a request has."""

from __future__ import annotations

from dataclasses import fields

from aisim_v41.forwards.columns import ADDED, COLUMNS, REQUESTS
from aisim_v41.plan.request import Request


def test_no_field_of_a_request_is_lost_in_a_table():
    """A new field of `Request` needs a line in `ADDED`, or published steps come back as others."""
    columns = [column.name for column in (*REQUESTS, *ADDED)]
    assert columns == [field.name for field in fields(Request) if field.name != "packed"]
    assert not set(ADDED) & set(COLUMNS)
