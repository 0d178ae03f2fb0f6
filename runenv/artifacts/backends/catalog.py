"""`Catalog`: the records of a store in SQLite, with exact counts. Blocking, one thread at a time, no content.

Every change is one transaction under SQLite's write lock, so that several processes agree on versions, quotas and
references, and a process that is killed leaves either all of a change or nothing. Above is `cataloged.py`; the content
is its business, and joins a transaction through the functions it passes.

SQLite since 2026-11-28, and not a tree of small JSON files: with those a quota that is exact across processes needs a
counter that survives kills, and a page of a list needs a directory scan; both are what a database is.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from runenv.artifacts.backends.backend import TOMBSTONE_SECONDS, check_quotas
from runenv.artifacts.backends.entry import Entry
from runenv.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from runenv.artifacts.backends.backend import Quotas

__all__ = ("PAGE", "Catalog")

PAGE: Final = 500
"""Rows that are read, or removed, at a time."""
_FORMAT: Final = 1
"""The version of the tables; another one is refused."""
_BUSY_SECONDS: Final = 60.0
"""Bounds the wait for another process' transaction."""
_LAST: Final = "\U0010ffff"
"""Sorts behind every name with the same beginning."""
_TABLES: Final = (
    # The next version of every name there ever was: what makes that a number is never used twice.
    "CREATE TABLE names (scope TEXT, name TEXT, next INTEGER NOT NULL, PRIMARY KEY (scope, name)) WITHOUT ROWID",
    # What is committed. Without a hash: it expired, and its content was freed.
    (
        "CREATE TABLE entries (id TEXT PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,"
        " sha256 TEXT, expires REAL, entry TEXT NOT NULL, UNIQUE (scope, name, version)) WITHOUT ROWID"
    ),
    "CREATE INDEX entries_by_expiry ON entries (expires) WHERE expires IS NOT NULL",
    "CREATE TABLE contents (sha256 TEXT PRIMARY KEY, size INTEGER NOT NULL, refs INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE usage (bytes INTEGER NOT NULL, count INTEGER NOT NULL)",
    "INSERT INTO usage VALUES (0, 0)",
    f"PRAGMA user_version = {_FORMAT}",
)


