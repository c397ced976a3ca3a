"""Numbers that client and server must agree on."""

from __future__ import annotations

PROTOCOL = 5
"""Version of the messages; a client and a server of different versions refuse to talk."""

CLIENT_BITS = 20
"""A session numbers so many clients, anew after each replacement of the server that does it."""

COUNTER_BITS = 36
"""The low bits of a buffer's id: what the client whose number the others are has counted."""
