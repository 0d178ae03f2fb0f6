"""What a model sees of a long result: both ends, how much there is, and a way to all of it for its own tools."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv import LocalConfig, open_env
from runenv.artifacts import retrieval
from runenv.artifacts.artifact import Artifact
from runenv.artifacts.backends.backend import Quotas
from runenv.artifacts.offload import EXEMPT_CHARS, READING_TOOLS, THRESHOLD_CHARS, Offloader
from runenv.artifacts.previews import NOTICE_CHARS, ends
from runenv.artifacts.retrieval import Retrieval
from runenv.artifacts.store import ArtifactStore
from runenv.errors import ConfigError, EnvLostError, LimitError, StoreError
from runenv.testing.scripted import ScriptedEnv
from runenv.tools import search
from runenv.tools import text as reading
from runenv.types import DEFAULT, FilePart, ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.testing.contract.store import Place
    from runenv.types import Default
    from tests.artifacts.servers import S3Server

pytestmark = pytest.mark.anyio

SCOPE: Final = "run-1"
HANDLE: Final = re.compile(r"runenv\+file://[0-9a-f-]{36}")
NOTICE: Final = re.compile(r"^\[\.\.\. cut here.* \.\.\.\]$", re.MULTILINE)
LOG: Final = "".join(f"line {number} of a long log\n" for number in range(5_000))
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(100_000)


@pytest.fixture
async def store(anywhere: Place) -> AsyncIterator[ArtifactStore]:
    """A store of each kind."""
    async with ArtifactStore.open(anywhere.url, options=anywhere.options) as opened:
        yield opened


async def handles(store: ArtifactStore) -> list[str]:
    """The handles of everything that is stored."""
    return [record.handle async for record in store.list(SCOPE)]


def notice(text: str) -> str:
    """The one notice in a shown text."""
    (found,) = NOTICE.findall(text)
    return str(found)


def own_length(said: str) -> int:
    """How long a notice is beside the path in it, which is as long as the place is deep."""
    return len(re.sub(r" is in \S+ ", " is in ", said))


# -- what is shown


async def test_a_result_within_the_threshold_is_left_alone(store: ArtifactStore) -> None:
    """To the character; nothing is stored."""
    result = ToolResult((TextPart("x" * 6_000), TextPart("y" * 4_000)))
    assert await Offloader(store, scope=SCOPE).offload(result, tool="exec") is result
    assert await handles(store) == []


async def test_a_long_result_is_shown_by_both_ends(store: ArtifactStore) -> None:
    """Counts, type, handle and tool are named between them, and the whole is in the store."""
    shown = await Offloader(store, scope=SCOPE).offload(LOG, tool="exec")
    head, said, tail = (part.strip("\n") for part in re.split(r"(\[\.\.\..*\.\.\.\])", shown.text))
    (handle,) = await handles(store)
    assert LOG.startswith(head + "\n")
    assert LOG.endswith("\n" + tail + "\n")
    assert 700 <= len(head) <= 1_000
    assert 700 <= len(tail) <= 1_000
    for part in (
        f"{len(LOG):,} characters",
        "5,000 lines",
        f"{len(LOG):,} bytes",
        "text/plain",
        handle,
        "artifact_read",
    ):
        assert part in said
    assert own_length(said) < NOTICE_CHARS
    assert (await store.get(handle, scope=SCOPE)).decode() == LOG


async def test_a_tool_that_is_not_there_is_not_named(store: ArtifactStore) -> None:
    """The handle is still there for other tools."""
    shown = await Offloader(store, scope=SCOPE, retrieval_tool=None).offload(LOG, tool="exec")
    assert "artifact_read" not in shown.text
    assert HANDLE.search(notice(shown.text))


@pytest.mark.parametrize("tool", sorted(READING_TOOLS))
async def test_C093_what_reads_is_not_offloaded(store: ArtifactStore, tool: str) -> None:
    """Or reading would go in circles."""
    result = ToolResult((TextPart(LOG[: EXEMPT_CHARS - 5]), TextPart(LOG[:5])))
    assert await Offloader(store, scope=SCOPE).offload(result, tool=tool) is result
    own = Offloader(store, scope=SCOPE, retrieval_tool="look", exempt=())
    assert await own.offload(result, tool="look") is result
    assert await own.offload(result, tool=tool) is not result


@pytest.mark.parametrize("tool", ["artifact_read", "file_read", "own"])
async def test_what_no_reading_tool_gives_is_offloaded_under_its_name_too(store: ArtifactStore, tool: str) -> None:
    """A hook may answer in a tool's place with megabytes."""
    text = LOG * 45
    shown = await Offloader(store, scope=SCOPE, exempt={"file_read", "own"}).offload(text, tool=tool)
    assert len(shown.text) <= THRESHOLD_CHARS
    assert (await store.get(HANDLE.findall(notice(shown.text))[0], scope=SCOPE)).decode() == text
    least = LOG[: EXEMPT_CHARS + 1]
    assert len((await Offloader(store, scope=SCOPE).offload(least, tool="file_read")).text) <= THRESHOLD_CHARS


