"""`Entry`: a record as a backend keeps it, as JSON. Whatever comes back from storage is checked before it is believed.

Who can write to the storage may put anything into a record: it is bounded, every field is checked, and nothing in it
says where content lies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from runenv.artifacts.artifact import Record, Scope
from runenv.artifacts.handles import SCHEME
from runenv.artifacts.names import check_name, encode
from runenv.errors import StoreError

__all__ = ("MAX_ENTRY_BYTES", "DamagedError", "Entry", "scope_key")

MAX_ENTRY_BYTES: Final = 128 * 1024
"""Bounds a record as JSON, with metadata of which every byte needs six."""
_PREFIX: Final = f"{SCHEME}://"
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_MAX_SECONDS: Final = 1e12
"""Bounds a point in time; it also keeps infinity out."""


class DamagedError(StoreError):
    """A record is not what was written."""


@lru_cache(maxsize=1024)
def scope_key(scope: Scope) -> str:
    """Return the key of a scope; those within it start with it. The end of a user's name cannot be mistaken."""
    parts = [("u", scope.user)]
    if scope.level != "user":
        parts.append(("s", scope.session))
    if scope.level == "run":
        parts.append(("r", scope.run))
    return "".join(f"{letter}/" if value is None else f"{letter}-{encode(value)}/" for letter, value in parts)


class Entry(BaseModel):
    """One version of an artifact."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    id: Annotated[str, Field(pattern=f"^{_UUID}$")]
    """The uuid of its handle."""
    name: Annotated[str, AfterValidator(check_name)]
    version: Annotated[int, Field(ge=0)]
    run: str | None
    session: str | None
    user: str | None
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    media_type: Annotated[str, Field(max_length=512)]
    declared_type: Annotated[str, Field(max_length=512)] | None
    created: Annotated[float, Field(ge=-_MAX_SECONDS, le=_MAX_SECONDS)]
    expires: Annotated[float, Field(ge=-_MAX_SECONDS, le=_MAX_SECONDS)] | None
    metadata: dict[str, str]

    @property
    def handle(self) -> str:
        """What stands for it everywhere."""
        return _PREFIX + self.id

    @property
    def scope(self) -> Scope:
        """Whose it is."""
        return Scope(self.run, self.session, self.user)

    def is_over(self, now: float) -> bool:
        """Say whether its time is over."""
        return self.expires is not None and now >= self.expires

    def freed(self) -> Entry:
        """Return it as one whose content is gone: over, whatever the clock says now."""
        return self.model_copy(update={"expires": -_MAX_SECONDS})

    def record(self, uri: str) -> Record:
        """Return what the store's users see."""
        fields = self.model_dump(exclude={"id", "run", "session", "user"})
        return Record(handle=self.handle, scope=self.scope, uri=uri, **fields)

    def to_json(self) -> str:
        """Return it as text."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes, *, id: str, scope: str | None = None) -> Entry:
        """Read a record that was found under an id (and in a scope).

        Raises:
            DamagedError: it is not the record that belongs there.
        """
        try:
            if len(text) > MAX_ENTRY_BYTES:
                raise ValueError("too long")
            entry = cls.model_validate_json(text)
            key = scope_key(entry.scope)
        except (ValidationError, ValueError) as error:
            raise DamagedError(f"the record of {_PREFIX + id!r} is damaged: clear its scope") from error
        if entry.id != id or (scope is not None and key != scope):
            raise DamagedError(f"the record of {_PREFIX + id!r} is that of another artifact: clear its scope")
        return entry
