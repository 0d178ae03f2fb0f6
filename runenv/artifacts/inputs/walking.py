"""Finds the blobs of a message, wherever its vendor may have put one, and makes the message without them. Pure.

Only what vendors call content is looked at: `content`, `parts`, `output` and results of tools within them. The
arguments of tool calls, texts and unknown keys are never touched. `forms.py` knows the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from pydantic import BaseModel

from runenv.artifacts.handles import part, placeholder
from runenv.artifacts.inputs.forms import Blob, recognise
from runenv.types import ImagePart, ToolResult

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Record
    from runenv.types import Part

__all__ = ("Slot", "plan")

MAX_DEPTH: Final = 32
"""Levels of a message that are looked at; what is deeper stays as it is."""

_CONTENT: Final = frozenset({"content", "contents", "messages", "output", "parts", "toolResult"})
_FUNCTION_RESPONSE: Final = frozenset({"functionResponse", "function_response"})

Make: TypeAlias = "Callable[[], object]"
"""Makes the new value, once every slot has its record."""


@dataclass(slots=True)
class Slot:
    """A blob that was found.

    Attributes:
        blob: its data and what was said about it.
        where: its place in the message, for errors.
        record: the artifact, once it is saved.
    """

    blob: Blob
    where: str
    record: Record | None = None

    @property
    def saved(self) -> Record:
        """The artifact that it became."""
        assert self.record is not None, "a message is made when all of its blobs are saved"  # noqa: S101
        return self.record


def plan(message: object, where: str) -> tuple[list[Slot], Make | None]:
    """Return the blobs of a message, and how to make the message without them (None: there are none).

    Args:
        message: a message, a list of messages or parts, or one part. It is not changed, then or later; what of it has
            no blob is part of the new message too.
        where: its name, for errors.
    """
    slots: list[Slot] = []
    return slots, _visit(message, where, slots, MAX_DEPTH)


def _visit(value: object, where: str, slots: list[Slot], depth: int) -> Make | None:
    make: Make | None = None
    if depth <= 0:
        return None
    if isinstance(value, (list, tuple)):
        make = _sequence(value, where, slots, depth)
    elif isinstance(value, Mapping):
        make = _block(value, frozenset(), where, slots, depth)
    elif isinstance(value, ImagePart):
        make = _image(value, where, slots)
    elif isinstance(value, ToolResult):
        make = _result(value, where, slots, depth)
    elif isinstance(value, BaseModel):
        make = _model(value, where, slots, depth)
    return make


def _result(result: ToolResult, where: str, slots: list[Slot], depth: int) -> Make | None:
    make = _sequence(result.parts, f"{where}.parts", slots, depth)
    return None if make is None else lambda: replace(result, parts=cast("tuple[Part, ...]", make()))


def _sequence(values: list[object] | tuple[object, ...], where: str, slots: list[Slot], depth: int) -> Make | None:
    kinds = frozenset(str(value.get("type")) for value in values if isinstance(value, Mapping))
    kept = list(values)
    made: dict[int, Make] = {}
    for number, value in enumerate(kept):
        place = f"{where}[{number}]"
        if isinstance(value, Mapping):
            make = _block(value, kinds, place, slots, depth - 1)
        else:
            make = _visit(value, place, slots, depth - 1)
        if make is not None:
            made[number] = make
    if not made:
        return None
    is_tuple = isinstance(values, tuple)

    def build() -> object:
        new = [made[number]() if number in made else value for number, value in enumerate(kept)]
        return tuple(new) if is_tuple else new

    return build


def _block(
    block: Mapping[str, object], siblings: frozenset[str], where: str, slots: list[Slot], depth: int
) -> Make | None:
    blob = recognise(block, siblings)
    if blob is not None:
        return _text_of(blob, where, slots)
    kept = dict(block)
    made: dict[str, Make] = {}
    for key, value in kept.items():
        place = f"{where}.{key}"
        if key in _FUNCTION_RESPONSE and isinstance(value, Mapping):
            make = _function_response(value, place, slots)
        elif key in _CONTENT or (key == "source" and isinstance(value, Mapping) and value.get("type") == "content"):
            make = _visit(value, place, slots, depth - 1)
        else:
            continue
        if make is not None:
            made[key] = make
    if not made:
        return None
    return lambda: {key: made[key]() if key in made else value for key, value in kept.items()}


def _text_of(blob: Blob, where: str, slots: list[Slot]) -> Make:
    slot = Slot(blob, where)
    slots.append(slot)
    return lambda: blob.replace(placeholder(slot.saved))


def _function_response(value: Mapping[str, object], where: str, slots: list[Slot]) -> Make | None:
    """Gemini: the parts of a function's response may hold no text, so the placeholders go into the response itself."""
    parts = value.get("parts")
    if not isinstance(parts, (list, tuple)):
        return None
    kept: list[object] = []
    found: list[Slot] = []
    for number, item in enumerate(parts):
        blob = recognise(item, frozenset()) if isinstance(item, Mapping) else None
        if blob is None:
            kept.append(item)
        else:
            found.append(Slot(blob, f"{where}.parts[{number}]"))
    if not found:
        return None
    slots.extend(found)
    rest = {key: item for key, item in value.items() if key != "parts"} | ({"parts": kept} if kept else {})
    response = value.get("response")
    given: dict[str, object] = dict(response) if isinstance(response, Mapping) else {}
    key = next(
        key for key in ("artifacts", *(f"artifacts_{number}" for number in range(len(given) + 1))) if key not in given
    )
    return lambda: rest | {"response": given | {key: [placeholder(slot.saved) for slot in found]}}


def _image(image: ImagePart, where: str, slots: list[Slot]) -> Make | None:
    """A neutral image; one with a handle is an artifact already, and is meant to be seen."""
    if image.handle is not None:
        return None
    slot = Slot(Blob(image.data, image.media_type, None, lambda text: {"text": text}), where)
    slots.append(slot)
    return lambda: part(slot.saved)


def _model(model: BaseModel, where: str, slots: list[Slot], depth: int) -> Make | None:
    """A vendor's own object: by its fields, and made again from them.

    One that is nothing but a blob of a named type, such as MCP's `ImageContent`, becomes a plain block: it cannot be
    made again without its data.
    """
    fields = model.model_dump(by_alias=True, exclude_none=True)
    make = _visit(fields, where, slots, depth)
    if make is None or (isinstance(fields.get("type"), str) and recognise(fields, frozenset()) is not None):
        return make
    return lambda: type(model).model_validate(make())
