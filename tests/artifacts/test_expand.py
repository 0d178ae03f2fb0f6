"""Handles in a tool's arguments become data just before it runs; what was recorded keeps the handle."""

from __future__ import annotations

import base64
import copy
import random
import stat
from collections import UserDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from runenv.artifacts import Artifact, ArtifactStore, Scope
from runenv.artifacts.arguments import MAX_LIVE, Form, expand, expanded
from runenv.artifacts.handles import find, mint, placeholder
from runenv.artifacts.nested import Nested
from runenv.artifacts.results import absorb
from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.errors import (
    ArtifactError,
    ArtifactExpiredError,
    ArtifactMissingError,
    ConfigError,
    EnvClosedError,
    LimitError,
    StoreError,
)
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.env import RunEnv
    from runenv.testing.contract.store import Place
    from runenv.types import Default

pytestmark = pytest.mark.anyio
RUN = Scope(run="run-1")
DECK = random.Random(79).randbytes(30_000)
UNKNOWN = "runenv+file://0f8fad5b-d9cb-469f-a165-70867728950e"
IN_MEMORY: tuple[Form, ...] = ("bytes", "base64", "data_uri", "text")


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The store's time."""
    return Clock()


@pytest.fixture
async def store(anywhere: Place, clock: Clock) -> AsyncIterator[ArtifactStore]:
    """A store of each kind."""
    async with ArtifactStore.open(anywhere.url, options=anywhere.options, clock=clock) as store:
        yield store


@pytest.fixture
async def deck(store: ArtifactStore) -> str:
    """The handle of 30,000 random bytes."""
    return await store.put(DECK, filename="my deck.pptx", scope=RUN)


@pytest.fixture
async def env() -> AsyncIterator[RunEnv]:
    """A working folder on this host."""
    async with open_env(LocalConfig()) as env:
        yield env


# -- what becomes of a handle


async def test_A8_the_form_of_a_parameter_says_what_a_handle_becomes(store: ArtifactStore) -> None:
    """Bytes, base64, a data URI, text, or nothing; bytes unless said otherwise."""
    handle = await store.put("Größe\n".encode(), filename="a.txt", scope=RUN)
    forms: dict[str, Form] = {"b64": "base64", "uri": "data_uri", "txt": "text", "left": "handle"}
    arguments = dict.fromkeys((*forms, "raw"), handle)
    encoded = base64.b64encode("Größe\n".encode()).decode()
    assert await expand(arguments, store, scope=RUN, forms=forms) == {
        "b64": encoded,
        "uri": f"data:text/plain;base64,{encoded}",
        "txt": "Größe\n",
        "left": handle,
        "raw": "Größe\n".encode(),
    }


async def test_the_form_of_all_other_parameters_can_be_given(store: ArtifactStore, deck: str) -> None:
    """As for a server whose tools all take base64."""
    ready = await expand({"content": deck, "n": 1}, store, scope=RUN, default="base64")
    assert ready == {"content": base64.b64encode(DECK).decode(), "n": 1}


async def test_C079_bytes_come_through_two_tools_unchanged(store: ArtifactStore) -> None:
    """A model passes on what it was shown, and the consumer gets every byte."""
    shown = await absorb({"file": Artifact(DECK, "deck.pptx")}, store, scope=RUN)
    handle = find(shown["file"])[0].handle
    for written in (handle, handle.upper(), f"`{handle}`", f"[deck]({handle})", f" {handle}.", shown["file"]):
        ready = await expand({"content": written}, store, scope=RUN, forms={"content": "base64"})
        assert base64.b64decode(ready["content"], validate=True) == DECK


@pytest.mark.parametrize("data", [b"\xfb", b"\xfb\xff", b"\xfb\xff\xfe", b""])
async def test_C091_base64_is_the_standard_one_with_padding(store: ArtifactStore, data: bytes) -> None:
    """`+` and `/`, never `-` and `_`, in texts and in URIs."""
    handle = await store.put(data, filename="x", scope=RUN)
    forms: dict[str, Form] = {"a": "base64", "b": "data_uri"}
    ready = await expand({"a": handle, "b": handle}, store, scope=RUN, forms=forms)
    assert ready["a"] == base64.standard_b64encode(data).decode()
    assert base64.b64decode(ready["a"], validate=True) == data
    assert ready["b"].partition(",")[2] == ready["a"]
    assert len(ready["a"]) % 4 == 0


