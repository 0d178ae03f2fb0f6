"""The values of the artifact store: what a tool returns, whose it is, and what the store keeps about it.

Frozen, and without a road to any storage: `store.py` above makes records and reads scopes, `names.py` below says what a
name or an id may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from runenv.artifacts.names import check_id
from runenv.errors import HandleError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ("Artifact", "Level", "Record", "Scope")

Level: TypeAlias = Literal["run", "session", "user"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Artifact:
    """Bytes that a tool gives back: the store keeps them, and the model is shown a placeholder.

    Attributes:
        data: the content, or the path of a file on this host, which is streamed.
        filename: its name, for people and for the media type.
        media_type: MIME type as declared; None when nobody declared one.
        metadata: your own texts beside it.
    """

    data: bytes | Path = field(repr=False)
    filename: str
    media_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose an artifact is: a run's, within a session's, within a user's. It belongs to the narrowest that is given.

    Two runs of the same name under other sessions or users are two scopes.

    Attributes:
        run: id of a run, or None.
        session: id of a session, or None.
        user: id of a user, or None.

    Raises:
        HandleError: none is given, or one may not be an id.
    """

    run: str | None = None
    session: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        if self.run is None and self.session is None and self.user is None:
            raise HandleError("a scope needs a run, a session or a user")
        for what in ("run", "session", "user"):
            value = getattr(self, what)
            if value is not None:
                check_id(value, what)

    @classmethod
    def of(cls, scope: str | Scope) -> Scope:
        """Return the scope; a plain text is the id of a run."""
        return scope if isinstance(scope, Scope) else cls(run=scope)

    @property
    def level(self) -> Level:
        """The narrowest level that is given."""
        return "run" if self.run is not None else "session" if self.session is not None else "user"

    @property
    def visible(self) -> tuple[Scope, ...]:
        """The scopes whose artifacts this one may see, narrowest first: itself, and itself without narrower levels."""
        wider = [Scope(None, self.session, self.user)] if self.session is not None else []
        wider += [Scope(None, None, self.user)] if self.user is not None else []
        return (self, *(scope for scope in wider if scope != self))

    @property
    def of_user(self) -> Scope:
        """The scope of its user.

        Raises:
            HandleError: it has none.
        """
        if self.user is None:
            raise HandleError("a name that starts with 'user:' needs a scope with a user")
        return Scope(user=self.user)


@dataclass(frozen=True, slots=True)
class Record:
    """What the store keeps about one version of an artifact, apart from its content.

    Attributes:
        handle: `runenv+file://<uuid>`, what stands for it everywhere.
        name: as given, without the `user:` prefix.
        version: from 0, increasing within its scope and name; a number is never used twice.
        scope: whose it is.
        size: bytes of the content.
        sha256: of the content, in lower-case hexadecimal digits.
        media_type: what it is, by its first bytes, then as declared, then by its name.
        declared_type: what it was declared to be, where that differs, else None.
        created: seconds since the epoch.
        expires: seconds since the epoch from which on it is gone, or None.
        metadata: the caller's own texts.
        uri: where the content lies, for people and other programs; never read from the record.
    """

    handle: str
    name: str
    version: int
    scope: Scope
    size: int
    sha256: str
    media_type: str
    declared_type: str | None
    created: float
    expires: float | None
    metadata: Mapping[str, str]
    uri: str
