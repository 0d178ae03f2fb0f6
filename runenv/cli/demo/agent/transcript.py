"""What happened in a run: turn by turn, counted, and as a file. Nothing is drawn here.

The file has the conversation in the vendor's own form, as the last request would be sent; a note of type, size and hash
stands for each image, which lies beside it as a file of its own. There is no base64 in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from runenv.cli.terminal import size
from runenv.providers.lines import file_line
from runenv.providers.pictures import look
from runenv.providers.spots import find
from runenv.types import ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from runenv.artifacts.artifact import Record
    from runenv.cli.demo.agent.wires import Json, Reply
    from runenv.cli.demo.steps import Meter
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("Ledger", "Sent", "Shown", "Turn", "described", "save", "without_images")

NAME: Final = "agent-run"
"""What the files of a run begin with."""
_SLIDES: Final = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn.

    Attributes:
        number: from 1.
        reply: of the model.
        answered: each call with the result as the model is shown it.
        thought: seconds until the reply was there.
        seconds: the whole turn took.
    """

    number: int
    reply: Reply
    answered: tuple[tuple[ToolCall, ToolResult], ...]
    thought: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shown:
    """An image that went to the model."""

    data: bytes
    media_type: str
    turn: int

    @property
    def sha256(self) -> str:
        """Of its bytes, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def filename(self) -> str:
        """Where it is kept beside the transcript."""
        return f"{NAME}-turn-{self.turn}-{self.sha256[:8]}.{self.media_type.rpartition('/')[2]}"


@dataclass(slots=True)
class Sent:
    """A file that the model has sent on.

    Attributes:
        name: at the other end.
        record: of the artifact.
        given: characters of base64 that the tool got for the handle.
        arrived: SHA-256 at the other end.
        theirs: SHA-256 of the file of that name in the env, by the env's own program; "" when there is none.
    """

    name: str
    record: Record
    given: int
    arrived: str = ""
    theirs: str = ""


@dataclass(slots=True)
class Ledger:
    """What a run came to.

    Attributes:
        turns: that were taken.
        conversation: the body of a request with all of it.
        usage: as the vendor counted, by turn.
        given_chars: characters of text that the model was given: what it was asked, the tools, the results.
        own_chars: characters that it wrote itself.
        images: that it was shown.
        printed: bytes that commands printed whose output it saw in part.
        printed_shown: characters that it saw of them.
        files: bytes of the files that programs made in the working folder and that no image showed, by name.
        artifacts: what the store holds of this run at its end.
        sent: what was sent on.
        is_stopped: the model had no more turns.
    """

    turns: list[Turn] = field(default_factory=list["Turn"])
    conversation: Json = field(default_factory=dict[str, Any])
    usage: list[object] = field(default_factory=list[object])
    given_chars: int = 0
    own_chars: int = 0
    images: list[Shown] = field(default_factory=list[Shown])
    printed: int = 0
    printed_shown: int = 0
    files: dict[str, int] = field(default_factory=dict[str, int])
    artifacts: list[Record] = field(default_factory=list["Record"])
    sent: list[Sent] = field(default_factory=list[Sent])
    is_stopped: bool = False

    def begin(self, said: Sequence[str], tools: Sequence[ToolDefinition]) -> None:
        """Count what the model is given before its first turn."""
        self.given_chars += sum(map(len, said))
        self.given_chars += sum(
            len(tool.name) + len(tool.description) + len(json.dumps(dict(tool.parameters))) for tool in tools
        )

    def over(self, turn: Turn, response: Mapping[str, Any]) -> None:
        """Count a turn."""
        self.turns.append(turn)
        if any(usage := response.get("usage") or {}) and any(usage.values()):
            self.usage.append(usage)
        self.own_chars += len(turn.reply.text)
        for call, result in turn.answered:
            self.own_chars += len(call.name) + len(json.dumps(dict(call.arguments), ensure_ascii=False))
            for part in result.parts:
                if isinstance(part, ImagePart):
                    self.images.append(Shown(part.data, part.media_type, turn.number))
                else:
                    self.given_chars += len(part.text if isinstance(part, TextPart) else file_line(part))

    @property
    def calls(self) -> list[tuple[ToolCall, ToolResult]]:
        """All calls with their results."""
        return [one for turn in self.turns for one in turn.answered]

    @property
    def image_bytes(self) -> int:
        """Of all images, without base64."""
        return sum(len(image.data) for image in self.images)

    @property
    def outside_bytes(self) -> int:
        """What passed by the model: each thing counted wherever it passed."""
        printed = self.printed - min(self.printed, self.printed_shown)
        artifacts = sum(record.size for record in self.artifacts)
        return printed + sum(self.files.values()) + artifacts + sum(sent.given for sent in self.sent)

    def missing(self) -> list[tuple[str, str]]:
        """Return what the model did not do, each with the reason as far as it is known."""
        missing: list[tuple[str, str]] = []
        if not self.images:
            missing.append(("plot", "the model has looked at none"))
        if not any(sent.record.media_type == _SLIDES for sent in self.sent):
            instead = f"; it sent {', '.join(sent.name for sent in self.sent)}" if self.sent else ""
            missing.append(("slides", f"the model has sent none{instead}"))
        if self.is_stopped:
            missing.append(("end", f"the model was stopped after {len(self.turns)} turns"))
        elif self.turns and self.turns[-1].reply.cut:
            missing.append(("end", f"the model's last message was cut off: {self.turns[-1].reply.cut}"))
        return missing

    def tell(self, meter: Meter) -> None:
        """Add to the meter of the demo what this run has moved."""
        printed = sum(len(result.text) for call, result in self.calls if call.name == "exec")
        written = sum(len(str(call.arguments.get(key, ""))) for call, _ in self.calls for key in ("content", "new"))
        meter.up += written
        meter.printed += self.printed - self.printed_shown + printed
        meter.down += self.image_bytes + sum(record.size for record in self.artifacts) + self.given_chars
        meter.seen += self.given_chars

    def counts(self) -> Json:
        """Return all numbers as plain data."""
        return {
            "in_context": {
                "text_chars_given": self.given_chars,
                "text_chars_written": self.own_chars,
                "images": len(self.images),
                "image_bytes": self.image_bytes,
            },
            "outside": {
                "bytes": self.outside_bytes,
                "printed_bytes": self.printed,
                "printed_chars_shown": self.printed_shown,
                "files": self.files,
                "artifacts": {record.name: record.size for record in self.artifacts},
                "base64_chars_for_handles": sum(sent.given for sent in self.sent),
            },
        }


def described(data: bytes, media_type: str) -> str:
    """Return an image in words, such as "image 1,200x600 png, 70.3 KiB"."""
    picture = look(data)
    pixels = f"{picture.width:,}x{picture.height:,} " if picture else ""
    return f"image {pixels}{media_type.rpartition('/')[2]}, {size(len(data))}"


def without_images(request: Json, images: Sequence[Shown] = ()) -> Json:
    """Return the body of a request with a note where each image's base64 is; the form stays."""
    files = {image.sha256: image.filename for image in images}
    copy: Json = json.loads(json.dumps(request))
    for spot in find(copy):
        if not isinstance(spot.data, str):
            continue
        block: Any = copy
        for step in spot.path:
            block = block[step]
        picture = spot.picture
        sha256 = hashlib.sha256(base64.b64decode(spot.data)).hexdigest()
        kind = picture.media_type if picture else "unknown type"
        where = f", kept as {files[sha256]}" if sha256 in files else ""
        _replace(block, spot.data, f"[{spot.size:,} bytes of {kind}, sha256 {sha256}{where}]")
    return copy


def _replace(node: Any, old: str, new: str) -> None:  # noqa: ANN401 - JSON
    """Put a note in the place of a text, or of the text's end, anywhere in JSON."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(items):
        if isinstance(value, str) and value.endswith(old):
            node[key] = value.removesuffix(old) + new
        else:
            _replace(value, old, new)


def save(ledger: Ledger, folder: Path, about: Mapping[str, object]) -> Path:
    """Write the transcript and the images of a run, instead of those of the last one. Blocks, for a worker thread.

    Args:
        ledger: of the run.
        folder: where to, on this host; made when it is missing.
        about: what else belongs into the file.

    Returns:
        Path of the transcript.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{NAME}-turn-*"):
        old.unlink()
    for image in ledger.images:
        (folder / image.filename).write_bytes(image.data)
    whole = {
        **about,
        "counts": ledger.counts(),
        "sent": [
            asdict(sent) | {"record": {"handle": sent.record.handle, "size": sent.record.size}} for sent in ledger.sent
        ],
        "usage": ledger.usage,
        "conversation": without_images(ledger.conversation, ledger.images),
    }
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