async def test_a_data_uri_has_no_blanks_in_its_type(store: ArtifactStore) -> None:
    """Parameters are kept."""
    handle = await store.put(b"a,b\n", filename="t.csv", scope=RUN, media_type='text/csv; charset=utf-8; x="a b"')
    ready = await expand({"a": handle}, store, scope=RUN, default="data_uri")
    assert ready["a"] == "data:text/csv;charset=utf-8;x=%22a%20b%22;base64," + base64.b64encode(b"a,b\n").decode()


@pytest.mark.parametrize(
    ("data", "media_type", "text"),
    [
        (b"a\r\nb\n", None, "a\r\nb\n"),
        ("\ufeffGröße".encode(), None, "Größe"),
        ("\ufeffGröße".encode("utf-16-le"), None, "Größe"),
        ("\ufeffGröße".encode("utf-32-be"), None, "Größe"),
        ("Größe \u2013 1 €".encode("cp1252"), "text/csv; charset=windows-1252", "Größe \u2013 1 €"),
        (b"", None, ""),
    ],
    ids=["ASCII", "UTF-8 with a mark", "UTF-16", "UTF-32", "as declared", "empty"],
)
async def test_text_is_decoded_by_its_mark_its_type_or_as_utf8(
    store: ArtifactStore, data: bytes, media_type: str | None, text: str
) -> None:
    """Line ends stay as they are."""
    handle = await store.put(data, filename="t.csv", scope=RUN, media_type=media_type)
    assert await expand({"t": handle}, store, scope=RUN, default="text") == {"t": text}


@pytest.mark.parametrize(
    ("data", "name", "says"),
    [
        ("Größe".encode("cp1252"), "data.csv", "text/csv"),
        (b"\x89PNG\r\n\x1a\n", "a.png", "image/png"),
        (b"a\xff\xfe", "x.bin", "utf-8"),
    ],
)
async def test_what_is_no_text_is_an_error_that_says_what_it_is(
    store: ArtifactStore, data: bytes, name: str, says: str
) -> None:
    """Nothing is replaced, and no code is guessed."""
    handle = await store.put(data, filename=name, scope=RUN)
    with pytest.raises(ArtifactError, match=says) as caught:
        await expand({"t": handle}, store, scope=RUN, default="text")
    assert handle in str(caught.value)


async def test_large_ones_are_encoded_whole(store: ArtifactStore) -> None:
    """Beyond what is done in the event loop."""
    data = bytes(range(256)) * 16_384
    handle = await store.put(data, filename="x", scope=RUN)
    ready = await expand({"a": handle}, store, scope=RUN, default="base64")
    assert base64.b64decode(ready["a"]) == data


# -- where handles are found


@pytest.mark.parametrize("form", IN_MEMORY)
async def test_C081_a_handle_within_a_text_stays(store: ArtifactStore, form: Form) -> None:
    """One rule: a whole value becomes data; data in the middle of a sentence is neither."""
    handle = await store.put(b"text", filename="a.txt", scope=RUN)
    texts = [
        f"see {handle}, thanks",
        handle + handle,
        f"x{handle}",
        f"{handle}_1",
        "runenv+file://a.txt",
        f"a {UNKNOWN}",
    ]
    arguments = {"texts": texts, "whole": handle}
    ready = await expand(arguments, store, scope=RUN, default=form)
    assert ready["texts"] == texts
    assert ready["whole"] != handle


async def test_C082_handles_are_found_at_any_depth_and_keys_are_not(store: ArtifactStore, deck: str) -> None:
    """Lists, tuples, dicts, and other mappings."""
    arguments = {"a": [{"b": ("x", deck)}], deck: "key", "c": UserDict({deck: deck})}
    ready = await expand(arguments, store, scope=RUN)
    assert ready == {"a": [{"b": ("x", DECK)}], deck: "key", "c": {deck: DECK}}


@dataclass
class Upload:
    """A value that a framework made of arguments."""

    name: str
    content: Any


class Message(BaseModel):
    """A model that a framework made of arguments."""

    text: str
    files: list[Any]


async def test_C082_dataclasses_and_models_are_looked_into(store: ArtifactStore, deck: str) -> None:
    """A copy has the data; one without a handle in it is the same object."""
    upload, message, other = Upload("deck", deck), Message(text="hi", files=[deck]), Upload("other", [1])
    ready = await expand({"u": upload, "m": message, "o": other}, store, scope=RUN)
    assert ready == {"u": Upload("deck", DECK), "m": Message.model_construct(text="hi", files=[DECK]), "o": other}
    assert ready["o"] is other
    assert upload == Upload("deck", deck)
    assert message == Message(text="hi", files=[deck])


