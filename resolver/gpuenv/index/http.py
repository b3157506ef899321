"""HTTP for the index: time-outs, retries, credentials that stay out of messages, and one kind of error.

Proxies, ~/.netrc and the CA bundle are what `requests` makes of the environment; the bundle that pip is configured
with, or SSL_CERT_FILE, serves where REQUESTS_CA_BUNDLE is not set.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import BinaryIO, TypeVar

import requests

from ..errors import PackageIndexError
from ..model import Value

TRIES = 3
BACK_OFF = 0.2  # seconds before the second try; doubled before each later one
LONGEST_WAIT = 30.0  # seconds, whatever Retry-After asks for
CONNECT, READ = 10.0, 30.0  # seconds
WHOLE = 120.0  # seconds for a whole page; a wheel may take as long as it keeps coming
LARGEST = 256 << 20  # bytes of a page, far above any index's largest

_T = TypeVar("_T")
_CHUNK = 1 << 16
_AGAIN = frozenset({429, 500, 502, 503, 504})
_HINT = "check the URL and the network, or use --offline with what is in the snapshot and the cache"

OK, PARTIAL, NOT_MODIFIED, UNAUTHORIZED, FORBIDDEN = 200, 206, 304, 401, 403
GONE = (404, 410)


class Reply(Value):
    """An answer: `headers` have lower-case names, `url` is where redirects led to."""

    status: int
    headers: Mapping[str, str]
    url: str
    body: bytes = b""


def shown(url: str) -> str:
    """The URL as messages may show it: credentials masked, no query and no fragment (they can carry tokens)."""
    from urllib.parse import urlsplit, urlunsplit

    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an unreadable URL)"
    before, at, host = parts.netloc.rpartition("@")
    text = urlunsplit((parts.scheme, f"****@{host}" if before and at else host, parts.path, "", ""))
    return "".join(char if char.isprintable() else "?" for char in text)


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """(the URL without its credentials, (user, password) or None). Percent-escapes in them are decoded."""
    from urllib.parse import unquote, urlsplit, urlunsplit

    parts = urlsplit(url)
    info, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = info.partition(":")
    return urlunsplit(parts._replace(netloc=host)), (unquote(user), unquote(password))


class Transport:
    """One pool of connections, for all threads. `cert` is a CA bundle, used where the environment names none."""

    def __init__(self, *, connect: float = CONNECT, read: float = READ, cert: str | None = None) -> None:
        self.timeout = (connect, read)
        self._cert = cert
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._credentials: list[tuple[str, tuple[str, str]]] = []

    def close(self) -> None:
        """Give the connections back. A later request opens new ones."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Transport:
        """The transport itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def login(self, url: str) -> str:
        """Take the credentials out of a URL and send them with requests to its host. Returns the bare URL."""
        bare, credentials = split_credentials(url)
        if credentials is not None and (bare, credentials) not in self._credentials:
            self._credentials.append((bare, credentials))
        return bare

    def has_login(self, url: str) -> bool:
        """Whether requests to this URL carry credentials that `login` was given."""
        return self._auth(url) is not None

    def get(self, url: str, what: str, headers: Mapping[str, str] | None = None) -> Reply:
        """The whole answer to a GET, whatever its status, but for those that are tried again.

        `what` starts the message of the PackageIndexError that is raised when no whole answer comes.
        """

        def once() -> Reply:
            with self._open(url, headers or {}) as response:
                deadline = time.monotonic() + WHOLE
                body = BytesIO()  # its value is no second copy of megabytes
                for chunk in response.iter_content(_CHUNK):
                    if body.write(chunk) and body.tell() > LARGEST:
                        raise _HopelessError(f"answers with more than {LARGEST >> 20} MiB")
                    if time.monotonic() > deadline:
                        raise _HopelessError(f"no whole answer within {WHOLE:.0f} s")
                return _reply(response, body.getvalue())

        return self._tries(url, what, once)

    def download(self, url: str, what: str, sink: BinaryIO) -> tuple[Reply, str]:
        """Write the body of an answer to `sink` (from its start). Returns the reply, bodiless, and the sha256."""
        import hashlib

        def once() -> tuple[Reply, str]:
            sink.seek(0)
            sink.truncate()
            digest = hashlib.sha256()
            with self._open(url, {"Accept-Encoding": "identity"}) as response:
                for chunk in response.iter_content(1 << 20):
                    digest.update(chunk)
                    sink.write(chunk)
                return _reply(response), digest.hexdigest()

        return self._tries(url, what, once)

    def get_range(self, url: str, what: str, span: str) -> Reply:
        """GET with `Range: bytes=<span>`. Status 206 has the body; with any other the body was not read."""

        def once() -> Reply:
            with self._open(url, {"Accept-Encoding": "identity", "Range": f"bytes={span}"}) as response:
                if response.status_code != PARTIAL:
                    return _reply(response)
                return _reply(response, response.content)

        return self._tries(url, what, once)

    def _open(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        response = self._opened().get(
            url, headers=dict(headers), auth=self._auth(url), timeout=self.timeout, stream=True
        )
        if response.status_code in _AGAIN:
            response.close()
            raise _AskAgainError(f"answers {response.status_code}", _retry_after(response.headers.get("Retry-After")))
        return response

    def _opened(self) -> requests.Session:
        with self._lock:
            if self._session is None:
                import requests

                from .tls import adapter

                session = requests.Session()
                for scheme in ("http://", "https://"):
                    session.mount(scheme, adapter(16))
                session.headers["User-Agent"] = "gpuenv"
                # The bundle that the environment names for requests still goes before this one.
                session.verify = self._cert or os.environ.get("SSL_CERT_FILE") or True
                self._session = session
            return self._session

    def _auth(self, url: str) -> tuple[str, str] | None:
        """Credentials for the same scheme, host and port; of several, those of the longest URL above."""
        from urllib.parse import urlsplit

        origin = urlsplit(url)[:2]
        alike = [(known, auth) for known, auth in self._credentials if urlsplit(known)[:2] == origin]
        if not alike:
            return None
        return max(alike, key=lambda pair: (url.startswith(pair[0]), len(pair[0])))[1]

    def _tries(self, url: str, what: str, once: Callable[[], _T]) -> _T:
        import requests

        for tried in range(1, TRIES + 1):
            wait = BACK_OFF * 2 ** (tried - 1) * (1 + int.from_bytes(os.urandom(1)) / 512)  # up to a half more
            try:
                return once()
            except _HopelessError as error:
                why = str(error)
                break
            except _AskAgainError as error:
                why = str(error)
                wait = wait if error.wait is None else min(error.wait, LONGEST_WAIT)
            except (requests.RequestException, OSError) as error:
                why, again = _failure(error, self.timeout)
                if not again:
                    break
            if tried < TRIES:
                time.sleep(wait)
        raise PackageIndexError(f"{what}: {shown(url)} {why}", hint=_HINT, url=shown(url))


class _AskAgainError(Exception):
    """An answer that asks to be asked again, after `wait` seconds where it says so."""

    def __init__(self, why: str, wait: float | None) -> None:
        super().__init__(why)
        self.wait = wait


class _HopelessError(Exception):
    """A failure that another try would not change."""


def _reply(response: requests.Response, body: bytes = b"") -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status_code, headers=headers, url=split_credentials(response.url)[0], body=body)


def _retry_after(text: str | None) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3: a number or a date); None without one."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _failure(error: Exception, timeout: tuple[float, float]) -> tuple[str, bool]:
    """What a failed request says to a person, and whether another try may help. Time-outs were patient enough."""
    import requests
    import urllib3

    causes = list(_causes(error))
    reason = next((cause.strerror for cause in reversed(causes) if isinstance(cause, OSError) and cause.strerror), "")
    kinds = requests.exceptions
    if any(isinstance(cause, (kinds.ReadTimeout, urllib3.exceptions.ReadTimeoutError)) for cause in causes):
        why, again = f"sent nothing for {timeout[1]:g} s", False
    elif isinstance(error, kinds.ConnectTimeout):
        why, again = f"gave no connection within {timeout[0]:g} s", False
    elif isinstance(error, kinds.SSLError):
        verdict = next((text for cause in causes if (text := getattr(cause, "verify_message", ""))), reason)
        why, again = f"cannot be trusted: {verdict or 'the TLS handshake failed'}", False
    elif isinstance(error, kinds.ChunkedEncodingError):
        why, again = "cut the connection in the middle of its answer", True
    elif isinstance(error, kinds.ContentDecodingError):
        why, again = "sent a damaged answer", True
    elif isinstance(error, kinds.ProxyError):
        why, again = f"cannot be reached through the proxy ({reason or 'it refused'})", True
    elif isinstance(error, kinds.ConnectionError):
        why, again = f"cannot be reached ({reason or 'the connection was closed without an answer'})", True
    elif isinstance(error, kinds.RequestException):
        why, again = f"cannot be asked: {type(error).__name__}", False
    else:  # an OSError of the disk, or a CA bundle that is not there
        why, again = f"cannot be asked: {' '.join(str(error).split())}", False
    return why, again


def _causes(error: object) -> Iterator[BaseException]:
    """An exception and those that it wraps: requests keeps them in `args`, urllib3 in `reason` and `__cause__`."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
