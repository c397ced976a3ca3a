"""The table of commands."""

import pytest

from ps_backend.server.commands.command import Response, command
from ps_backend.server.commands.table import BUILT_IN
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.recordings import recordings

OF_THE_SERVER = {"open", "close", "status"}


def test_there_is_a_command_for_every_message_and_a_message_for_every_command():
    bodies = {field.name for field in pb.Request.DESCRIPTOR.oneofs_by_name["body"].fields}
    assert bodies == BUILT_IN.keys() | OF_THE_SERVER | {"custom"}


def test_clients_number_what_must_not_be_done_twice_and_nothing_else():
    sent = {one.request.WhichOneof("body"): one.request.sequence for one in recordings()[0]}
    assert len(sent) > 15
    for name, number in sent.items():
        assert (number > 0) == (name in BUILT_IN and not BUILT_IN[name].repeatable), name


def test_two_registered_commands_have_two_names():
    @command()
    def twice(session, request, payload):
        return Response(pb.Reply())

    again = command()(twice.run)
    with pytest.raises(ValueError, match="two commands have the name 'twice'"):
        Service(memory=1 << 20, commands=(twice, again))