async def test_C082_the_arguments_stay_as_they_were(store: ArtifactStore, deck: str) -> None:
    """For the log, the cache and the history; whatever the tool does to its own."""
    arguments: dict[str, Any] = {"a": [{"b": deck}], "plain": [[1], {"x": [2]}], "t": ([3],)}
    recorded = copy.deepcopy(arguments)
    ready = await expand(arguments, store, scope=RUN)
    assert arguments == recorded
    ready["plain"][0].append("changed")
    ready["plain"][1]["x"].append("changed")
    ready["t"][0].append("changed")
    ready["a"].clear()
    assert arguments == recorded


async def test_C082_cycles_and_depth_are_no_danger(store: ArtifactStore, deck: str) -> None:
    """1,000 levels and far more; a cycle is one in the copy."""
    ring: dict[str, Any] = {"handle": deck}
    ring["self"] = ring
    deep: Any = deck
    for level in range(50_000):
        deep = {"d": deep} if level % 2 else [deep]
    ready = await expand({"ring": ring, "deep": deep}, store, scope=RUN)
    assert ready["ring"]["handle"] == DECK
    assert ready["ring"]["self"] is ready["ring"]
    value = ready["deep"]
    while not isinstance(value, bytes):
        (value,) = value.values() if isinstance(value, dict) else value
    assert value == DECK


async def test_one_list_in_two_parameters_is_expanded_by_each_form(store: ArtifactStore) -> None:
    """The same object, two copies."""
    handle = await store.put(b"text", filename="a.txt", scope=RUN)
    shared = [handle]
    ready = await expand({"a": shared, "b": shared}, store, scope=RUN, forms={"a": "text"})
    assert ready == {"a": ["text"], "b": [b"text"]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4) | st.tuples(inner)
    ),
    max_leaves=20,
)


def replaced(value: Any) -> Any:  # noqa: ANN401
    """What a reader expects: the plain recursive way."""
    if isinstance(value, list):
        return [replaced(item) for item in value]
    if isinstance(value, tuple):
        return tuple(replaced(item) for item in value)
    if isinstance(value, dict):
        return {key: replaced(item) for key, item in value.items()}
    return b"data" if value == UNKNOWN else value


@given(JSON)
def test_any_value_is_walked_as_recursion_would(value: Any) -> None:  # noqa: ANN401
    """And is left as it was."""
    value = {"top": value}
    before = copy.deepcopy(value)
    nested = Nested(value, str, lambda text: text == UNKNOWN, fresh=True)
    assert nested.replaced(lambda _, __: b"data") == replaced(value)
    assert value == before


# -- dead handles


async def test_A8_an_unknown_handle_is_an_error_that_names_the_live_ones(store: ArtifactStore, deck: str) -> None:
    """Never passed on as text; a model that made one up sees which there are."""
    with pytest.raises(ArtifactMissingError) as caught:
        await expand({"content": f"`{UNKNOWN}`"}, store, scope=RUN)
    message = str(caught.value)
    assert message.index(UNKNOWN) < message.index("'my deck.pptx'") < message.index(deck)
    assert "\n" not in message


async def test_A8_a_foreign_handle_reads_like_an_unknown_one(store: ArtifactStore) -> None:
    """And the artifacts of others are not named."""
    foreign = await store.put(b"secret", filename="secret.txt", scope="run-2")
    messages: list[str] = []
    for handle in (UNKNOWN, foreign):
        with pytest.raises(ArtifactMissingError) as caught:
            await expand({"a": handle}, store, scope=RUN)
        assert type(caught.value) is ArtifactMissingError
        messages.append(str(caught.value).replace(handle, "<handle>"))
    assert messages[0] == messages[1]
    assert "secret.txt" not in messages[0]


async def test_A8_an_expired_handle_says_so(store: ArtifactStore, clock: Clock) -> None:
    """To someone whose it was."""
    handle = await store.put(b"x", filename="x", scope=RUN, ttl=60.0)
    clock.now += 61
    with pytest.raises(ArtifactExpiredError, match="has expired; there are no artifacts yet"):
        await expand({"a": handle}, store, scope=RUN)


async def test_A8_at_most_twenty_are_named(store: ArtifactStore) -> None:
    """The message is for a model."""
    for number in range(MAX_LIVE + 5):
        await store.put(b"x", filename=f"{number}.txt", scope=RUN)
    with pytest.raises(ArtifactMissingError) as caught:
        await expand({"a": [mint() for _ in range(100)]}, store, scope=RUN)
    message = str(caught.value)
    assert message.count(".txt'") == MAX_LIVE
    assert len(find(message)) == 2 * MAX_LIVE


