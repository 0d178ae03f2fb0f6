"""An HTTP server on the loopback address that stands for a model's vendor, and a script for it to play."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias

from runenv.cli.demo.agent.scripted import Seen, played

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from runenv.cli.demo.agent.scripted import Line, Script

__all__ = ("Answer", "ModelServer", "Post", "plays_anthropic", "plays_openai")

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Post:
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Json


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    body: object
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class _Handler(BaseHTTPRequestHandler):
    server_of: ModelServer
    answer_to: Callable[[Post], Answer]

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        post = Post(self.path, {name.lower(): text for name, text in self.headers.items()}, json.loads(data))
        self.server_of.posts.append(post)
        said = self.answer_to(post)
        body = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
        self.send_response(said.status)
        for name, text in (*said.headers, ("Content-Length", str(len(body)))):
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class ModelServer:
    """Answers each POST with what `answer` makes of it, and keeps them all."""

    def __init__(self, answer: Callable[[Post], Answer]) -> None:
        self.posts: list[Post] = []

        class Handler(_Handler):
            server_of = self
            answer_to = staticmethod(answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def plays_anthropic(script: Script) -> Callable[[Post], Answer]:
    """A server of Anthropic's that says what a script has."""
    model = played(script)

    async def send(post: Post) -> Answer:
        return Answer(await model.send(post.body))

    return lambda post: asyncio.run(send(post))


def plays_openai(script: Script) -> Callable[[Post], Answer]:
    """A server of OpenAI's that says what a script has."""
    turn = 0

    def answer(post: Post) -> Answer:
        nonlocal turn
        line = script.send(_seen(post.body["input"])) if turn else next(script)
        turn += 1
        return Answer(_response(line, turn, post.body))

    return answer


def _seen(items: list[Json]) -> list[Seen]:
    """The outputs since the model last said something, one for each of its calls."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item for item in items if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in outputs] == calls
    last = max(at for at, item in enumerate(items) if item.get("type") == "function_call")
    seen = list[Seen]()
    for item in items[last + 1 :]:
        texts = [content["text"] for content in item["output"] if content["type"] == "input_text"]
        seen.append(Seen("\n".join(texts), len(item["output"]) - len(texts)))
    return seen


def _response(line: Line, turn: int, request: Json) -> Json:
    output: list[Json] = [
        {
            "type": "message",
            "id": f"msg_{turn}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": line.text, "annotations": []}],
        }
    ]
    for number, call in enumerate(line.calls):
        arguments = json.dumps(call.arguments)
        names = {"id": f"fc_{turn}_{number}", "call_id": f"call_{turn}_{number}", "name": call.tool}
        output.append({"type": "function_call", "status": "completed", "arguments": arguments, **names})
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": request["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
