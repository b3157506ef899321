"""A stand-in for the API server of Kubernetes, for the real kubectl: pods, and commands in them.

`kubectl exec` speaks WebSocket (v5.channel.k8s.io) with it. A command runs as a process of this
machine, with the name of the pod's node in NODE.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

_PROTOCOL = "v5.channel.k8s.io"
_STDOUT, _STDERR, _STATUS = 1, 2, 3  # channels of the protocol
_WEBSOCKET_ID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_BINARY, _CLOSE = 0x82, 0x88
# The kinds that kubectl must know: (path of the group, kind, its plural).
_KINDS = (
    ("api/v1", "Pod", "pods"),
    ("api/v1", "PodExecOptions", "pods/exec"),
    ("apis/apps/v1", "DaemonSet", "daemonsets"),
    ("apis/batch/v1", "Job", "jobs"),
)


class KubeApi:
    """A server on a free port of the loopback interface.

    Args:
        pods: (phase, node) of each pod of the namespace gpu.
    """

    def __init__(self, pods: Mapping[str, tuple[str, str]]) -> None:
        self.documents = _discovery()
        listed = [_pod(name, *place) for name, place in pods.items()]
        folder = "/api/v1/namespaces/gpu/pods"
        self.documents[folder] = {"kind": "PodList", "apiVersion": "v1", "items": listed}
        for pod in listed:
            self.documents[f"{folder}/{pod['metadata']['name']}"] = pod
        handler = type("Handler", (_Handler,), {"documents": self.documents})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> KubeApi:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _discovery() -> dict[str, Any]:
    """Return what kubectl asks first: the groups, and the kinds of each."""
    groups = []
    for name in ("apps", "batch"):
        version = {"groupVersion": f"{name}/v1", "version": "v1"}
        groups.append({"name": name, "versions": [version], "preferredVersion": version})
    documents: dict[str, Any] = {
        "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    for path, kind, plural in _KINDS:
        version = path.partition("/")[2]
        group = {"kind": "APIResourceList", "groupVersion": version, "resources": []}
        resource = {"name": plural, "kind": kind, "namespaced": True, "verbs": ["create", "get"]}
        documents.setdefault(f"/{path}", group)["resources"].append(resource)
    return documents


def _pod(name: str, phase: str, node: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "gpu", "labels": {"app": "gpuenv"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "image"}]},
        "status": {"phase": phase},
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    documents: ClassVar[Mapping[str, Any]]

    def log_message(self, format: str, *values: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        pod = self.documents.get(parts.path.removesuffix("/exec"))
        if parts.path.endswith("/exec") and pod is not None:
            self._execute(pod["spec"]["nodeName"], parse_qs(parts.query)["command"])
            return
        document = self.documents.get(parts.path)
        body = json.dumps(document or {"kind": "Status", "status": "Failure"}).encode()
        self.send_response(200 if document is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _execute(self, node: str, command: list[str]) -> None:
        self._accept()
        child = subprocess.Popen(
            command,
            env={**os.environ, "NODE": node},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        threading.Thread(target=self._end_with_client, args=(child,), daemon=True).start()
        out, err = child.communicate()
        for channel, data in ((_STDOUT, out), (_STDERR, err), (_STATUS, _status(child.returncode))):
            self._send(_BINARY, bytes([channel]) + data)
        self._send(_CLOSE, (1000).to_bytes(2, "big"))
        self.close_connection = True

    def _accept(self) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode()
        digest = hashlib.sha1(key + _WEBSOCKET_ID).digest()  # noqa: S324  RFC 6455
        answer = base64.b64encode(digest).decode()
        self.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", answer),
            ("Sec-WebSocket-Protocol", _PROTOCOL),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def _end_with_client(self, child: subprocess.Popen[bytes]) -> None:
        """End the process when kubectl ends; what kubectl sends is not read."""
        with suppress(OSError):  # the connection is closed
            while self.connection.recv(4096):
                pass
        child.kill()

    def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        length = bytes([size]) if size < 126 else b"\x7f" + size.to_bytes(8, "big")
        with suppress(OSError):  # kubectl has ended
            self.wfile.write(bytes([opcode]) + length + data)


def _status(code: int) -> bytes:
    """Return how a process ended, as kubectl reads it."""
    if code == 0:
        return b'{"metadata":{},"status":"Success"}'
    number = str(128 - code if code < 0 else code)
    document = {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with exit code {number}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": number}]},
    }
    return json.dumps(document).encode()
