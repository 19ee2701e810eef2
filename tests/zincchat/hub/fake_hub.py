"""A local HTTP server that imitates a hub: listing, file metadata, redirects to a content server, ranges, faults."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_granted"
LARGE = (".gguf", ".safetensors", ".bin", ".onnx")  # what git-lfs keeps


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Request:
    """One request as it came: ``range`` and ``token`` are the headers' values."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class FakeHub:
    """``repos``: files by path by repository. ``cuts``: after how many bytes of content the next answers break off."""

    repos: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    cuts: list[int] = field(default_factory=list)
    resets: bool = False  # a cut is a connection reset rather than an early end
    status: int | None = None  # answer everything so
    spoil: bool = False  # the content is not what the listing says
    requests: list[Request] = field(default_factory=list)
    endpoint: str = ""

    def content_requests(self) -> list[Request]:
        """Those that asked for large files' bytes."""
        return [request for request in self.requests if request.path.startswith("/content/")]

    def large(self) -> dict[str, bytes]:
        """Every large file by its sha256."""
        return {
            sha256(data): data for files in self.repos.values() for path, data in files.items() if path.endswith(LARGE)
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """Nothing: clients that go away in mid-answer are part of the tests."""


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve ``hub`` on a free port of this machine while the block runs."""
    server = _Server(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments: Any) -> None:
            return

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            authorization = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
            hub.requests.append(Request(self.command, path, self.headers.get("Range"), authorization))
            if hub.status is not None:
                self._send(hub.status)
            elif path.startswith("/api/models/"):
                self._list(path.removeprefix("/api/models/"))
            elif path.startswith("/content/"):
                self._content(path.removeprefix("/content/"))
            elif "/resolve/" in path:
                repo, _, rest = path[1:].partition("/resolve/")
                self._resolve(repo, rest.partition("/")[2], authorization)
            else:
                self._send(404)

        def _list(self, repo: str) -> None:
            files = hub.repos.get(repo)
            if files is None:
                self._send(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
                return
            siblings = []
            for path, data in files.items():
                entry: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": sha256(data)[:40]}
                if path.endswith(LARGE):
                    entry["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
                siblings.append(entry)
            body = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings, "private": False}
            self._send(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

        def _resolve(self, repo: str, path: str, token: str | None) -> None:
            files = hub.repos.get(repo)
            if files is None:
                self._send(401, {"X-Error-Code": "RepoNotFound"})
            elif repo in hub.gated and token != TOKEN:
                self._send(401 if token is None else 403, {"X-Error-Code": "GatedRepo"})
            elif path not in files:
                self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            elif path.endswith(LARGE):
                data = files[path]
                # another host name, as a content server has
                port = urlsplit(hub.endpoint).port
                headers = {
                    "Location": f"http://localhost:{port}/content/{sha256(data)}",
                    "X-Repo-Commit": COMMIT,
                    "X-Linked-Etag": f'"{sha256(data)}"',
                    "X-Linked-Size": str(len(data)),
                }
                self._send(302, headers)
            else:
                data = files[path]
                self._send(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{sha256(data)[:40]}"'}, data)

        def _content(self, digest: str) -> None:
            data = hub.large().get(digest)
            if data is None:
                self._send(404)
                return
            if hub.spoil:
                data = bytes(len(data))
            start, status, headers = 0, 200, {"ETag": f'"{digest}"'}
            if (wanted := self.headers.get("Range")) is not None:
                start, status = int(wanted.removeprefix("bytes=").partition("-")[0]), 206
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._send(status, headers, data[start:], hub.cuts.pop(0) if hub.cuts else None)

        def _send(
            self, status: int, headers: dict[str, str] | None = None, body: bytes = b"", cut: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if cut is None:
                self.wfile.write(body)
                return
            self.wfile.write(body[:cut])
            self.wfile.flush()
            self.close_connection = True
            if hub.resets:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    return Handler