def test_the_exemption_holds_all_that_reading_tools_give() -> None:
    """Their own bounds are below it."""
    own = (reading.ANSWER_CHARS, search.MAX_CHARS, retrieval.ANSWER_CHARS)
    assert max(own) < EXEMPT_CHARS


async def test_a_json_result_is_kept_as_json(store: ArtifactStore) -> None:
    """By what it is, not by its first character."""
    offloader = Offloader(store, scope=SCOPE)
    shown = await offloader.offload(json.dumps(list(range(10_000))), tool="query")
    assert "application/json" in notice(shown.text)
    shown = await offloader.offload("[" + "not json, " * 2_000 + "]", tool="query")
    assert "text/plain" in notice(shown.text)
    shown = await offloader.offload("[" * 200_000 + "]" * 200_000, tool="query")
    assert NOTICE.search(shown.text)
    kinds = sorted([record.media_type async for record in store.list(SCOPE)])
    assert kinds == ["application/json", "text/plain", "text/plain"]


async def test_C099_an_error_stays_an_error(store: ArtifactStore) -> None:
    """With the last line of its traceback in sight and every other part in place."""
    file = FilePart("runenv+file://00000000-0000-4000-8000-000000000000", "core", "application/x-core", 1, "00")
    image = ImagePart(PNG, "image/png")
    trace = "Traceback (most recent call last):\n" + "  File 'a.py', line 1\n" * 9_000 + "KeyError: 'the cause'\n"
    result = ToolResult((file, TextPart(trace), image), is_error=True)
    shown = await Offloader(store, scope=SCOPE).offload(result, tool="exec", call_id="call-1")
    assert shown.is_error
    assert (shown.parts[0], shown.parts[2]) == (file, image)
    assert shown.text.startswith("Traceback (most recent call last):")
    assert shown.text.endswith("KeyError: 'the cause'\n")
    assert result.parts[1] == TextPart(trace)


async def test_C100_a_program_gets_the_real_data(store: ArtifactStore) -> None:
    """Only `offload` cuts, and not in place: what the tool gave is whole."""
    result = ToolResult((TextPart(json.dumps(["x" * 100] * 2_000)),))
    shown = await Offloader(store, scope=SCOPE).offload(result, tool="query")
    assert len(shown.text) < THRESHOLD_CHARS
    assert json.loads(result.text) == ["x" * 100] * 2_000


async def test_C101_images_are_no_text(store: ArtifactStore) -> None:
    """An image of 100 KB and ten words: nothing is offloaded."""
    result = ToolResult((ImagePart(PNG, "image/png"), TextPart("ten words " * 5)))
    assert await Offloader(store, scope=SCOPE).offload(result, tool="file_show") is result


async def test_texts_are_stored_block_by_block(store: ArtifactStore) -> None:
    """The longest first; what fits beside them stays whole."""
    long, longer, image = "a\n" * 6_000, "b\n" * 7_000, ImagePart(PNG, "image/png")
    result = ToolResult((TextPart(long), image, TextPart("short"), TextPart(longer)))
    shown = await Offloader(store, scope=SCOPE).offload(result, tool="exec")
    assert [type(part) for part in shown.parts] == [TextPart, ImagePart, TextPart, TextPart]
    assert shown.parts[1:3] == (image, TextPart("short"))
    kept = [await store.get(handle, scope=SCOPE) for handle in await handles(store)]
    assert sorted(kept) == [long.encode(), longer.encode()]


