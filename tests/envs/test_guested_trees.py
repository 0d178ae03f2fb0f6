"""Tree streams against a scripted guest: what an honest one cannot be made to send or to say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.env import TreeStreams
from runenv.envs.guested import trees
from runenv.errors import EnvLostError
from runenv.guest.frames import Kind, Tag, Verb, encode, encode_fields
from tests.envs.test_guested import ScriptedEnv, result
from tests.envs.transfer.trees import END, entry, link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envs.test_guested import Script

pytestmark = pytest.mark.anyio

PATIENCE = 10.0
COUNTED = ((Tag.FILES, 1), (Tag.TOTAL, 1))


async def whole() -> AsyncIterator[bytes]:
    """Stream an archive of one file."""
    yield entry("f", content=b"x") + END


async def read(env: ScriptedEnv) -> bytes:
    """Read a whole tree."""
    async with env.open_read_tree("t") as tar:
        return b"".join([piece async for piece in tar])


async def test_it_offers_tree_streams() -> None:
    """Whoever asks for the protocol gets it."""
    assert isinstance(ScriptedEnv(), TreeStreams)


async def test_a_hostile_tree_comes_out_harmless() -> None:
    """What the guest refused and what is refused here are one account; counts are ours, not the guest's."""
    stream = entry("../up", content=b"bad") + link("out", "/etc") + entry("good", content=b"good") + END
    answer = result((Tag.FILES, 99), (Tag.TOTAL, 99), (Tag.REFUSED, b"fifo\0it is a FIFO"), (Tag.REFUSED_COUNT, 5))
    async with ScriptedEnv(TREE_GET=[(Kind.DATA, stream), answer]) as env, env.open_read_tree("t") as tar:
        assert b"".join([piece async for piece in tar]).startswith(b"good\0")
        assert [refused.path for refused in tar.result.refused] == ["fifo", "../up", "out"]
        assert (tar.result.files, tar.result.bytes, tar.result.refused_count) == (1, 4, 7)
        with pytest.raises(StopAsyncIteration):
            await anext(aiter(tar))


async def test_a_tree_that_is_cut_short_is_an_error() -> None:
    """It never looks like a whole one."""
    for stream in (entry("f", content=b"x"), entry("f", content=b"x") + b"noise" * 200):
        async with ScriptedEnv(TREE_GET=[(Kind.DATA, stream), result(*COUNTED)]) as env:
            with anyio.fail_after(PATIENCE), pytest.raises(OSError, match="the stream of the tree"):
                await read(env)


@pytest.mark.parametrize(
    "scripts",
    [
        {"TREE_GET": [(Kind.DATA, entry("f") + END), result((Tag.REFUSED_COUNT, -1))]},
        {"TREE_PUT": [result()]},
        {"TREE_PUT": [result((Tag.FILES, 2), (Tag.TOTAL, 1))]},
        {"TREE_PUT": [result((Tag.FILES, 1), (Tag.TOTAL, 2))]},
        {"TREE_PUT": [result(*COUNTED, (Tag.REFUSED, b"x\0"), (Tag.REFUSED_COUNT, 0))]},
    ],
    ids=["refusals of a tree", "no counts", "more files than sent", "more bytes than sent", "fewer than listed"],
)
async def test_an_account_that_cannot_be_right_loses_the_env(scripts: dict[str, Script]) -> None:
    """It is never passed on as a result."""
    async with ScriptedEnv(**scripts) as env:
        with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="broke the protocol"):
            await (read(env) if "TREE_GET" in scripts else env.write_tree("t", whole()))


async def test_a_result_before_the_end_of_a_tree_loses_the_env() -> None:
    """A guest that did not want the rest did not unpack it."""

    async def stream() -> AsyncIterator[bytes]:
        yield entry("f", content=b"x" * 1_000_000)
        await asyncio.sleep(0)
        number = next(frame.call for frame in env.guest.frames if frame.kind is Kind.CALL)
        env.guest.link.data_received(encode(number, Kind.RESULT, encode_fields(COUNTED)))
        yield entry("g", content=b"x" * 1_000_000)

    async with ScriptedEnv() as env:
        with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="before it had a whole tree"):
            await env.write_tree("t", stream())


@pytest.mark.parametrize("verb", ["GET", "TREE_GET"])
async def test_a_lie_costs_only_the_env_that_told_it(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streaming from one env into another, the other one goes on."""
    monkeypatch.setattr(trees, "CANCEL_TIMEOUT", 0.01)  # this guest does not answer to that
    content = entry("f", content=b"x") + END
    lies: Script = [(Kind.DATA, content), result((Tag.TOTAL, 1), (Tag.REFUSED_COUNT, -1))]
    done = {"TREE_PUT": [result(*COUNTED)], "PUT": [result((Tag.TOTAL, len(content)))]}
    async with ScriptedEnv(**{verb: lies}) as liar, ScriptedEnv(**done) as honest:
        opened = liar.open_read("f") if verb == "GET" else liar.open_read_tree("t")
        with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="broke the protocol"):
            async with opened as chunks:
                await (honest.write("f", chunks) if verb == "GET" else honest.write_tree("t", chunks))
        await honest.write("f", content)


async def test_an_early_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller hears of its error when the guest has undone its part, or after a while from one that is silent."""
    answered = False

    async def answer() -> None:
        nonlocal answered
        while env.guest.frames[-1].kind is not Kind.CANCEL:  # noqa: ASYNC110 - a frame is waited for
            await asyncio.sleep(0)
        answered = True
        error = encode_fields([(Tag.ERRNO, 125), (Tag.PATH, b"t")])
        env.guest.link.data_received(encode(env.guest.frames[-1].call, Kind.ERROR, error))

    async def failing() -> AsyncIterator[bytes]:
        yield entry("f", content=b"x" * 1_000_000)
        raise ZeroDivisionError("mine")

    async with ScriptedEnv() as env, anyio.create_task_group() as group:
        group.start_soon(answer)
        with anyio.fail_after(PATIENCE), pytest.raises(ZeroDivisionError, match="mine"):
            await env.write_tree("t", failing())
        assert answered
        monkeypatch.setattr(trees, "CANCEL_TIMEOUT", 0.01)
        with anyio.fail_after(PATIENCE), pytest.raises(ZeroDivisionError, match="mine"):
            await env.write_tree("t", failing())


async def test_a_full_disk_ends_a_tree() -> None:
    """Nobody pulls the rest of the stream."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield entry("f", content=b"x" * 100_000)
            await asyncio.sleep(0)
            number = next((frame.call for frame in env.guest.frames if frame.kind is Kind.DATA), None)
            if number is not None:
                error = encode_fields([(Tag.ERRNO, 28), (Tag.PATH, b"t/f")])
                env.guest.link.data_received(encode(number, Kind.ERROR, error))

    async with ScriptedEnv() as env:
        with anyio.fail_after(PATIENCE), pytest.raises(OSError, match="No space left") as caught:
            await env.write_tree("t", endless())
        assert caught.value.filename == "t/f"
        assert env.guest.calls[0][0] is Verb.TREE_PUT
