"""The artifact tools: between the files of an env and the store, by handle."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, cast

import pytest
from PIL import Image

from runenv.artifacts import ArtifactStore, Quotas, Scope
from runenv.artifacts.retrieval import Retrieval
from runenv.errors import ConfigError, StoreError
from runenv.testing.scripted import ScriptedEnv
from runenv.tools.artifact import make_artifact_list, make_artifact_load, make_artifact_read, make_artifact_save
from runenv.tools.paths import PathRules
from runenv.tools.tool import Context
from runenv.types import FilePart, ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio

SCOPE = Scope(run="r", user="u")
UNKNOWN = "runenv+file://00000000-0000-4000-8000-000000000000"


class Tools:
    """The four tools over one env and one store."""

    def __init__(
        self, env: RunEnv, store: ArtifactStore, *, scope: Scope = SCOPE, paths: PathRules | None = None
    ) -> None:
        names = frozenset({"artifact_list", "file_read"})
        retrieval = Retrieval(store, scope=scope)
        rules = paths or PathRules()
        context = Context(env=env, store=store, scope=scope, paths=rules, tools=names, retrieval=retrieval)
        self.save = make_artifact_save(context)
        self.load = make_artifact_load(context)
        self.list = make_artifact_list(context)
        self.read = make_artifact_read(context)


@pytest.fixture
def tools(env: RunEnv, store: ArtifactStore) -> Tools:
    """The tools of an agent."""
    return Tools(env, store)


def file_of(result: ToolResult) -> FilePart:
    """The artifact that a result shows."""
    assert not result.is_error
    (part,) = (part for part in result.parts if isinstance(part, FilePart))
    return part


async def test_A9_a_file_goes_into_the_store_and_out_of_it(env: RunEnv, store: ArtifactStore, tools: Tools) -> None:
    """By handle, byte by byte, without passing through the model."""
    data = bytes(range(256)) * 5000
    await env.write("out/deck.bin", data)
    saved = file_of(await tools.save.call({"path": "out/deck.bin"}))
    assert (saved.filename, saved.size) == ("deck.bin", len(data))
    assert await store.get(saved.handle, scope=SCOPE) == data
    loaded = await tools.load.call({"reference": saved.handle, "path": "in/copy.bin"})
    assert loaded.text.startswith("'deck.bin' (1.2 MiB, application/octet-stream) is now the file 'in/copy.bin'.")
    assert "file_read" in loaded.text
    assert await env.read("in/copy.bin") == data


async def test_a_file_is_saved_under_another_name(env: RunEnv, tools: Tools) -> None:
    """The same one again is a new version, and each handle keeps its content."""
    await env.write("a.txt", b"one")
    first = await tools.save.call({"path": "a.txt", "name": "report.txt"})
    await env.write("a.txt", b"two")
    second = await tools.save.call({"path": "a.txt", "name": "report.txt"})
    assert file_of(first).filename == "report.txt"
    assert "version" not in first.text
    assert "Saved as 'report.txt' (version 1, 3 bytes, text/plain)." in second.text
    assert "one" in (await tools.read.call({"reference": file_of(first).handle})).text
    assert "two" in (await tools.read.call({"reference": "report.txt"})).text
    assert "one" in (await tools.read.call({"reference": "report.txt@0"})).text


async def test_a_folder_is_saved_as_an_archive_and_unpacked(env: RunEnv, tools: Tools) -> None:
    """What was left out is said."""
    await env.write("site/index.html", b"<html>")
    await env.write("site/css/a.css", b"b{}")
    assert (await env.exec(["mkfifo", "site/pipe"])).ok
    saved = await tools.save.call({"path": "site"})
    assert file_of(saved).filename == "site.tar"
    assert "It holds 2 files, 9 bytes. Left out: 1: 'pipe' (" in saved.text
    unpacked = await tools.load.call({"reference": "site.tar", "path": "copy", "unpack": True})
    assert unpacked.text == "'site.tar' is unpacked into the folder 'copy'. That is 2 files, 9 bytes."
    assert await env.read("copy/css/a.css") == b"b{}"
    assert (await tools.load.call({"reference": "site.tar", "unpack": True})).is_error


@pytest.mark.parametrize("path", ["missing.txt", "out/missing.txt"])
async def test_T1_a_file_that_is_not_there_is_an_answer(env: RunEnv, tools: Tools, path: str) -> None:
    """With similar names."""
    await env.write("missing.csv", b"")
    await env.write("out/missing.csv", b"")
    result = await tools.save.call({"path": path})
    assert result.is_error
    assert "missing.csv" in result.text


async def test_T1_a_name_that_is_refused_is_an_answer(env: RunEnv, tools: Tools) -> None:
    """A5's rules, in words."""
    await env.write("a", b"")
    for name in ("../a", "/a", "a\nb", "con\\x", "a" * 5000):
        assert (await tools.save.call({"path": "a", "name": name})).is_error


