"""Ids of buffers."""

from __future__ import annotations

from ps_backend.in_process import connect_in_process


def test_no_buffer_has_the_id_that_names_none():
    with connect_in_process(2) as client:
        assert client.new_id() > 0
