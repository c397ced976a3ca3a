"""How requests reach a server: one small interface, two versions of it."""

from ps_backend.transport.base import Answer, Pending, Transport, Unavailable
from ps_backend.transport.in_process import InProcess
from ps_backend.transport.over_grpc import OverGrpc

__all__ = ["Answer", "InProcess", "OverGrpc", "Pending", "Transport", "Unavailable"]