async def test_an_artifact_gets_a_place_of_its_own(env: RunEnv, store: ArtifactStore, tools: Tools) -> None:
    """Its name in the working folder, where nothing is replaced unless it was named."""
    handle = await store.put(b"new", filename="a.txt", scope=SCOPE)
    assert not (await tools.load.call({"reference": handle})).is_error
    assert await env.read("a.txt") == b"new"
    await env.write("a.txt", b"mine")
    result = await tools.load.call({"reference": handle})
    assert result.is_error
    assert "Give a path" in result.text
    assert await env.read("a.txt") == b"mine"
    await tools.load.call({"reference": handle, "path": "a.txt"})
    assert await env.read("a.txt") == b"new"
    await env.mkdir("sub")
    assert "'sub/a.txt'" in (await tools.load.call({"reference": handle, "path": "sub"})).text
    assert "'new/a.txt'" in (await tools.load.call({"reference": handle, "path": "new/"})).text
    refused = await tools.load.call({"reference": handle, "path": "new/a.txt/"})
    assert refused.is_error
    assert "ends with a slash" in refused.text
    assert await env.read("sub/a.txt") == await env.read("new/a.txt") == b"new"


@pytest.mark.parametrize("reference", [UNKNOWN, "no.txt", "no.txt@3", "s3://other/bucket", ""])
async def test_A4_an_artifact_that_is_not_there_is_an_answer(tools: Tools, reference: str) -> None:
    """Unknown, of another scope, or no reference at all."""
    assert (await tools.load.call({"reference": reference})).is_error
    assert (await tools.read.call({"reference": reference})).is_error


async def test_A4_a_foreign_artifact_reads_like_an_unknown_one(store: ArtifactStore, tools: Tools) -> None:
    """Nothing tells that it exists."""
    foreign = await store.put(b"x", filename="x", scope="other")
    texts = [(await tools.load.call({"reference": handle})).text.replace(handle, "H") for handle in (foreign, UNKNOWN)]
    assert texts[0] == texts[1]
    assert "artifact_list" in texts[0]
    assert foreign not in (await tools.list.call({})).text


async def test_what_is_no_archive_is_not_unpacked(store: ArtifactStore, tools: Tools) -> None:
    """It is said what it is."""
    await store.put(b"plain", filename="a.txt", scope=SCOPE)
    result = await tools.load.call({"reference": "a.txt", "path": "x", "unpack": True})
    assert result.is_error
    assert "text/plain, no tar archive" in result.text


async def test_artifacts_are_listed(store: ArtifactStore, tools: Tools) -> None:
    """The latest version of each name that the scope may see, and that there are more."""
    assert (await tools.list.call({})).text == "There are no artifacts."
    for name in ("a", "b", "b"):
        await store.put(name.encode(), filename=name, scope=SCOPE)
    await store.put(b"c", filename="user:c", scope=SCOPE)
    lines = (await tools.list.call({})).text.split("\n")
    assert [line.split('"')[1] for line in lines] == ["a", "b", "c"]
    assert lines[1].endswith("] version 1")
    assert lines[0].endswith("]")
    assert (await tools.list.call({"prefix": "b"})).text.count("\n") == 0
    assert (await tools.list.call({"prefix": "zz"})).text == "There are no artifacts whose name starts with 'zz'."
    assert "There are more. Give a prefix, or a larger limit" in (await tools.list.call({"limit": 2})).text


