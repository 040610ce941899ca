"""An OpenAI-compatible chat endpoint on this machine's loopback that answers from a list. For tests of what asks a model."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any


@dataclass(slots=True)
class ChatServer:
    """A running server."""

    url: str  # for the setting, /v1 included
    asked: list[dict[str, Any]] = field(default_factory=list)  # path, key and body of each request, in order

    def prompts(self) -> list[str]:
        """Return the text of each request's last message."""
        return [request["body"]["messages"][-1]["content"] for request in self.asked]


@contextmanager
def chat_server(answers: Sequence[str], *, status: int = 200) -> Generator[ChatServer]:
    """Serve chat completions with these texts, one after the other and again from the first; `status` is that of each reply."""
    given = cycle(answers)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.asked.append({"path": self.path, "key": self.headers["Authorization"], "body": body})
                data = json.dumps({"choices": [{"message": {"content": next(given)}}]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = ChatServer(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
