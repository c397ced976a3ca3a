"""Clients of both transports."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ps_backend.client import Client
from ps_backend.in_process import connect_in_process
from tests.ps_backend.helpers import TOKEN, served

Connect = Callable[[int], Client]


@pytest.fixture(params=["in process", "grpc"])
def connect(request) -> Iterator[Connect]:
    """Makes a client of so many fresh servers."""
    with ExitStack() as stack:

        def make(servers: int) -> Client:
            if request.param == "in process":
                return stack.enter_context(connect_in_process(servers, memory=1 << 30))
            running = stack.enter_context(served(servers))
            addresses = [server.address for server in running]
            return stack.enter_context(Client.connect(addresses, token=TOKEN))

        yield make
