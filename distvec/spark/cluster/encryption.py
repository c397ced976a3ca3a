"""Whether the servers of an application serve with TLS, and who signs their certificates."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING

from ps_backend.arguments import is_loopback

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority

_LOG = logging.getLogger(__name__)


def authority_for(asked: bool | None, host: str) -> Authority | None:
    """Who signs for servers that others reach as they reach ``host``; None: they serve without TLS.

    ``asked`` None: with TLS where others than this machine reach them, if it can be had. Raises
    ``ValueError`` if it is asked for and cannot.
    """
    possible = importlib.util.find_spec("cryptography") is not None
    wanted = not is_loopback(host) if asked is None else asked
    if not wanted:
        return None
    if not possible and asked:
        raise ValueError(
            "tls=True needs the package cryptography, here and on the executors: "
            "pip install 'distvec[tls]'"
        )
    if not possible:
        _LOG.warning(
            "between tasks and parameter servers the token and all values travel as they are, as "
            "the package cryptography is missing: pip install 'distvec[tls]', or say tls=False"
        )
        return None
    from ps_backend.processes.certificates import Authority

    return Authority()
