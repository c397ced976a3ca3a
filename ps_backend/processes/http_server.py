"""Health and metrics by HTTP, for orchestrators and Prometheus; the base of the dashboard's pages.

It answers GET and HEAD, cannot change anything, and bounds threads, seconds and bytes of strangers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ps_backend.metrics import CONTENT_TYPE, text_of
from ps_backend.server.service import Service

_SECONDS = 10.0
"""A connection that takes longer is closed."""
_MOST_CONNECTIONS = 32
_MOST_LINE, _MOST_HEADERS = 4096, 64

_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Connection": "close",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[str, Mapping[str, str]], Page]
"""The page at a path with its query, for a request with such headers (names in lower case)."""


class HttpServer:
    """Serves pages from the start until ``close``, by threads of its own."""

    def __init__(self, answer: Answer, host: str, port: int) -> None:
        """Listen; port 0 lets the system choose. Raises ``OSError``."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET

        class Listener(_Listener):
            address_family = family

        self._listener = Listener((host, port), _handler_of(answer))
        self.port: int = self._listener.server_address[1]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True,
            name="distvec-http",
        )  # fmt: skip
        self._thread.start()

    def close(self) -> None:
        """Take no more requests. Idempotent."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        """Bind without the base class's look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The time for a whole request: a socket's own time-out begins anew with each byte.
        watch = threading.Timer(_SECONDS, _cut, (request,))
        watch.daemon = True
        watch.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            watch.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error of ours."""


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _handler_of(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = sys_version = "distvec"
        timeout = _SECONDS

        def do_GET(self) -> None:
            if len(self.requestline) > _MOST_LINE or len(self.headers) > _MOST_HEADERS:
                self._send(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._send(answer(self.path, headers))

        do_HEAD = do_GET

        def send_error(self, code: int, message: Any = None, explain: Any = None) -> None:
            # The base class's page repeats the client's text.
            not_known = code == HTTPStatus.NOT_IMPLEMENTED
            status = HTTPStatus.METHOD_NOT_ALLOWED if not_known else HTTPStatus(code)
            allow = {"Allow": "GET, HEAD"} if not_known else {}
            self._send(_refusal(status, allow))

        def _send(self, page: Page) -> None:
            self.close_connection = True
            self.send_response_only(page.status)
            own = {"Content-Type": page.content_type, "Content-Length": str(len(page.body))}
            for name, value in (_ALWAYS | own | dict(page.headers)).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

        def log_message(self, *_: Any) -> None:
            """Requests are not logged."""

    return Handler


def _refusal(status: HTTPStatus, headers: Mapping[str, str] | None = None) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status=status, headers=headers or {})


def not_found(paths: str) -> Page:
    """The page for another path."""
    return Page(f"404 Not Found: there are {paths}\n".encode(), status=HTTPStatus.NOT_FOUND)


def serve_health(service: Service, host: str, port: int) -> HttpServer:
    """Serve ``/healthz``, ``/readyz`` and ``/metrics`` of a parameter server.

    They tell sizes and counts, and need no token. ``/healthz`` says that the process lives, and
    asks nothing of its work; ``/readyz`` that it takes requests.
    """

    def answer(path: str, _: Mapping[str, str]) -> Page:
        match path.partition("?")[0]:
            case "/healthz":
                return Page(b"ok\n")
            case "/readyz" if service.ready:
                return Page(b"ready\n")
            case "/readyz":
                return Page(b"the server ends\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
            case "/metrics":
                return Page(text_of(service.samples()).encode(), CONTENT_TYPE)
        return not_found("/healthz, /readyz and /metrics")

    return HttpServer(answer, host, port)
