"""Connections of `requests` that read the CA bundle once: it takes 30 ms and a megabyte for each of dozens."""

from __future__ import annotations

import os
import ssl
import threading
from typing import Any

from requests.adapters import HTTPAdapter


class Contexts:
    """One SSL context for each bundle."""

    def __init__(self) -> None:
        self._known: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def of(self, verify: object) -> ssl.SSLContext | None:
        """The context of what requests calls `verify`, a file, a folder or True; None if there is no such bundle."""
        from requests.adapters import DEFAULT_CA_BUNDLE_PATH
        from urllib3.util.ssl_ import create_urllib3_context

        path = DEFAULT_CA_BUNDLE_PATH if verify is True else verify
        if not isinstance(path, str) or not os.path.exists(path):
            return None  # requests says what is wrong with it
        with self._lock:
            if path not in self._known:
                context = create_urllib3_context()
                folder = os.path.isdir(path)
                context.load_verify_locations(cafile=None if folder else path, capath=path if folder else None)
                self._known[path] = context
            return self._known[path]


def adapter(connections: int) -> HTTPAdapter:
    """An HTTPAdapter for so many connections to a host. It verifies as HTTPAdapter does."""
    from requests.adapters import HTTPAdapter

    contexts = Contexts()

    class Adapter(HTTPAdapter):
        def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
            host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
            context = contexts.of(verify) if host["scheme"] == "https" else None
            if context is None:
                return host, pool
            kept = {key: value for key, value in pool.items() if key not in ("ca_certs", "ca_cert_dir")}
            return host, {**kept, "ssl_context": context}

        def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
            super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
            if conn.conn_kw.get("ssl_context") is not None:  # which has the bundle, and would read it again
                conn.ca_certs = conn.ca_cert_dir = None

    return Adapter(pool_connections=8, pool_maxsize=connections)
