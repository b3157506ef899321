"""What gpuenv sets up in `requests`: sessions with shared TLS contexts, and the text of its errors.

`requests` reads proxies, ~/.netrc and REQUESTS_CA_BUNDLE from the environment. Where the latter is
not set, the CA bundle that pip is configured with or SSL_CERT_FILE is used.
"""

from __future__ import annotations

import io
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPResponse
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import DEFAULT_CA_BUNDLE_PATH, HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.connection import allowed_gai_family
from urllib3.util.ssl_ import create_urllib3_context

if TYPE_CHECKING:  # these types exist in the stubs only
    from collections.abc import MutableMapping

    from _typeshed import WriteableBuffer
    from requests.adapters import _HostParams, _PoolKwargs
    from requests.sessions import _Settings
    from urllib3.connectionpool import ConnectionPool

    _Proxies = MutableMapping[str, str] | None

_READ_TIMEOUTS = (requests.exceptions.ReadTimeout, urllib3.exceptions.ReadTimeoutError)
_HOSTS, _CONNECTIONS_PER_HOST = 8, 32


def open_session(cert: str | None) -> requests.Session:
    """Return a session. `cert` is a CA bundle that is used unless REQUESTS_CA_BUNDLE is set."""
    session = _Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _SharedContextAdapter())
    session.headers["User-Agent"] = "gpuenv"
    # requests prefers REQUESTS_CA_BUNDLE to this setting.
    session.verify = cert or os.environ.get("SSL_CERT_FILE") or True
    return session


class _Session(requests.Session):
    """A session that reads the environment once for each host.

    requests reads it for each request: a third of the processor time of a request for metadata.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[tuple[str, str], _Settings] = {}

    def merge_environment_settings(
        self,
        url: str | bytes | None,
        proxies: _Proxies,
        stream: bool | None,
        verify: bool | str | None,
        cert: str | tuple[str, str] | None,
    ) -> _Settings:
        """Return proxies and the CA bundle. All requests here have the same other arguments."""
        parts = urlsplit(str(url))
        origin = parts.scheme, parts.netloc
        if origin not in self._settings:
            settings = super().merge_environment_settings(url, proxies, stream, verify, cert)
            self._settings[origin] = settings
        return self._settings[origin]

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where a response redirects to. A redirect from https must stay on https."""
        target = super().get_redirect_target(resp)
        if target and resp.url.startswith("https:"):
            scheme = urlsplit(urljoin(resp.url, target)).scheme
            if scheme != "https":
                raise InsecureRedirectError
        return target


class InsecureRedirectError(requests.exceptions.RequestException):
    """A redirect from https to another scheme."""


# ---- failures ------------------------------------------------------------------------------------


def describe_failure(error: Exception, timeout: tuple[float, float]) -> tuple[str, bool]:
    """Return (what to tell the user, whether another try may help).

    Time-outs are not retried: they have waited long enough.
    """
    connect_timeout, read_timeout = timeout
    kinds = requests.exceptions
    causes = list(_causes(error))
    detail = _system_message(causes)
    if any(isinstance(cause, TooSlowError) for cause in causes):
        problem, retryable = f"sent no complete response within {_limit.seconds:.0f} s", False
    elif any(isinstance(cause, _READ_TIMEOUTS) for cause in causes):
        problem, retryable = f"sent nothing for {read_timeout:g} s", False
    elif isinstance(error, kinds.ConnectTimeout):
        problem, retryable = f"accepted no connection within {connect_timeout:g} s", False
    elif isinstance(error, kinds.SSLError):
        verdict = _certificate_message(causes)
        problem, retryable = f"cannot be trusted: {verdict}", False
        if not verdict:
            problem, retryable = f"failed in the TLS handshake ({detail or 'no reason'})", True
    elif isinstance(error, kinds.ChunkedEncodingError):
        problem, retryable = "closed the connection before the response was complete", True
    elif isinstance(error, kinds.ContentDecodingError):
        problem, retryable = "sent a response that cannot be decoded", True
    elif isinstance(error, kinds.ProxyError):
        detail = detail or "it refused"
        problem, retryable = f"cannot be reached through the proxy ({detail})", True
    elif isinstance(error, kinds.ConnectionError):
        detail = detail or "the connection was closed without a response"
        problem, retryable = f"cannot be reached ({detail})", True
    elif isinstance(error, InsecureRedirectError):
        problem, retryable = "redirects from https to another scheme, which is not followed", False
    elif isinstance(error, kinds.RequestException):
        problem, retryable = f"cannot be requested: {type(error).__name__}", False
    else:  # an OSError of the disk, or a missing CA bundle
        problem, retryable = f"cannot be requested: {' '.join(str(error).split())}", False
    return problem, retryable


