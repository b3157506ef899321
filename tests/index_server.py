"""A package index on loopback that fails in every way that a client must survive; tiny wheels."""

import base64
import hashlib
import io
import json
import re
import socket
import sys
import tarfile
import threading
import time
import zipfile
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import quote, unquote

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"


class File(NamedTuple):
    """A file of a project, with what its page says of it."""

    filename: str
    data: bytes
    requires_python: str | None = None
    yanked: str | None = None
    upload_time: str | None = None


def make_wheel(
    name,
    version,
    requires=(),
    *,
    tag="py3-none-any",
    requires_python=None,
    padding=0,
    metadata=None,
    files=None,
    label="",
    build_number="",
):
    """(file name, content) of a wheel; equal input gives equal bytes.

    `padding` bytes of its content stand before its metadata. `label` is that of a variant.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {one}" for one in requires] + provided(requires)
    wheel = f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n"
    content = {
        f"{name}/padding.bin": hashlib.shake_128(stem.encode()).digest(padding),
        **(files or {}),
        f"{info}/METADATA": metadata or "\n".join([*lines, "", "A description."]),
        f"{info}/WHEEL": wheel,
    }
    if not padding:
        del content[f"{name}/padding.bin"]
    content[f"{info}/RECORD"] = record_of(content, info)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in content.items():
            archive.writestr(zipfile.ZipInfo(path), data)  # of a fixed time
    parts = [part for part in (stem, build_number, tag, label) if part]
    return f"{'-'.join(parts)}.whl", buffer.getvalue()


def record_of(files, info):
    """The RECORD of a distribution with these files; `info` is its .dist-info folder."""
    rows = [f"{info}/RECORD,,\n"]
    for path, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    return "".join(rows)


def provided(requires):
    """The Provides-Extra fields for requirements: pip ignores requirements of undeclared extras."""
    found = (re.findall(r"extra *[=!]= *['\"]([^'\"]+)", text) for text in requires)
    return [
        f"Provides-Extra: {extra}"
        for extra in dict.fromkeys(extra for extras in found for extra in extras)
    ]


# A build backend that stands in the sdist itself, so that building it asks no index for anything.
BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    stem = open("PKG-INFO").read().split("\\n")[1:3]
    name, version = (line.partition(": ")[2] for line in stem)
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(f"{folder}/{stem}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name.replace('-', '_')}.py", "built = True\\n")
        archive.write("PKG-INFO", f"{stem}.dist-info/METADATA")
        wheel = "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        archive.writestr(f"{stem}.dist-info/WHEEL", wheel)
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return f"{stem}-py3-none-any.whl"
"""
BUILD_SYSTEM = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def make_sdist(
    name,
    version,
    requires=(),
    *,
    dynamic=(),
    metadata_version="2.4",
    requires_python=None,
    kind=".tar.gz",
    info=True,
    backend=BACKEND,
    build_system=BUILD_SYSTEM,
):
    """(file name, content) of an sdist that can be built; `info` False leaves its PKG-INFO out."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = [f"Metadata-Version: {metadata_version}", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += (
        [f"Dynamic: {one}" for one in dynamic]
        + [f"Requires-Dist: {one}" for one in requires]
        + provided(requires)
    )
    files = {
        "pyproject.toml": build_system,
        "backend.py": backend,
        "src/deep/PKG-INFO": "none of it\n",
    }
    files |= {"PKG-INFO": "\n".join([*lines, "", "A description."])} if info else {}
    return f"{stem}{kind}", packed(stem, files, kind)


def packed(stem, files, kind=".tar.gz"):
    """The content of an sdist with some files."""
    buffer = io.BytesIO()
    if kind == ".zip":
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, text in files.items():
                archive.writestr(f"{stem}/{path}", text)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for path, text in files.items():
                member = tarfile.TarInfo(f"{stem}/{path}")
                member.size, member.mtime = len(text.encode()), 500_000_000
                tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


class IndexServer:
    """`with IndexServer() as server:` then `server.add(...)`; `server.url` is the index.

    `style`: json, html or plain (HTML that is served as text/html whatever is requested).
    `ranges`: whether range requests of files are answered.
    `metadata`: None, "hashed", "unhashed" or "missing" (announced but not there).
    `faults`: maps the start of a path to its next responses, one each, or to one response and
    "always". A response is a status ("500"), "cut" (half of the body), "drop" (no response), "slow"
    (never answers), "nonsense", "denied" (the 403 of a storage bucket), "tampered" (another body of
    the same length), or "" (a good response).
    `asked`: the requests, in order.
    """

    def __init__(self, style="json", *, ranges=True, metadata="hashed"):
        self.style, self.ranges, self.metadata = style, ranges, metadata
        self.delay = 0.0  # seconds before each answer
        self.etag = True
        self.sizes = True
        self.headers = {}
        self.user = None
        self.faults = {}
        self.projects = {}
        self.raw = {}
        self.asked = []
        self.sent = 0
        self.errors = []
        self.stopped = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        assert not self.errors, self.errors

    @property
    def base(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self):
        return f"{self.base}/simple"

    def url_with(self, credentials):
        return self.url.replace("://", f"://{credentials}@")

    def add(self, name, version, requires=(), *, make=make_wheel, **options):
        """Add a wheel; `yanked`, `upload_time` and `requires_python` go onto its page."""
        page = {key: options.pop(key) for key in ("yanked", "upload_time") if key in options}
        made = make(name, version, requires, **options)
        file = File(*made, options.get("requires_python"), **page)
        self.projects.setdefault(name, []).append(file)
        return file

    def add_sdist(self, name, version, requires=(), **options):
        """Add an sdist, as `add` adds a wheel."""
        return self.add(name, version, requires, make=make_sdist, **options)

    def add_file(self, name, filename, data=b""):
        self.projects.setdefault(name, []).append(File(filename, data))

    def paths(self):
        return [path for path, _ in self.asked]

    def fault(self, path):
        for start, answers in self.faults.items():
            if path.startswith(start) and answers:
                if answers[-1] == "always":
                    return answers[0]
                return answers.pop(0)
        return ""

    def answer(self, path):
        """(content type, body) of a good answer."""
        if self.delay:
            time.sleep(self.delay)
        if path in self.raw:
            return self.raw[path]
        if found := re.fullmatch(r"/simple/([^/]+)/", path):
            files = self.projects.get(found[1])
            return None if files is None else self._page(found[1], files)
        for file in (file for files in self.projects.values() for file in files):
            if path == f"/files/{file.filename}":
                return "application/octet-stream", file.data
            has_file = self.metadata in ("hashed", "unhashed")
            if path == f"/files/{file.filename}.metadata" and has_file:
                return "application/octet-stream", _metadata(file.data)
        return None

    def _page(self, name, files):
        if self.style == "json":
            rows = [self._json_row(file) for file in files]
            meta = {"api-version": "1.1"}
            return JSON_TYPE, json.dumps({"meta": meta, "name": name, "files": rows}).encode()
        kind = "text/html; charset=utf-8" if self.style == "plain" else HTML_TYPE
        return kind, (
            "<!DOCTYPE html><html><body>" + "\n".join(map(self._anchor, files)) + "</body></html>"
        ).encode()

    def _json_row(self, file):
        row = {
            "filename": file.filename,
            "url": f"../../files/{quote(file.filename)}",
            "hashes": {"sha256": hashlib.sha256(file.data).hexdigest()},
            "yanked": False if file.yanked is None else file.yanked or True,
        }
        row |= {"size": len(file.data)} if self.sizes else {}
        row |= {"requires-python": file.requires_python} if file.requires_python else {}
        row |= {"upload-time": file.upload_time} if file.upload_time else {}
        if self._has_metadata(file):
            row["core-metadata"] = self._hash(file) or True
        if f"/provenance/{file.filename}" in self.raw:
            row["provenance"] = f"../../provenance/{file.filename}"
        return row

    def _anchor(self, file):
        href = f"../../files/{quote(file.filename)}#sha256={hashlib.sha256(file.data).hexdigest()}"
        attributes = {"href": href}
        if file.requires_python:
            attributes["data-requires-python"] = file.requires_python
        if file.yanked is not None:
            attributes["data-yanked"] = file.yanked
        if file.upload_time:
            attributes["data-upload-time"] = file.upload_time
        if self._has_metadata(file):
            known = self._hash(file)
            attributes["data-core-metadata"] = f"sha256={known['sha256']}" if known else "true"
        text = " ".join(f'{key}="{escape(value)}"' for key, value in attributes.items())
        return f"<a {text}>{escape(file.filename)}</a>"

    def _has_metadata(self, file):
        is_wheel = file.filename.endswith(".whl") and zipfile.is_zipfile(io.BytesIO(file.data))
        return bool(self.metadata) and is_wheel

    def _hash(self, file):
        if self.metadata != "hashed":
            return None
        return {"sha256": hashlib.sha256(_metadata(file.data)).hexdigest()}


def fill_two_indexes(default, other):
    """Give an application to one index and its accelerator to both; return the flags for them."""
    default.add("app", "1.0", ["accel", "base<2"])
    for version in ("1.0", "1.5", "2.0"):
        default.add("base", version)
    default.add("accel", "9.0")
    other.add("accel", "1.0+cu126")
    other.add("accel", "0.9+cu126")
    return ["--index-url", default.url, "--extra-index-url", other.url]


def _metadata(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(
            next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: IndexServer

    def handle_error(self, request, client_address):
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # a client that hangs up is what these tests are about
            self.owner.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise a body waits 40 ms for the acknowledgment of its headers.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format, *args):
        """Nothing."""

    def do_HEAD(self):
        """uv asks so before it takes a file by ranges."""
        self.do_GET()

    def do_GET(self):
        owner = self.server.owner
        path = unquote(self.path.partition("?")[0])
        headers = {name.lower(): value for name, value in self.headers.items()}
        owner.asked.append((path, headers))
        if owner.user is not None:
            expected = "Basic " + base64.b64encode(":".join(owner.user).encode()).decode()
            if headers.get("authorization") != expected:
                return self._send(401, {"WWW-Authenticate": 'Basic realm="index"'}, b"no")
        fault = owner.fault(path)
        if fault.isdigit():
            return self._send(int(fault), owner.headers, b"<Error><Code>Whatever</Code></Error>")
        if fault == "denied":
            return self._send(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        if fault == "slow":
            owner.stopped.wait(20)
        if fault in ("drop", "slow"):
            return self._hang_up()
        answer = owner.answer(path)
        if answer is None:
            return self._send(404, {}, b"not here")
        return self._good(path, headers, fault, answer)

    def _good(self, path, headers, fault, answer):
        owner, (kind, body) = self.server.owner, answer
        if fault == "tampered":
            body = bytes(byte ^ 1 for byte in body)
        if fault == "nonsense":
            body = b'{"this": "is no page"}'
        if path.startswith("/files/"):
            return self._file(owner, headers, fault, kind, body)
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        extra = {"Content-Type": kind, **owner.headers} | ({"ETag": tag} if owner.etag else {})
        if owner.etag and headers.get("if-none-match") == tag:
            return self._send(304, extra, b"")
        return self._send(200, extra, body, cut=fault == "cut")

    def _file(self, owner, headers, fault, kind, body):
        extra = {"Content-Type": kind}
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))
        if span is None or not owner.ranges:
            return self._send(200, extra, body, cut=fault == "cut")
        if span[1]:
            start, end = int(span[1]), min(int(span[2]) if span[2] else len(body), len(body) - 1)
        else:
            start, end = max(0, len(body) - int(span[2])), len(body) - 1
        extra["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
        return self._send(206, extra, body[start : end + 1], cut=fault == "cut")

    def _send(self, status, headers, body, *, cut=False):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.server.owner.sent += len(body)
        if cut:
            self._hang_up()

    def _hang_up(self):
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