async def test_P2_long_texts_are_read_in_pages(store: ArtifactStore, tools: Tools) -> None:
    """With the arguments that its own hints name."""
    await store.put("\n".join(f"line {n}" for n in range(5000)).encode(), filename="log.txt", scope=SCOPE)
    first = (await tools.read.call({"reference": "log.txt"})).text
    assert "line 0\n" in first
    assert "go on with artifact_read and offset=" in first
    last = (await tools.read.call({"reference": "log.txt", "from_end": True, "limit": "2"})).text
    assert "line 4999" in last
    found = (await tools.read.call({"reference": "log.txt", "pattern": "line 4321", "context": 0})).text
    assert found.count("line 4") == 2  # the head repeats the pattern
    assert (await tools.read.call({"reference": "log.txt", "limit": 0})).is_error


async def test_T3_images_are_decoded_before_they_are_shown(store: ArtifactStore, tools: Tools) -> None:
    """A damaged one is a text, a large one is scaled; the handle stays."""
    buffer = io.BytesIO()
    Image.new("RGB", (3000, 20), "red").save(buffer, "PNG")
    handle = await store.put(buffer.getvalue(), filename="wide.png", scope=SCOPE)
    result = await tools.read.call({"reference": handle})
    (image,) = (part for part in result.parts if isinstance(part, ImagePart))
    assert Image.open(io.BytesIO(image.data)).size[0] == 2000
    assert image.handle == handle
    await store.put(buffer.getvalue()[:-40], filename="broken.png", scope=SCOPE)
    result = await tools.read.call({"reference": "broken.png"})
    assert all(isinstance(part, TextPart) for part in result.parts)
    assert "damaged" in result.text


async def test_rules_hold_for_both_ends(env: RunEnv, store: ArtifactStore) -> None:
    """Folders are not moved at all then, since what is in them cannot be judged."""
    tools = Tools(env, store, paths=PathRules(["open/**"]))
    await env.write("open/a", b"a")
    await env.write("closed/a", b"a")
    assert (await env.exec(["ln", "-s", "../closed", "open/out"])).ok
    assert file_of(await tools.save.call({"path": "open/a"})).filename == "a"
    for path in ("closed/a", "open/out/a", "open"):
        assert (await tools.save.call({"path": path})).is_error
    for place in ("b", "open/out", "open/out/b", None):
        assert (await tools.load.call({"reference": "a", "path": place})).is_error
    assert (await tools.load.call({"reference": "a", "path": "open/b", "unpack": True})).is_error
    assert not (await tools.load.call({"reference": "a", "path": "open/b"})).is_error


async def test_a_link_in_the_folder_for_an_artifact_is_judged(env: RunEnv, store: ArtifactStore) -> None:
    """Also when only the folder was named."""
    tools = Tools(env, store, paths=PathRules(["open/**"]))
    await store.put(b"new", filename="a", scope=SCOPE)
    await env.write("closed/a", b"old")
    await env.mkdir("open")
    assert (await env.exec(["ln", "-s", "../closed/a", "open/a"])).ok
    assert (await tools.load.call({"reference": "a", "path": "open"})).is_error
    assert await env.read("closed/a") == b"old"


async def test_a_full_store_is_an_answer() -> None:
    """The quota, in words."""
    async with (
        ArtifactStore.open("memory://", quotas=Quotas(max_artifact_bytes=3)) as store,
        ScriptedEnv(files={"a": "four"}) as env,
    ):
        result = await Tools(env, store).save.call({"path": "a"})
    assert result.is_error
    assert "3" in result.text


class Broken:
    """A store whose storage is away."""

    async def stat(self, handle: str, *, scope: object) -> object:
        raise StoreError(f"the bucket does not answer ({scope}, {handle})")

    find = stat


async def test_a_storage_that_is_away_is_an_answer() -> None:
    """The work goes on without it."""
    async with ScriptedEnv() as env:
        tools = Tools(env, cast("ArtifactStore", Broken()))
        for reference in (UNKNOWN, "name"):
            result = await tools.load.call({"reference": reference})
            assert result.is_error
            assert "go on without it" in result.text


def test_without_a_store_there_are_no_such_tools() -> None:
    """They are refused when they are made."""
    for make in (make_artifact_save, make_artifact_load, make_artifact_list, make_artifact_read):
        with pytest.raises(ConfigError, match="store"):
            make(Context(env=ScriptedEnv()))