def _system_message(causes: list[BaseException]) -> str:
    """Return the operating system's message of the innermost error, "" without one."""
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return ""


def _certificate_message(causes: list[BaseException]) -> str:
    """Return why a certificate was refused, "" if that is not the reason."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_message:
            return cause.verify_message
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors that it wraps, outermost first.

    requests keeps them in `args`, urllib3 in `reason` and `__cause__`.
    """
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        cause = queue.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        queue.extend(cause.args)
        if isinstance(cause, urllib3.exceptions.MaxRetryError):
            queue.append(cause.reason)
        queue.extend((cause.__cause__, cause.__context__))


# ---- time ----------------------------------------------------------------------------------------


class TooSlowError(TimeoutError):
    """The time limit of a request is over."""


class _TimeLimit(threading.local):
    """The time by which a thread must have its whole response, after all redirects."""

    seconds = end = float("inf")
    bytes_per_second: float | None = None  # data that arrives this fast extends the time


_limit = _TimeLimit()


def set_time_limit(seconds: float, bytes_per_second: float | None = None) -> None:
    """Limit the time of the next request of this thread.

    The time-out of `requests` applies to each read: a server that sends a few bytes at a time never
    exceeds it.

    Args:
        seconds: the time.
        bytes_per_second: a request that is at least this fast may take longer. None: no request
            may.
    """
    _limit.seconds, _limit.end = seconds, time.monotonic() + seconds
    _limit.bytes_per_second = bytes_per_second


class _TimedReader(io.RawIOBase):
    """The data of a connection. Reads raise TooSlowError when the time of the request is over."""

    def __init__(self, source: io.RawIOBase, connection: socket.socket) -> None:
        super().__init__()
        self._source, self._connection = source, connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        patience = self._connection.gettimeout()
        seconds_left = _limit.end - time.monotonic()
        if seconds_left <= 0:
            raise TooSlowError
        is_short = patience is None or seconds_left < patience
        if is_short:
            self._connection.settimeout(seconds_left)
        try:
            length = self._source.readinto(buffer)
        except TimeoutError:
            if _limit.end - time.monotonic() <= 0:
                raise TooSlowError from None
            raise
        finally:
            if is_short:
                self._connection.settimeout(patience)
        if length and _limit.bytes_per_second:
            _limit.end += length / _limit.bytes_per_second
        return length

    def close(self) -> None:
        """Close the source of the data, too."""
        self._source.close()
        super().close()


class _TimedResponse(HTTPResponse):
    """A response: status, headers and body must be read within the time of the request."""

    def __init__(self, sock: socket.socket, *args: object, **options: object) -> None:
        super().__init__(sock, *args, **options)  # type: ignore[arg-type]
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock))


# ---- connections ---------------------------------------------------------------------------------


_SAME_FAILURE = 1.0  # seconds in which a failed lookup is not repeated


class _Host:
    """A host. Its name is looked up once in a process.

    If 32 threads ask at once, answers of some name servers are lost. The system's resolver asks
    again after 5 s.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._addresses: tuple[str, ...] = ()
        self._failure: tuple[OSError, float] | None = None  # and when it happened

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the host.

        Threads that wait for the first lookup share its failure; a later request tries again.

        Raises:
            OSError: the name cannot be looked up.
        """
        with self._lock:
            if self._failure and time.monotonic() < self._failure[1] + _SAME_FAILURE:
                raise self._failure[0]
            if not self._addresses:
                try:
                    self._addresses = _look_up(self._name)
                except OSError as error:
                    self._failure = error, time.monotonic()
                    raise
            return self._addresses


