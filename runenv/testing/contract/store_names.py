"""The contract of what may be a name or the id of a scope (rule A5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runenv.artifacts import Scope
from runenv.errors import HandleError
from runenv.testing.contract.store_base import StoreTests, records

if TYPE_CHECKING:
    from runenv.artifacts import ArtifactStore

__all__ = ("StoreNames",)

RUN: Final = "run-1"
ANYWHERE: Final = (
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "//host/share",
    "a\0b",
    "a\nb",
    "a\rb",
    "a\tb",
    "\x1b[31mred",
    "a\x7f",
    "a\x85b",
    "\\",
    "a\\b",
    "..\\b",
    "\\\\host\\share",
    "C:",
    "c:x",
    "C:/x",
    "C:\\x",
    "CON",
    "nul",
    "aux.txt",
    "COM1",
    "lpt9.csv",
    "\ud800",
    "x" * 256,
    "\N{GRINNING FACE}" * 64,
)
"""Neither names nor ids: empty, absolute, climbing, controls, backslashes, drives, devices, no Unicode, too long."""
NAMES: Final = (
    "../a",
    "a/..",
    "a/../b",
    "a/./b",
    "./a",
    "a//b",
    "a/",
    "user:",
    "user:../a",
    "user:/a",
    "x/" * 600 + "x",
)
"""No names, beside those."""
IDS: Final = ("a/b", "../a", "a/")
"""No ids, beside those."""


class StoreNames(StoreTests):
    """Names and ids that are refused, and those that are not."""

    @pytest.mark.parametrize("name", [*ANYWHERE, *NAMES], ids=lambda text: ascii(text)[:20])
    async def test_A5_bad_names_are_refused(self, store: ArtifactStore, name: str) -> None:
        """Before anything is stored, in one sentence that is not longer for a longer name."""
        with pytest.raises(HandleError) as caught:
            await store.put(b"x", filename=name, scope=Scope("r", "s", "u"))
        assert "\n" not in str(caught.value)
        assert "\0" not in str(caught.value)
        assert len(str(caught.value)) < 400
        assert await records(store, Scope("r", "s", "u")) == []

    @pytest.mark.parametrize("id", [*ANYWHERE, *IDS], ids=lambda text: ascii(text)[:20])
    async def test_A5_bad_ids_are_refused(self, store: ArtifactStore, id: str) -> None:
        """At every level, before anything is stored."""
        with pytest.raises(HandleError):
            await store.put(b"x", filename="f", scope=id)
        for level in ("run", "session", "user"):
            with pytest.raises(HandleError):
                Scope(**{level: id})

    async def test_A5_a_scope_is_of_somebody(self) -> None:
        """Without any id there is none."""
        with pytest.raises(HandleError):
            Scope()

    async def test_A5_ids_that_look_alike_are_different(self, store: ArtifactStore) -> None:
        """As with names, none is cut, folded or unescaped on its way into a key."""
        ids = [
            "a",
            "A",
            "a.b",
            "a b",
            "a%20b",
            "a=20b",
            "a+b",
            "ab",
            "ä",
            "a\u0308",
            "-",
            "_",
            "0",
            "x" * 250,
            "x" * 251,
        ]
        for each in ids:
            await store.put(each.encode(), filename="f", scope=each)
            await store.put(each.encode(), filename="f", scope=Scope(user=each))
        for each in ids:
            for scope in (Scope(run=each), Scope(user=each)):
                (record,) = await records(store, scope)
                assert (record.scope, record.version) == (scope, 0)
                assert await store.get(record.handle, scope=scope) == each.encode()

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(name=st.text(st.one_of(st.characters(), st.sampled_from("a./\\:~%= \0")), max_size=12))
    async def test_A5_a_name_comes_back_or_is_refused(self, store: ArtifactStore, name: str) -> None:
        """There is nothing in between."""
        data = name.encode(errors="surrogatepass")
        try:
            handle = await store.put(data, filename=name, scope=RUN)
        except HandleError:
            return
        record = await store.find(name, scope=RUN)
        assert (record.name, record.handle) == (name, handle)
        assert await store.get(handle, scope=RUN) == data