async def test_a_dead_handle_among_live_ones_stops_the_call(store: ArtifactStore, deck: str, env: RunEnv) -> None:
    """Before anything was written anywhere."""
    with pytest.raises(ArtifactMissingError):
        await expand({"a": deck, "b": UNKNOWN}, store, scope=RUN, default="env_path", env=env)
    assert await env.list(".") == []


# -- caps


@pytest.mark.parametrize("form", [*IN_MEMORY, "env_path", "host_path"])
async def test_a_cap_holds_for_every_form_when_it_is_given(
    store: ArtifactStore, env: RunEnv, form: Form, tmp_path: Path
) -> None:
    """For each artifact, and for all of a call together; the error names the handle and the cap."""
    handles = [await store.put(bytes([65 + n]) * 100, filename=f"{n}.txt", scope=RUN) for n in range(3)]

    async def ready(max_bytes: int | Default = DEFAULT, max_total_bytes: int | Default = DEFAULT) -> dict[str, Any]:
        return await expand(
            {"a": handles, "b": handles[0]},
            store,
            scope=RUN,
            default=form,
            env=env,
            folder=tmp_path,
            max_bytes=max_bytes,
            max_total_bytes=max_total_bytes,
        )

    assert len((await ready(max_bytes=100, max_total_bytes=300))["a"]) == 3
    with pytest.raises(LimitError, match=r"99 bytes \(max_bytes\)") as caught:
        await ready(max_bytes=99)
    assert handles[0] in str(caught.value)
    with pytest.raises(LimitError, match=r"299 bytes \(max_total_bytes\)") as caught:
        await ready(max_total_bytes=299)
    assert handles[2] in str(caught.value)


async def test_what_is_used_twice_is_counted_once(store: ArtifactStore, deck: str) -> None:
    """It is in memory once."""
    ready = await expand({"a": [deck] * 1000}, store, scope=RUN, max_total_bytes=len(DECK))
    assert all(data is ready["a"][0] for data in ready["a"])


async def test_memory_has_a_cap_by_itself_and_paths_have_none(store: ArtifactStore, tmp_path: Path) -> None:
    """200 MB go to a tool that takes a path, and not into a text."""
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(200_000_000)
    handle = await store.put(big, filename="big.bin", scope=RUN)
    with pytest.raises(LimitError, match="takes a path"):
        await expand({"a": handle}, store, scope=RUN, default="base64")
    async with expanded({"a": handle}, store, scope=RUN, default="host_path") as ready:
        assert Path(ready["a"]).stat().st_size == 200_000_000


# -- paths


async def test_a_host_path_is_private_and_gone_after_the_call(store: ArtifactStore, deck: str) -> None:
    """Named as the artifact, in a folder that only this user can enter."""
    async with expanded({"file": deck}, store, scope=RUN, forms={"file": "host_path"}) as ready:
        path = Path(ready["file"])
        assert path.name == "my deck.pptx"
        assert path.read_bytes() == DECK
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        (path.parent / "left.txt").write_bytes(b"by the tool")
    assert not path.parent.exists()


async def test_host_paths_go_when_the_tool_fails(store: ArtifactStore, deck: str) -> None:
    """Whatever ends the call."""
    path = Path()
    with suppress(ZeroDivisionError):
        async with expanded({"file": deck}, store, scope=RUN, default="host_path") as ready:
            path = Path(ready["file"])
            raise ZeroDivisionError
    assert path.name == "my deck.pptx"
    assert not path.parent.exists()
    with anyio.CancelScope() as scope:
        async with expanded({"file": deck}, store, scope=RUN, default="host_path") as ready:
            path = Path(ready["file"])
            scope.cancel()
            await anyio.sleep_forever()
    assert not path.parent.exists()


async def test_expand_puts_host_paths_where_it_is_told(store: ArtifactStore, deck: str, tmp_path: Path) -> None:
    """They stay, each in its own folder, so that two calls do not meet."""
    arguments = {"file": deck}
    first = await expand(arguments, store, scope=RUN, default="host_path", folder=tmp_path)
    second = await expand(arguments, store, scope=RUN, default="host_path", folder=tmp_path)
    assert first != second
    assert Path(first["file"]).read_bytes() == Path(second["file"]).read_bytes() == DECK
    assert tmp_path in Path(first["file"]).parents