def _look_up(name: str) -> tuple[str, ...]:
    family = allowed_gai_family()
    rows = socket.getaddrinfo(name.strip("[]"), None, family, socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(row[4][0]) for row in rows))


_hosts: dict[str, _Host] = {}  # by name


class _Connection(HTTPConnection):
    """A connection that tries the addresses of its host, which is looked up once."""

    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        name = self._dns_host
        try:
            addresses = _hosts.setdefault(name, _Host(name)).addresses()
        except socket.gaierror as error:
            raise urllib3.exceptions.NameResolutionError(name, self, error) from error
        except UnicodeError:
            return super()._new_conn()  # which says what is wrong with the name
        try:
            for address in addresses[:-1]:
                self._dns_host = address
                with suppress(urllib3.exceptions.HTTPError):
                    return super()._new_conn()
            self._dns_host = addresses[-1]
            return super()._new_conn()
        finally:
            self._dns_host = name


class _TLSConnection(_Connection, HTTPSConnection):
    pass


_CONNECTIONS: dict[type[object], type[HTTPConnection]] = {
    HTTPConnection: _Connection,
    HTTPSConnection: _TLSConnection,
}


# ---- TLS -----------------------------------------------------------------------------------------


class _SharedContextAdapter(HTTPAdapter):
    """An HTTPAdapter that reads a CA bundle once.

    requests reads it for each host, which takes 30 ms and a megabyte each time. Certificates are
    verified as HTTPAdapter does.
    """

    def __init__(self) -> None:
        super().__init__(pool_connections=_HOSTS, pool_maxsize=_CONNECTIONS_PER_HOST)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._contexts_lock = threading.Lock()

    def build_connection_pool_key_attributes(
        self,
        request: requests.PreparedRequest,
        verify: bool | str,
        cert: str | tuple[str, str] | None = None,
    ) -> tuple[_HostParams, _PoolKwargs]:
        """Add the shared SSL context in place of the bundle's path."""
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        context = None
        if host["scheme"] == "https":
            context = self._context(verify)
        if context is not None:
            pool.pop("ca_certs", None)
            pool.pop("ca_cert_dir", None)
            pool["ssl_context"] = context
        return host, pool

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: str | tuple[str, str] | None = None,
    ) -> ConnectionPool:
        """Return a pool whose connections obey `set_time_limit`."""
        pool = super().get_connection_with_tls_context(request, verify, proxies, cert)
        if isinstance(pool, urllib3.HTTPConnectionPool):
            pool.ConnectionCls = _CONNECTIONS.get(pool.ConnectionCls, pool.ConnectionCls)
        return pool

    def cert_verify(
        self,
        conn: urllib3.HTTPConnectionPool,
        url: str,
        verify: bool | str,
        cert: str | tuple[str, str] | None,
    ) -> None:
        """Keep urllib3 from loading the bundle into the shared context again."""
        super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
        if not isinstance(conn, urllib3.HTTPSConnectionPool):
            return
        if conn.conn_kw.get("ssl_context") is not None:
            conn.ca_certs = conn.ca_cert_dir = None

    def _context(self, verify: bool | str) -> ssl.SSLContext | None:
        """Return the context of a bundle (a file or a folder; True is the default one).

        None if the bundle does not exist: requests then raises the error.
        """
        path = DEFAULT_CA_BUNDLE_PATH if verify is True else verify
        if not isinstance(path, str) or not os.path.exists(path):
            return None
        with self._contexts_lock:
            if path not in self._contexts:
                context = create_urllib3_context()
                if os.path.isdir(path):
                    context.load_verify_locations(capath=path)
                else:
                    context.load_verify_locations(cafile=path)
                self._contexts[path] = context
            return self._contexts[path]