class Catalog:
    """The tables behind one connection.

    Args:
        path: of the database, or ":memory:".
        begin: called before the tables are made, while nobody else can make them; may refuse.

    Raises:
        sqlite3.Error: it is no database, or cannot be used.
        StoreError: it is one of another program or version.
    """

    def __init__(self, path: str, begin: Callable[[], None] = lambda: None) -> None:
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._on_disk = path != ":memory:"
        try:
            self._set_up(path, begin)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    # -- one artifact

    def reserve(self, scope: str, name: str) -> int:
        """Take the next version of a name."""
        sql = "INSERT INTO names VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET next = next + 1 RETURNING next - 1"
        with self._changing(durable=False):
            return int(self._one(sql, scope, name)[0])

    def commit(self, entry: Entry, scope: str, quotas: Quotas, keep: Callable[[bool], None]) -> None:
        """Add an artifact, and a reference to its content.

        Args:
            entry: what is added.
            scope: the key of its scope.
            quotas: what it must fit into.
            keep: called within the transaction with whether this content is known; makes it last.

        Raises:
            LimitError: it does not fit.
        """
        with self._changing():
            known = bool(self._rows("SELECT 1 FROM contents WHERE sha256 = ?", entry.sha256))
            added = 0 if known else entry.size
            used, count = self._one("SELECT bytes, count FROM usage")
            check_quotas(quotas, used + added, count + 1)
            keep(known)
            self._db.execute(
                "INSERT INTO contents VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET refs = refs + 1",
                (entry.sha256, entry.size),
            )
            row = (entry.id, scope, entry.name, entry.version, entry.sha256, entry.expires, entry.to_json())
            self._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._db.execute("UPDATE usage SET bytes = bytes + ?, count = count + 1", (added,))

    def find(self, id: str, scopes: Sequence[str]) -> Entry | None:
        """Return the entry of an id if it is in one of the scopes; one whose content was freed has expired."""
        for scope, text, sha256 in self._rows("SELECT scope, entry, sha256 FROM entries WHERE id = ?", id):
            if scope in scopes:
                entry = Entry.from_json(text, id=id, scope=scope)
                return entry if sha256 else entry.freed()
        return None

    # -- pages

    def latest(self, scope: str, prefix: str, after: str, now: float) -> list[Entry]:
        """Return a page of the highest live version of each name behind `after`, by name."""
        sql = (
            "SELECT id, entry, MAX(version) FROM entries WHERE scope = ? AND name > ? AND name >= ? AND name <= ?"
            " AND sha256 IS NOT NULL AND (expires IS NULL OR expires > ?) GROUP BY name ORDER BY name LIMIT ?"
        )
        rows = self._rows(sql, scope, after, prefix, prefix + _LAST, now, PAGE)
        return [Entry.from_json(text, id=key, scope=scope) for key, text, _ in rows]

    def versions(self, scope: str, name: str, below: int) -> list[Entry]:
        """Return a page of the versions of a name below a number, highest first."""
        sql = (
            "SELECT id, entry FROM entries WHERE scope = ? AND name = ? AND version < ? AND sha256 IS NOT NULL"
            " ORDER BY version DESC LIMIT ?"
        )
        rows = self._rows(sql, scope, name, below, PAGE)
        return [Entry.from_json(text, id=key, scope=scope) for key, text in rows]

    # -- removal; each returns how many artifacts it removed, and hashes that have no reference left

    def remove(self, id: str) -> tuple[int, list[str]]:
        """Remove an artifact."""
        with self._changing():
            return self._remove("id = ?", id)

    def clear(self, scope: str) -> tuple[int, list[str]]:
        """Remove a page of the artifacts of a scope and of those within it."""
        with self._changing():
            # `/` ends every key of a scope, and `0` is the character behind it.
            return self._remove("scope >= ? AND scope < ?", scope, scope.removesuffix("/") + "0")

    def expire(self, now: float) -> tuple[int, list[str]]:
        """Free the content of a page of artifacts whose time is over; that they were there is known for a week."""
        with self._changing():
            self._db.execute("DELETE FROM entries WHERE sha256 IS NULL AND expires <= ?", (now - TOMBSTONE_SECONDS,))
            rows = self._rows(
                "SELECT id, sha256 FROM entries WHERE sha256 IS NOT NULL AND expires <= ? LIMIT ?", now, PAGE
            )
            self._db.executemany("UPDATE entries SET sha256 = NULL WHERE id = ?", [row[:1] for row in rows])
            return len(rows), self._release([sha256 for _, sha256 in rows])

    def drop(self, hashes: Sequence[str], unlink: Callable[[str], int]) -> tuple[int, int]:
        """Unlink what no artifact refers to while nobody can begin to; return how many there were, and their bytes."""
        with self._changing():
            freed = [unlink(sha256) for sha256 in self.unknown(hashes)]
        return len(freed), sum(freed)

    def unknown(self, hashes: Sequence[str]) -> list[str]:
        """Return those of some hashes that no artifact refers to at this moment."""
        marks = ", ".join("?" * len(hashes))
        known = {row[0] for row in self._rows(f"SELECT sha256 FROM contents WHERE sha256 IN ({marks})", *hashes)}  # noqa: S608
        return [each for each in hashes if each not in known]

    # -- inside

    def _remove(self, condition: str, *values: object) -> tuple[int, list[str]]:
        rows = self._rows(f"SELECT id, sha256 FROM entries WHERE {condition} LIMIT ?", *values, PAGE)  # noqa: S608
        self._db.executemany("DELETE FROM entries WHERE id = ?", [row[:1] for row in rows])
        return len(rows), self._release([sha256 for _, sha256 in rows if sha256])

    def _release(self, hashes: list[str]) -> list[str]:
        self._db.executemany("UPDATE contents SET refs = refs - 1 WHERE sha256 = ?", [(each,) for each in hashes])
        free = self._rows("SELECT sha256, size FROM contents WHERE refs <= 0")
        self._db.execute("DELETE FROM contents WHERE refs <= 0")
        size = sum(size for _, size in free)
        self._db.execute("UPDATE usage SET bytes = bytes - ?, count = count - ?", (size, len(hashes)))
        return [sha256 for sha256, _ in free]

    def _set_up(self, path: str, begin: Callable[[], None]) -> None:
        self._db.execute("PRAGMA trusted_schema = OFF")  # the file may have been written by anybody
        if self._on_disk:
            # Not WAL, which leaves megabytes beside a catalog of a few pages, and no network file system takes.
            self._db.execute("PRAGMA journal_mode = TRUNCATE")
        with self._changing():
            version = self._one("PRAGMA user_version")[0]
            if version == 0 and not self._rows("SELECT 1 FROM sqlite_schema"):
                begin()
                for statement in _TABLES:
                    self._db.execute(statement)
            elif version != _FORMAT:
                raise StoreError(f"the catalog {path!r} is of another program or version: choose another folder")

    @contextmanager
    def _changing(self, *, durable: bool = True) -> Generator[None]:
        # What a power cut may take without harm needs half of the waiting for the disk.
        if self._on_disk:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def _one(self, sql: str, *values: object) -> Any:  # noqa: ANN401 - a row of whatever was asked for
        return self._db.execute(sql, values).fetchone()
