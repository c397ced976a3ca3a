"""The dashboard's pages by HTTP, and the same page as a file."""

from __future__ import annotations

import hmac
import html
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from distvec.array.core.handle import SessionBase
from distvec.dashboard.collector import Collector, DriverSource, ServersAlone
from distvec.dashboard.events import Events
from distvec.durability.policy import Durability
from ps_backend.client.status import ServerStatus
from ps_backend.metrics import CONTENT_TYPE, text_of
from ps_backend.processes.http_server import HttpServer, Page, not_found

_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_FILE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
)


class Dashboard:
    """A web page that shows a session and its servers while they work.

    ``Session.dashboard`` makes it. Printing it shows the link; a notebook shows it, too.

    Parameters
    ----------
    collector : Collector
        Source of the state.
    port : int, default 0
        Port on the loopback address; 0 selects a free port.
    allowed_hosts : sequence of str, optional
        Further host names that may be in the browser's address.

    Attributes
    ----------
    url : str
        The link, with the token of this dashboard. Everyone with the link can see the page.
    token : str
        The token, which scrapers of ``/metrics`` send as ``Authorization: Bearer``.

    Examples
    --------
    >>> with dv.local(2, in_process=True) as session:
    ...     page = session.dashboard(port=0)
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self, collector: Collector, *, port: int = 0, allowed_hosts: Sequence[str] = ()
    ) -> None:
        """Show the state of ``collector`` to browsers that use one of the allowed host names."""
        self._collector = collector
        self._allowed = {*_LOCAL, *(host.lower() for host in allowed_hosts)}
        self.token = secrets.token_urlsafe(24)
        try:
            self._http: HttpServer | None = HttpServer(self._answer, "127.0.0.1", port)
        except BaseException:
            collector.close()
            raise
        self.port = self._http.port
        self.url = f"http://127.0.0.1:{self.port}/login?token={self.token}"
        self._cookie = f"distvec_{self.port}"

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the page with its present state to a file.

        Parameters
        ----------
        path : str or path-like
            The HTML file. It opens from disk, without a server, and holds no token.
        """
        self._collector.sample()
        Path(path).write_text(self._report(), encoding="utf-8")

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called.

        Returns
        -------
        bool
            True once the page has stopped.
        """
        return self._http is None

    def close(self) -> None:
        """Stop the page; the session goes on. Calling it twice is allowed."""
        http, self._http = self._http, None
        if http is not None:
            http.close()
        self._collector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._http is None:
            return "<Dashboard, closed>"
        return (
            f"Dashboard at {self.url}\n"
            f"from another machine: ssh -L {self.port}:127.0.0.1:{self.port} THIS_HOST"
        )

    def _repr_html_(self) -> str:
        if self._http is None:
            return "Dashboard, closed"
        link, port = html.escape(self.url), self.port
        return (
            f'Dashboard: <a href="{link}" target="_blank" rel="noopener">{link}</a><br>'
            f"from another machine: <code>ssh -L {port}:127.0.0.1:{port} THIS_HOST</code>"
        )

    # --- requests -----------------------------------------------------------------------------

    def _answer(self, target: str, headers: Mapping[str, str]) -> Page:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        if not self._allows(headers.get("host", "")):
            return Page(
                b"421 Misdirected Request: this name is not allowed; pass allowed_hosts=\n",
                status=HTTPStatus.MISDIRECTED_REQUEST,
            )
        if parts.path == "/healthz":
            return Page(b"ok\n")
        if parts.path == "/login":
            return self._login(query.get("token", [""])[0])
        if not self._knows(headers):
            return Page(
                b"401 Unauthorized: open the link that the program printed\n",
                status=HTTPStatus.UNAUTHORIZED,
            )
        match parts.path:
            case "/":
                return self._page()
            case "/state.json":
                state = self._collector.state(_number(query.get("since", ["0"])[0]))
                return Page(_encode(state), "application/json")
            case "/metrics":
                return Page(text_of(self._collector.source.samples()).encode(), CONTENT_TYPE)
            case "/report.html":
                name = {"Content-Disposition": 'attachment; filename="report.html"'}
                body = self._report().encode()
                return Page(body, "text/html; charset=utf-8", headers=name)
        return not_found("/, /state.json, /metrics, /report.html and /healthz")

    def _allows(self, host: str) -> bool:
        """Whether a page of a stranger did not lead the browser here by a name of its own."""
        name = host.lower()
        return name in self._allowed or name.removesuffix(f":{self.port}") in self._allowed

    def _login(self, token: str) -> Page:
        if not _is_equal(token, self.token):
            return Page(b"401 Unauthorized: the token is wrong\n", status=HTTPStatus.UNAUTHORIZED)
        cookie = f"{self._cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = {"Location": "./", "Set-Cookie": cookie}
        return Page(b"", status=HTTPStatus.SEE_OTHER, headers=headers)

    def _knows(self, headers: Mapping[str, str]) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookies = headers.get("cookie", "").split(";")
        given = [text.strip().removeprefix(f"{self._cookie}=") for text in cookies]
        return sum(_is_equal(one, self.token) for one in (bearer, *given)) > 0

    def _page(self) -> Page:
        nonce = secrets.token_urlsafe(16)
        body = _template().replace("{{nonce}}", nonce).replace("{{policy}}", "")
        headers = {"Content-Security-Policy": _POLICY.format(nonce)}
        body = body.replace("{{state}}", "null")
        return Page(body.encode(), "text/html; charset=utf-8", headers=headers)

    def _report(self) -> str:
        policy = f'<meta http-equiv="Content-Security-Policy" content="{_FILE_POLICY}">'
        body = _template().replace(' nonce="{{nonce}}"', "").replace("{{policy}}", policy)
        # Within a script element only "</" and "<!--" mean something to a browser.
        state = _encode(self._collector.state()).decode().replace("<", "\\u003c")
        return body.replace("{{state}}", state)


def open_for_session(
    session: SessionBase,
    durability: Durability,
    *,
    port: int,
    allowed_hosts: Sequence[str] = (),
) -> Dashboard:
    """The dashboard of a session, as ``Session.dashboard`` opens it."""
    events = Events()
    source = DriverSource(session, durability, events)
    collector = Collector(source, session.client.observe, events)
    return Dashboard(collector, port=port, allowed_hosts=allowed_hosts)


def open_for_servers(ask: Callable[[], Sequence[ServerStatus]], *, port: int) -> Dashboard:
    """The dashboard of servers without a session; ``ask`` returns their status."""
    return Dashboard(Collector(ServersAlone(), ask, Events()), port=port)


def _template() -> str:
    return files("distvec.dashboard").joinpath("page.html").read_text(encoding="utf-8")


def _encode(state: Any) -> bytes:
    return json.dumps(state, separators=(",", ":"), allow_nan=False).encode()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def metrics(session: SessionBase) -> dict[str, dict[str, float]]:
    """Return the metrics of the servers of a session.

    Parameters
    ----------
    session : Session
        An open session.

    Returns
    -------
    dict
        By address of each server its values, by name and labels as in Prometheus' text format.

    Raises
    ------
    ServerLost
        If a server does not answer.

    Notes
    -----
    One request per server, which ``session.counters`` leaves out. Servers that were started with
    ``distvec serve --http-port`` give the same values to Prometheus.

    Examples
    --------
    >>> found = dv.metrics(ps)
    >>> [values["distvec_sessions"] for values in found.values()]
    [1.0, 1.0]
    """
    return {
        server.address: {one.key: one.value for one in server.samples}
        for server in session.client.observe()
    }
