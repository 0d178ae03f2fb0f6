"""A model that a script plays: it takes requests and gives responses in the form of Anthropic Messages.

It is as strict as the vendor's server, so that what the wires make is really read: roles take turns, every call is
answered at once and in full, tools that are called were offered, an image is whole and of the type that it says. What
it answers depends on what it was shown, and it sees nothing else: a handle that it writes stood in a result.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from runenv.cli.demo.agent.api import Model, ModelError
from runenv.cli.demo.agent.wires import ANTHROPIC
from runenv.providers.pictures import look

if TYPE_CHECKING:
    from runenv.cli.demo.agent.wires import Json

__all__ = ("Asked", "Line", "Script", "Seen", "asks", "played", "says")

NAME: Final = "played-by-a-script"


@dataclass(frozen=True, slots=True)
class Seen:
    """A result as the model was shown it.

    Attributes:
        text: all of its texts.
        images: how many.
        is_error: it says that the call failed.
    """

    text: str
    images: int = 0
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that the model writes."""

    tool: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Line:
    """What the model says in one turn; without calls it is the last."""

    text: str
    calls: tuple[Asked, ...] = ()


Script: TypeAlias = Generator[Line, "list[Seen]", None]
"""Yields what the model says, and gets what it is shown of each call in it."""


def asks(tool: str, **arguments: object) -> Asked:
    """Return a call."""
    return Asked(tool, arguments)


def says(text: str, *calls: Asked) -> Line:
    """Return what is said in a turn."""
    return Line(text, calls)


def played(script: Script) -> Model:
    """Return the model that says what a script has."""
    return Model(NAME, ANTHROPIC, _Player(script).send, is_played=True)


class _Player:
    """Plays one conversation."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._pending: tuple[str, ...] = ()
        self._turn = 0

    async def send(self, request: Json) -> Json:
        """Take a request and answer it.

        Raises:
            ModelError: a server would refuse it.
        """
        seen = self._read(request)
        line = next(self._script) if self._turn == 0 else self._script.send(seen)
        self._turn += 1
        offered = {tool["name"] for tool in request["tools"]}
        for call in line.calls:
            _require(call.tool in offered, f"it does not offer the tool {call.tool!r}")
        calls = [
            {"type": "tool_use", "id": f"toolu_{self._turn:02}_{number}", "name": call.tool, "input": call.arguments}
            for number, call in enumerate(line.calls)
        ]
        self._pending = tuple(str(call["id"]) for call in calls)
        return {
            "id": f"msg_{self._turn:02}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [{"type": "text", "text": line.text}, *calls],
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},  # a script has no tokens
        }

    def _read(self, request: Json) -> list[Seen]:
        """Look at all that a server would look at, and return the answers to the last calls."""
        messages: Sequence[Mapping[str, Any]] = request["messages"]
        roles = [message["role"] for message in messages]
        _require(roles == ["user", *["assistant", "user"] * self._turn], f"the roles are {roles!r}")
        if not self._turn:
            _require(bool(messages[0]["content"]), "nothing is said in it")
            return []
        blocks: Sequence[Mapping[str, Any]] = messages[-1]["content"]
        answers = [block for block in blocks if block["type"] == "tool_result"]
        answered = tuple(block["tool_use_id"] for block in answers)
        _require(answered == self._pending, f"it answers the calls {answered!r}, not {self._pending!r}")
        return [_seen(block) for block in answers]


def _seen(result: Mapping[str, Any]) -> Seen:
    content: Sequence[Mapping[str, Any]] = result["content"]
    _require(bool(content), "a result is empty")
    texts = [block["text"] for block in content if block["type"] == "text"]
    _require(all(map(str.strip, texts)), "a text is blank")
    images = [block["source"] for block in content if block["type"] == "image"]
    _require(len(texts) + len(images) == len(content), "a result holds what is neither text nor image")
    for source in images:
        _check_image(source)
    return Seen("\n".join(texts), len(images), result.get("is_error", False))


def _check_image(source: Mapping[str, Any]) -> None:
    try:
        data = base64.b64decode(source["data"], validate=True)
    except binascii.Error as error:
        raise ModelError("the played model refuses the request: an image is not base64") from error
    picture, says = look(data), source["media_type"]
    _require(picture is not None and picture.whole, "an image cannot be decoded")
    _require(picture is not None and picture.media_type == says, f"an image is not {says!r}, as it is said to be")


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise ModelError(f"the played model refuses the request: {otherwise}")