async def test_a_failure_leaves_no_host_path(store: ArtifactStore, deck: str, tmp_path: Path) -> None:
    """The copies that were made before it are removed."""
    arguments = {"file": deck, "text": deck}
    with pytest.raises(ArtifactError, match="is no text"):
        await expand(arguments, store, scope=RUN, forms={"file": "host_path"}, default="text", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_an_env_path_is_there_for_the_call(store: ArtifactStore, deck: str, env: RunEnv) -> None:
    """A command can read it from any folder; afterwards the working folder is as it was."""
    async with expanded({"file": deck}, store, scope=RUN, forms={"file": "env_path"}, env=env) as ready:
        assert ready["file"].startswith(env.workdir)
        assert ready["file"].endswith("/my deck.pptx")
        result = await env.exec(["cat", ready["file"]], cwd=".artifacts")
        assert result.stdout.data == DECK
    assert await env.list(".") == []


async def test_two_calls_do_not_take_each_others_paths(store: ArtifactStore, deck: str, env: RunEnv) -> None:
    """Each has copies of its own."""
    async with expanded({"file": deck}, store, scope=RUN, default="env_path", env=env) as outer:
        async with expanded({"file": deck}, store, scope=RUN, default="env_path", env=env) as inner:
            assert inner != outer
        assert await env.read(outer["file"]) == DECK


async def test_expand_leaves_env_paths_the_same_in_every_call(store: ArtifactStore, deck: str, env: RunEnv) -> None:
    """So that a hundred calls leave one copy."""
    arguments = {"file": deck}
    first = await expand(arguments, store, scope=RUN, default="env_path", env=env)
    assert await expand(arguments, store, scope=RUN, default="env_path", env=env) == first
    assert await env.read(first["file"]) == DECK


async def test_an_env_that_is_gone_needs_no_cleaning(store: ArtifactStore, deck: str) -> None:
    """The tool may have ended it, and the call ends well."""
    async with (
        open_env(LocalConfig()) as env,
        expanded({"file": deck}, store, scope=RUN, default="env_path", env=env) as ready,
    ):
        await env.aclose()
        with pytest.raises(EnvClosedError):
            await env.read(ready["file"])


async def test_C081_within_a_command_a_handle_becomes_a_path_that_is_one_word(
    store: ArtifactStore, env: RunEnv
) -> None:
    """Whatever the artifact is called, nothing of its name is run."""
    evil = await store.put(b"evil\n", filename="a b;touch pwned $(touch pwned) 'ü.txt", scope=RUN)
    good = await store.put(b"good\n", filename="good.txt", scope=RUN)
    command = f"cat {evil} {good.upper()} && ls"
    async with expanded({"command": command}, store, scope=RUN, default="env_path", env=env) as ready:
        words = ready["command"].split()
        assert words[0] == "cat"
        assert words[2].endswith("/good.txt")
        result = await env.exec(ready["command"])
        assert result.stdout.text == "evil\ngood\n"
        assert words[1].endswith("/a_b_touch_pwned___touch_pwned____.txt")


async def test_a_look_alike_in_a_command_stays(store: ArtifactStore, deck: str, env: RunEnv) -> None:
    """And so does everything else in it."""
    command = f"echo x{deck} runenv+file://no '$HOME'"
    async with expanded({"command": command}, store, scope=RUN, default="env_path", env=env) as ready:
        assert ready == {"command": command}


async def test_a_damaged_artifact_is_no_file(tmp_path: Path) -> None:
    """The hash is checked on the way, and what fails it does not stay."""
    async with ArtifactStore.open(f"file://{tmp_path}/store") as store:
        handle = await store.put(b"x" * 1000, filename="x.bin", scope=RUN)
        content = store.path(await store.stat(handle, scope=RUN))
        assert content is not None
        Path(content).chmod(0o600)
        Path(content).write_bytes(b"y" * 1000)
        copies = tmp_path / "copies"
        copies.mkdir()
        with pytest.raises(StoreError, match="damaged"):
            await expand({"a": handle}, store, scope=RUN, default="host_path", folder=copies)
        assert list(copies.iterdir()) == []


# -- what a caller does wrong


@pytest.mark.parametrize(
    ("forms", "says"),
    [
        ({"a": "base46"}, "did you mean 'base64'"),
        ({"a": "env_path"}, "give `env`"),
        ({"a": "host_path"}, "give `folder`, or use `expanded`"),
    ],
)
async def test_a_form_that_cannot_be_is_a_configuration_error(store: ArtifactStore, forms: Any, says: str) -> None:  # noqa: ANN401
    """At every call, whether there is a handle in it or not."""
    with pytest.raises(ConfigError, match=says):
        await expand({}, store, scope=RUN, forms=forms)


async def test_a_text_that_the_placeholder_was_cut_from_stays(store: ArtifactStore, deck: str) -> None:
    """A placeholder in the middle of a text is a handle in a longer text."""
    text = f"I made {placeholder(await store.stat(deck, scope=RUN))} for you"
    assert await expand({"a": text}, store, scope=RUN) == {"a": text}
