"""Streams of a link: who may become one, and what the one that was left still says."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv.errors import EnvLostError
from runenv.guest.frames import TOKEN_BYTES, Kind, Tag, Verb, encode, encode_fields
from runenv.guest.stream import LifeLine, Newcomer, Stream
from tests.guest.test_link import PATH, PATIENCE, connect, start

if TYPE_CHECKING:
    from runenv.guest.link import Link

pytestmark = pytest.mark.anyio

TOKEN = bytes(range(TOKEN_BYTES))
PROOF = encode(0, Kind.CONNECT, encode_fields([(Tag.TOKEN, TOKEN)]))


async def newcomer(link: Link) -> tuple[Newcomer, socket.socket]:
    """Return a connection that may become the link's stream, and the other end of it."""

    def welcome(transport: asyncio.Transport) -> None:
        stream = Stream(link)
        transport.set_protocol(stream)
        stream.connection_made(transport)

    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - the standard library has no keyword
    theirs.setblocking(False)  # noqa: FBT003 - as above
    made = Newcomer(TOKEN, welcome)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: made, ours)
    return made, theirs


async def cut(connection: socket.socket) -> None:
    """Return when the other end is closed; bytes that it had not read make that a reset."""
    with suppress(ConnectionResetError):
        assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""


async def test_who_has_the_token_is_the_links_stream() -> None:
    """However the proof is cut, and with the next frame at its heels: not a byte of that is lost."""
    link, _ = await connect()
    refusal = link.connect(b"/s", TOKEN)
    made, theirs = await newcomer(link)
    with theirs, anyio.fail_after(PATIENCE):
        theirs.send(PROOF[:7])
        await asyncio.sleep(0.01)
        assert not made.proved.done()
        answer = encode(1, Kind.RESULT)
        theirs.send(PROOF[7:] + answer[:5])
        assert await made.proved
        assert refusal.cancelled()
        call = link.call(Verb.STAT, PATH)
        assert call.number == 1
        theirs.send(answer[5:])
        assert await call.result() == {}
        made.abort()
        assert not link.has_ended, "a welcome guest is not sent away"
        await link.aclose()


@given(junk=st.binary(min_size=len(PROOF), max_size=2 * len(PROOF)).filter(lambda junk: not junk.startswith(PROOF)))
def test_who_has_not_is_sent_away(junk: bytes) -> None:
    """Whatever it says; the link hears nothing of it."""

    async def check() -> None:
        link, wire = await connect()
        made, theirs = await newcomer(link)
        with theirs:
            theirs.send(junk)
            with anyio.fail_after(PATIENCE):
                assert not await made.proved
                await cut(theirs)
        assert not link.has_ended
        assert not wire.aborted

    asyncio.run(check())


@pytest.mark.parametrize("said", [b"", PROOF[:-1]])
async def test_who_leaves_early_has_proved_nothing(said: bytes) -> None:
    """Nothing, or not all of it."""
    link, _ = await connect()
    made, theirs = await newcomer(link)
    theirs.send(said)
    theirs.close()
    with anyio.fail_after(PATIENCE):
        assert not await made.proved


async def test_who_says_nothing_can_be_sent_away() -> None:
    """By whoever does not want to wait longer."""
    link, _ = await connect()
    made, theirs = await newcomer(link)
    made.abort()
    with theirs, anyio.fail_after(PATIENCE):
        assert not await made.proved
        await cut(theirs)


async def test_the_end_of_a_life_line_ends_the_link() -> None:
    """With the reason that its carrier knows, else with the one that the env finds; the other stream is cut."""

    async def explain() -> str:
        return "exit code 3"

    for error, reason in ((None, "the guest ended (exit code 3)"), (ConnectionError("it was killed"), "it was killed")):
        link, wire = await connect(explain=explain)
        waiter = await start(link.call(Verb.EXEC, []).result())
        LifeLine(link).connection_lost(error)
        with pytest.raises(EnvLostError) as caught:
            await waiter
        assert reason in str(caught.value)
        assert wire.aborted


async def test_a_guest_that_speaks_over_its_life_line_is_given_up() -> None:
    """It has nothing to say there."""
    link, wire = await connect()
    LifeLine(link).data_received(b"x")
    assert "broke the protocol" in str(await link.ended())
    assert wire.aborted


async def test_the_end_of_a_life_line_after_the_close_is_no_loss() -> None:
    """The guest ends on goodbye, and its first stream with it."""
    link, _ = await connect()
    await link.aclose()
    LifeLine(link).connection_lost(None)
    assert "is closed" in str(link.error())
