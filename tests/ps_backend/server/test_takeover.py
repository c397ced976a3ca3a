"""A session changes hands: what counts is of one driver at a time, and what it published."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client, StoredArray
from ps_backend.client.server_link import RetryPolicy
from ps_backend.errors import (
    AuthenticationError,
    PSError,
    ServerLost,
    SessionFenced,
    SessionUnknown,
)
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.state.barriers import MOST_WAITING
from ps_backend.wire.protocol import titled_secret
from tests.ps_backend.helpers import REPEATED, TOKEN, Faulty, axpy, in_process, put, served
from tests.waiting import join_all, wait_for

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
SECRET = titled_secret("run7", TOKEN)
AT_ONCE = RetryPolicy(0.0)


class Driver:
    """A client of the session, and what NumPy says that it has."""

    def __init__(self, inner, *, attach):
        self.transports = [Faulty(one) for one in inner]
        self.client = Client(self.transports, titled=SECRET, attach=attach, retry=AT_ONCE)
        self.arrays = {}

    def take(self):
        for name, one in self.client.take_published().items():
            self.arrays[name] = one, self.client.read(one.buffer, one.type)

    def write(self, name, value):
        values = np.full(SPACE.length, float(value))
        self.arrays[name] = StoredArray(put(self.client, SPACE, values), FLOATS), values

    def double(self, name):
        if name not in self.arrays:
            return self.write(name, 1)
        old, values = self.arrays[name]
        number = self.client.new_id()
        self.client.run(axpy(SPACE, 1.0, old.buffer, old.buffer, number))
        self.arrays[name] = StoredArray(number, FLOATS), values + values

    def publish(self, lost=()):
        """Raises ``ServerLost`` where it is lost on the way to some servers."""
        for server in lost:
            self.transports[server].plan = lambda _: "lose request"
        try:
            self.client.publish({name: one for name, (one, _) in self.arrays.items()})
        finally:
            for transport in self.transports:
                transport.plan = lambda _: "ok"


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["write", "double", "publish", "publish to some", "attach"]),
        st.sampled_from("uvw"),
    ),
    max_size=24,
)


@given(st.integers(1, 3), STEPS)
def test_drivers_that_come_and_do_not_go(servers, steps):
    inner = in_process(servers)
    drivers, counts = [Driver(inner, attach=False)], {}
    for number, (who, what, name) in enumerate(steps):
        driver = drivers[-1 - who % len(drivers)]

        def do(driver=driver, what=what, name=name, number=number):
            if what == "write":
                driver.write(name, number)
            elif what == "double":
                driver.double(name)
            elif what == "publish" or servers == 1:
                driver.publish()
            else:
                driver.publish(lost=[number % servers])

        if what == "attach":
            drivers.append(Driver(inner, attach=True))
            drivers[-1].take()
            found = {key: values for key, (_, values) in drivers[-1].arrays.items()}
            assert found.keys() == counts.keys()
            for key, values in counts.items():
                assert found[key].tobytes() == values.tobytes()
            ids = {one.buffer for one, _ in drivers[-1].arrays.values()}
            assert {one.buffers for one in drivers[-1].client.status()} == {len(ids)}
        elif driver is not drivers[-1]:
            with pytest.raises((SessionFenced, ServerLost), match=r"taken over|was lost"):
                do()
        elif what == "publish to some" and servers > 1:
            with pytest.raises(ServerLost):
                do()
        else:
            do()
            if what.startswith("publish"):
                counts = {key: values for key, (_, values) in driver.arrays.items()}
    for driver in drivers[:-1]:
        driver.client.close()
    last = drivers[-1]
    for one, values in last.arrays.values():
        assert last.client.read(one.buffer, FLOATS).tobytes() == values.tobytes()
    last.client.status()  # or it would not close on a server that was silent
    last.client.close()
    assert [one.service.memory.used for one in inner] == [0] * servers


def test_drivers_that_come_at_once_are_one_in_the_end():
    inner, found = in_process(3), []
    with Client(inner, titled=SECRET) as first:
        x = put(first, SPACE, np.ones(SPACE.length))
        first.publish({"x": StoredArray(x, FLOATS)})

        def attach():
            found.append(Client(inner, titled=SECRET, attach=True, retry=REPEATED))

        threads = [threading.Thread(target=attach) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        epochs = [one.sessions.get(first.session).epoch for one in (t.service for t in inner)]
        assert len(set(epochs)) == 1
        able = []
        for client in found:
            try:
                put(client, SPACE, np.ones(SPACE.length))
                able.append(client)
            except SessionFenced:
                pass
        assert len(able) == 1
        assert able[0].take_published().keys() == {"x"}


def test_what_is_under_way_when_another_driver_comes_is_not_done():
    inner = in_process(2)
    old = Client(inner, titled=SECRET)
    mailbox, errors = old.mailbox("t"), []
    mailbox.open()

    def wait():
        try:
            mailbox.question(0, 60.0)
        except PSError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    rooms = [one.service._host.room for one in inner]
    wait_for(lambda: any(room._places._value < MOST_WAITING for room in rooms))
    with Client(inner, titled=SECRET, attach=True):
        join_all(waiting)
        assert [type(error) for error in errors] == [SessionFenced]


def test_who_joined_the_old_driver_is_fenced_with_it():
    with served(2) as servers:
        addresses = [server.address for server in servers]
        options = {"token": TOKEN}
        with Client.connect(addresses, title="run7", **options) as old:
            worker = Client.connect(addresses, session=old.secret, **options)
            with Client.connect(addresses, title="run7", attach=True, **options) as new:
                for fenced in (old, worker):
                    with pytest.raises(SessionFenced, match=r"distvec\.attach"):
                        put(fenced, SPACE, np.ones(SPACE.length))
                with pytest.raises(
                    SessionFenced, match="driver 2 has taken over this session from driver 1"
                ):
                    Client.connect(addresses, session=old.secret, **options)
                with Client.connect(addresses, session=new.secret, **options) as other:
                    ids = {client.new_id() >> 36 for client in (old, worker, new, other)}
                    assert len(ids) == 4
                worker.close()
                old.close()
                assert new.read(put(new, SPACE, np.ones(SPACE.length)), FLOATS).sum() == 3000


def test_what_is_refused():
    with served(2) as servers:
        addresses = [server.address for server in servers]

        def connect(where=addresses, title="run7", attach=False):
            return Client.connect(where, token=TOKEN, title=title, attach=attach)

        with connect():
            with pytest.raises(PSError, match=r"exists already; take it over with distvec\.attach"):
                connect()
            with pytest.raises(SessionUnknown):
                connect(title="run8", attach=True)
            with pytest.raises(ValueError, match="same addresses in the same order"):
                connect(addresses[::-1], attach=True)
            with pytest.raises(ValueError, match="same addresses in the same order"):
                connect(addresses[:1], attach=True)
            with pytest.raises(AuthenticationError):
                Client.connect(addresses, token="a guess", title="run7", attach=True)
        with pytest.raises(SessionUnknown):  # it was closed
            connect(attach=True)