@given(st.lists(st.integers(0, 30_000), max_size=40), st.integers(2_300, 12_000), st.booleans())
def test_what_is_shown_is_never_over_the_threshold(
    sizes: list[int],
    threshold: int,
    fails: bool,  # noqa: FBT001
) -> None:
    """However many blocks of whatever size, stored or not; and media are all there."""
    image = ImagePart(b"", "image/png")
    parts = tuple(part for size in sizes for part in (TextPart("word\n" * (size // 5)), image))

    async def run() -> ToolResult:
        quotas = Quotas(max_count=0) if fails else None
        async with ArtifactStore.open("memory://", quotas=quotas) as store:
            return await Offloader(store, scope=SCOPE, threshold=threshold).offload(ToolResult(parts), tool="exec")

    shown = anyio.run(run)
    assert sum(len(part.text) for part in shown.parts if isinstance(part, TextPart)) <= threshold
    assert shown.parts.count(image) == len(sizes)


@given(st.text(st.sampled_from("ab\n"), max_size=200), st.integers(2, 120))
def test_ends_are_the_ends(text: str, chars: int) -> None:
    """Nothing is shown twice, and nothing that is not there."""
    head, tail = ends(text, chars)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) <= max(len(text), 0)
    assert max(len(head), len(tail)) <= chars // 2 or (head, tail) == (text, "")


async def test_half_a_surrogate_pair_loses_nothing(store: ArtifactStore) -> None:
    """Text that is no Unicode is stored, readable, and what is shown can be sent."""
    offloader = Offloader(store, scope=SCOPE)
    shown = await offloader.offload("\ud83d" + "x" * 20_000, tool="exec")
    shown.text.encode()
    assert shown.text.startswith("\\ud83dxxx")
    assert HANDLE.search(notice(shown.text))


async def test_a_text_with_control_characters_can_be_read_again(store: ArtifactStore) -> None:
    """It is text because a tool gave it as text."""
    offloader = Offloader(store, scope=SCOPE)
    shown = await offloader.offload("\0\x01\x02\n" * 5_000, tool="exec")
    answer = await offloader.retrieve(HANDLE.findall(shown.text)[0], offset=5_000)
    assert "5000\t\0\x01\x02\n" in answer.text


# -- names and ids


@pytest.mark.parametrize("call_id", ["call_x__thought__" + "a" * 1_400, "a/../../b\n", "", "\ud800\0"])
async def test_C096_odd_ids_do_no_harm(store: ArtifactStore, call_id: str) -> None:
    """Names are our own, notices are short, and a second use of an id overwrites nothing."""
    offloader = Offloader(store, scope=SCOPE)
    for text in (LOG, LOG + "second"):
        shown = await offloader.offload(text, tool="exec", call_id=call_id)
        assert own_length(notice(shown.text)) < 300
        (handle,) = HANDLE.findall(shown.text)
        assert (await store.get(handle, scope=SCOPE)).decode() == text
    names = [record.name async for record in store.list(SCOPE)]
    assert len(names) == 2
    assert all(re.fullmatch(r"exec-[0-9a-f]{8}\.txt", name) for name in names)


@pytest.mark.parametrize("tool", ["", "../../x", "user:x", "mcp__a__" + "b" * 500, "名前", "CON", "\0"])
async def test_odd_names_of_tools_do_no_harm(store: ArtifactStore, tool: str) -> None:
    """They are stored under a plain name in the scope itself."""
    shown = await Offloader(store, scope=SCOPE).offload(LOG, tool=tool)
    record = await store.stat(HANDLE.findall(shown.text)[0], scope=SCOPE)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,60}\.txt", record.name)
    assert record.scope.run == SCOPE


async def test_C083_the_same_result_is_stored_once(store: ArtifactStore) -> None:
    """A hundred hits of a cache: one copy, one handle; deleted meanwhile, it is stored once more."""
    offloader = Offloader(store, scope=SCOPE)
    shown = {(await offloader.offload(LOG, tool="exec", call_id=str(number))).text for number in range(100)}
    assert len(shown) == 1
    (handle,) = await handles(store)
    await store.delete(handle, scope=SCOPE)
    again = await offloader.offload(LOG, tool="exec")
    assert HANDLE.findall(again.text) == await handles(store) != [handle]


@pytest.mark.parametrize(("ttl", "seconds"), [(DEFAULT, 24 * 3600), (60, 60), (None, None)])
async def test_what_is_offloaded_lives_as_long_as_was_said(
    store: ArtifactStore, ttl: Default | float | None, seconds: float | None
) -> None:
    """As the store does for the scope, unless given."""
    shown = await Offloader(store, scope=SCOPE, ttl=ttl).offload(LOG, tool="exec")
    record = await store.stat(HANDLE.findall(notice(shown.text))[0], scope=SCOPE)
    assert record.expires == (None if seconds is None else record.created + seconds)


# -- where it is


async def test_a_spill_file_is_named_and_nothing_copied(store: ArtifactStore) -> None:
    """What lies in the env already is where the model's tools are."""
    shown = await Offloader(store, scope=SCOPE).offload(LOG, tool="exec", env_path="/tmp/.runenv/3-stdout")
    assert "is in /tmp/.runenv/3-stdout ...]" in notice(shown.text)
    assert not HANDLE.search(shown.text)
    assert await handles(store) == []


@pytest.mark.parametrize("relative", [False, True])
async def test_a_file_store_names_the_path_as_configured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    relative: bool,  # noqa: FBT001
) -> None:
    """Relative stays relative, absolute stays absolute; both lead back."""
    monkeypatch.chdir(tmp_path)
    async with ArtifactStore.open("file:kept" if relative else f"file://{tmp_path}/kept") as store:
        offloader = Offloader(store, scope=SCOPE)
        shown = await offloader.offload(LOG, tool="exec")
        (path,) = re.findall(r" is in (\S+) \(handle runenv", notice(shown.text))
        assert path.startswith("kept/" if relative else f"{tmp_path}/kept/")
        assert (tmp_path / path).read_text(encoding="utf-8") == LOG
        fresh = Retrieval(store, scope=SCOPE)
        for reader in (offloader, fresh):
            answer = await reader.retrieve(path, offset=4_000, limit=1)
            assert "4000\tline 3999 of a long log\n" in answer.text


async def test_a_bucket_is_named_by_its_uri(seaweedfs: S3Server) -> None:
    """It leads back in any later process; another bucket and another prefix are refused before anything is asked."""
    url = f"s3://{seaweedfs.bucket}/runs/offload-{secrets.token_hex(4)}"
    async with ArtifactStore.open(url, options=seaweedfs.options) as store:
        shown = await Offloader(store, scope=SCOPE).offload(LOG, tool="exec")
        (uri,) = re.findall(r" is in (s3://\S+) \(handle runenv", notice(shown.text))
        assert uri.startswith(f"{url}/")
        fresh = Retrieval(store, scope=SCOPE)
        for reference in (uri, f"`{uri}`", f"'{uri}'\n", HANDLE.findall(shown.text)[0]):
            assert "4000\tline 3999 of" in (await fresh.retrieve(reference, offset=4_000, limit=1)).text
        key = uri.removeprefix(url)
        other = uri.replace(seaweedfs.bucket, "other", 1)
        for elsewhere in (other, f"s3://{seaweedfs.bucket}{key}", f"{url}2{key}", f"{url}/../x{key}"):
            answer = await fresh.retrieve(elsewhere)
            assert answer.is_error
            assert re.search("outside of the artifact store|climbs out", answer.text)
        assert "is not available" in (await fresh.retrieve(f"{uri}0")).text


@pytest.mark.parametrize("anywhere", ["memory"], indirect=True)
async def test_memory_has_a_handle_and_no_path(store: ArtifactStore) -> None:
    """No path is made up."""
    said = notice((await Offloader(store, scope=SCOPE).offload(LOG, tool="exec")).text)
    assert re.search(r" is behind the handle runenv\+file://\S+; ", said)


async def test_with_an_env_the_text_is_where_the_models_tools_look(store: ArtifactStore) -> None:
    """Commands of the env find it by the path that is named, and so does retrieval, in a later process too."""
    async with open_env(LocalConfig()) as env:
        offloader = Offloader(store, scope=SCOPE, env=env)
        shown = await offloader.offload(LOG, tool="fetch")
        (path,) = re.findall(r" is in (\S+) \(handle runenv", notice(shown.text))
        assert path.startswith(f"{env.workdir}/.runenv/results/fetch-")
        found = await env.exec(["grep", "-c", "line 49", path])
        assert found.stdout.text == f"{LOG.count('line 49')}\n"
        assert (await env.read(".runenv/results/.gitignore")) == b"*\n"
        assert "5,000 lines" in (await offloader.retrieve(f"`{path}`")).text
        assert "5,000 lines" in (await Offloader(store, scope=SCOPE, env=env).retrieve(path)).text


async def test_an_env_that_takes_no_copy_is_not_named(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store still has it."""

    async def write(*_: object, **__: object) -> None:
        raise EnvLostError("the env is gone")

    async with ScriptedEnv() as env:
        monkeypatch.setattr(env, "write", write)
        shown = await Offloader(store, scope=SCOPE, env=env).offload(LOG, tool="fetch")
    assert ".runenv" not in shown.text
    assert HANDLE.search(notice(shown.text))


async def test_copies_in_an_env_are_bounded(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; the store has them all."""
    monkeypatch.setattr("runenv.artifacts.offload.MAX_ENV_BYTES", 3 * len(LOG))
    async with ScriptedEnv() as env:
        offloader = Offloader(store, scope=SCOPE, env=env)
        for number in range(5):
            await offloader.offload(LOG[:-1] + str(number), tool="fetch")
        copies = [info.path for info in await env.list(".runenv/results") if info.path != ".gitignore"]
        texts = sorted([(await env.read(f".runenv/results/{name}"))[-1:] for name in copies])
    assert texts == [b"2", b"3", b"4"]
    assert len(await handles(store)) == 5


# -- failures


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), StoreError("down"), LimitError("full")])
async def test_C097_when_storing_fails_the_text_is_still_cut(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Both ends within the limit, and a sentence that the rest was not kept: never all, never nothing."""

    async def put(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(ArtifactStore, "put", put)
    text = "first line\n" + "x" * 1_000_000 + "\nlast line"
    shown = await Offloader(store, scope=SCOPE).offload(ToolResult((TextPart(text),), is_error=True), tool="exec")
    assert shown.is_error
    assert 8_000 < len(shown.text) <= THRESHOLD_CHARS
    assert shown.text.startswith("first line\n")
    assert shown.text.endswith("\nlast line")
    assert "could not be kept" in notice(shown.text)
    assert not HANDLE.search(shown.text)


async def test_when_only_the_store_fails_the_env_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One place is enough."""

    async def put(*_: object, **__: object) -> str:
        raise StoreError("down")

    monkeypatch.setattr(ArtifactStore, "put", put)
    async with ArtifactStore.open("memory://") as store, ScriptedEnv() as env:
        shown = await Offloader(store, scope=SCOPE, env=env).offload(LOG, tool="fetch")
        (path,) = re.findall(r" is in (\S+) \.\.\.\]", notice(shown.text))
        assert await env.read(path) == LOG.encode()


async def test_C102_a_full_store_drops_nothing_for_something_new() -> None:
    """Room for 3: the first stays readable, the last two are cut and said to be so; the disk is bounded."""
    async with ArtifactStore.open("memory://", quotas=Quotas(max_count=3)) as store:
        offloader = Offloader(store, scope=SCOPE)
        shown = [(await offloader.offload(f"{number}\n" + LOG, tool="exec")).text for number in range(5)]
        kept = [HANDLE.findall(text) for text in shown]
        assert [len(found) for found in kept] == [1, 1, 1, 0, 0]
        assert all("could not be kept" in text for text in shown[3:])
        assert "1\t0\n" in (await offloader.retrieve(kept[0][0])).text


async def test_C102_disk_use_is_capped(tmp_path: Path) -> None:
    """A thousand offloads into a store with a quota."""
    text = LOG[:12_000]
    async with ArtifactStore.open(f"file://{tmp_path}/kept", quotas=Quotas(max_bytes=10 * len(text))) as store:
        offloader = Offloader(store, scope=SCOPE)
        for number in range(1_000):
            shown = await offloader.offload(f"{number:04}" + text[4:], tool="exec")
            assert len(shown.text) <= THRESHOLD_CHARS
        used = sum(path.stat().st_size for path in (tmp_path / "kept").rglob("*") if path.is_file())
        assert len(await handles(store)) == 10
    assert used < 10 * len(text) + 1_000_000


async def test_C102_after_a_restart_of_memory_the_model_goes_on() -> None:
    """The handle of a store that is gone."""
    async with ArtifactStore.open("memory://") as store:
        shown = await Offloader(store, scope=SCOPE).offload(LOG, tool="exec")
    async with ArtifactStore.open("memory://") as store:
        answer = await Offloader(store, scope=SCOPE).retrieve(HANDLE.findall(shown.text)[0])
    assert answer.is_error
    assert "go on with the preview" in answer.text


def test_a_threshold_without_room_is_refused() -> None:
    """It says what would do."""
    store = ArtifactStore.open("memory://")
    with pytest.raises(ConfigError, match="at least 2,300"):
        Offloader(store, scope=SCOPE, threshold=2_000)


async def test_artifacts_of_other_tools_are_read_alike(store: ArtifactStore) -> None:
    """Retrieval serves every artifact of the scope."""
    handle = await store.put(Artifact(b"a,b\n1,2\n", "table.csv"), scope=SCOPE)
    assert "2\t1,2\n" in (await Offloader(store, scope=SCOPE).retrieve(handle)).text
