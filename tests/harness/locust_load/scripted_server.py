"""A server on loopback that answers by script and remembers what it was asked.

    python scripted_server.py [--first-ms N] [--gap-ms N] [--fail-every N] [--text-only] ...

Prints its port, serves until its stdin closes. `GET /log` tells the requests so far.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
from typing import Any


class Script:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.requests: list[dict[str, Any]] = []
        self.sockets = 0
        self.most_at_once = 0
        self.at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sockets += 1
        try:
            while await self._serve_one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader, writer) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        _, path, _ = head.split(" ", 2)
        fields = dict(
            line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
        )
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        if path == "/v1/models":
            model = {"id": self.options.model, "max_model_len": self.options.max_model_len}
            return self._plain(writer, 200, {"data": [model]})
        if path == "/metrics":
            body = b"vllm:num_preemptions_total 7\nvllm:num_requests_running 1\n"
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write((head if self.options.metrics else head.replace(b"200", b"404")) + body)
            return True
        if path == "/log":
            log = {"requests": self.requests, "sockets": self.sockets, "most": self.most_at_once}
            return self._plain(writer, 200, log)
        request = json.loads(body)
        self.requests.append({"path": path, "key": fields.get("authorization"), **request})
        if self.options.text_only and not isinstance(request.get("prompt", ""), str):
            return self._plain(writer, 400, {"error": {"message": "prompt must be a string"}})
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._stream(writer, request)
        finally:
            self.at_once -= 1

    def _plain(self, writer, status: int, value: Any) -> bool:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} Any\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return True

    async def _stream(self, writer, request: dict[str, Any]) -> bool:
        options, number = self.options, len(self.requests)
        if options.fail_every and number % options.fail_every == 0:
            key = self.requests[-1]["key"]
            return self._plain(writer, 500, {"error": {"message": f"scripted for {key}"}})
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        await writer.drain()
        await asyncio.sleep(options.first_ms / 1e3)
        if options.silent_after and number > options.silent_after:
            await asyncio.sleep(3600)
        for token in range(request["max_tokens"]):
            if token:
                await asyncio.sleep(options.gap_ms / 1e3)
            last = token == request["max_tokens"] - 1
            self._event(writer, self._choice(request, "length" if last else None))
            await writer.drain()
        usage = {"prompt_tokens": 3, "completion_tokens": request["max_tokens"]}
        if isinstance(request.get("prompt"), list):
            usage["prompt_tokens"] = len(request["prompt"])
        self._event(writer, {"choices": [], "usage": usage})
        self._chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        return True

    def _choice(self, request: dict[str, Any], finish: str | None) -> dict[str, Any]:
        piece = {"delta": {"content": "a"}} if "messages" in request else {"text": "a"}
        return {"choices": [{"index": 0, "finish_reason": finish, **piece}]}

    def _event(self, writer, value: dict[str, Any]) -> None:
        self._chunk(writer, b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, writer, data: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first-ms", type=float, default=1.0)
    parser.add_argument("--gap-ms", type=float, default=1.0)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--silent-after", type=int, default=0)
    parser.add_argument("--text-only", action="store_true")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--max-model-len", type=int, default=4096)
    return parser.parse_args()


async def main() -> None:
    script = Script(read_options())
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    done, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await done.wait()
    os._exit(0)  # with connections open, and without their farewells


if __name__ == "__main__":
    asyncio.run(main())
