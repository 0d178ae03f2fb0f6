"""The sync facade: wherever it is called from, however the caller is interrupted, and in forked children."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.errors import EnvClosedError, EnvError, EnvStartError
from runenv.sync import SyncRunEnv, open_env_sync
from runenv.testing.scripted import Call, ScriptedEnv, result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from blockbuster import BlockBuster

    from runenv.types import ExecResult

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def blocking_calls_are_meant(blocking_calls_fail: BlockBuster) -> Iterator[None]:
    """A sync call blocks the caller's event loop, by its nature."""
    blocking_calls_fail.deactivate()
    yield
    blocking_calls_fail.activate()


def loop_threads() -> list[str]:
    """Name the threads that run a background loop."""
    return [thread.name for thread in threading.enumerate() if thread.name == "runenv-loop"]


async def hang(_: Call) -> ExecResult:
    """Be a command that never ends."""
    await anyio.sleep_forever()
    raise AssertionError


# What it does.


def test_every_verb_works_without_an_event_loop(tmp_path: Path) -> None:
    """The same arguments, the same answers, and what is asynchronous elsewhere is plain here."""
    scripted = ScriptedEnv(files={"a": "hello"}).on("ls", "a\n")
    with SyncRunEnv(scripted) as env:
        assert (env.id, env.kind, env.workdir, env.describe()["kind"]) == (
            "scripted",
            "scripted",
            "/workspace",
            "scripted",
        )
        assert env.exec("ls", cwd="/", timeout=None).stdout.text == "a\n"
        assert env.read("a", offset=1, length=2) == b"el"
        env.write("b", b"1")
        env.write("b", iter([b"2", b"", b"3"]), append=True)
        env.write("c", [b"x"], mode=0o600)
        assert env.stat("c").mode & 0o777 == 0o600
        env.mkdir("d")
        env.rename("c", "d/c")
        assert [info.path for info in env.list()] == ["a", "b", "d"]
        env.remove("d", recursive=True)
        env.download(".", tmp_path / "out", exclude=["a"])
        env.upload(tmp_path / "out", "again")
        with env.open_read("again/b") as chunks:
            assert b"".join(chunks) == b"123"
    assert scripted.files == {"/workspace/a": b"hello", "/workspace/b": b"123", "/workspace/again/b": b"123"}
    assert scripted.calls[0].arguments["timeout"] is None


def test_errors_of_the_env_reach_the_caller() -> None:
    """As they are, also those that are no Exception, and the env goes on."""
    scripted = ScriptedEnv().on("exit", SystemExit(3)).on("slow", TimeoutError("own")).on("ls", "")
    with SyncRunEnv(scripted) as env:
        with pytest.raises(FileNotFoundError, match="none"):
            env.read("none")
        with pytest.raises(SystemExit):
            env.exec("exit")
        with pytest.raises(TimeoutError, match="own"):
            env.exec("slow")
        assert env.exec("ls").ok


def test_a_stream_that_is_left_early_is_closed() -> None:
    """By an error of the reader, which goes on, or just so."""
    with SyncRunEnv(ScriptedEnv(files={"a": bytes(1_000_000)})) as env:
        with suppress(ZeroDivisionError), env.open_read("a") as chunks:
            assert len(next(chunks)) / 0
        with env.open_read("a") as chunks:
            assert len(next(chunks)) < 1_000_000
        with pytest.raises(FileNotFoundError), env.open_read("none") as chunks:
            next(chunks)


def test_an_iterable_that_fails_fails_the_write() -> None:
    """With its own error; text is no bytes."""

    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    with SyncRunEnv(ScriptedEnv()) as env:
        with pytest.raises(ZeroDivisionError):
            env.write("a", pieces())
        with pytest.raises(TypeError):
            env.write("a", 5)  # type: ignore[arg-type]
        assert env.list() == []


# Where it is called from.


def test_it_works_inside_a_running_event_loop() -> None:
    """In a coroutine, in a task, and in a thread of one; a context variable is seen."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def use() -> None:
        with SyncRunEnv(ScriptedEnv().on("show", lambda _: result(variable.get()))) as env:
            variable.set("set")
            assert env.exec("show").stdout.text == "set"
            assert (await asyncio.to_thread(env.exec, "show")).stdout.text == "set"
            variable.set("again")
            assert env.exec("show").stdout.text == "again"

    asyncio.run(use())


def test_it_survives_a_new_event_loop_for_every_call() -> None:
    """Opened in one, used in others, closed in another."""
    env = SyncRunEnv(ScriptedEnv().on("ls", ""))

    async def opened() -> None:
        assert env.__enter__() is env

    async def used() -> bool:
        return env.exec("ls").ok

    async def closed() -> None:
        env.close()

    asyncio.run(opened())
    assert asyncio.run(used())
    assert asyncio.run(used())
    asyncio.run(closed())
    assert loop_threads() == []


def test_an_error_that_is_a_timeout_passes_inside_a_running_loop() -> None:
    """It is not taken for the facade's own waiting."""

    async def use() -> None:
        with SyncRunEnv(ScriptedEnv().on("slow", TimeoutError("own"))) as env, pytest.raises(TimeoutError, match="own"):
            env.exec("slow")

    asyncio.run(use())


def test_many_threads_use_one_env_at_once() -> None:
    """Each call waits until all of them have come."""
    count = 16
    arrived = 0
    all_there = anyio.Event()

    async def meet(call: Call) -> ExecResult:
        nonlocal arrived
        arrived += 1
        if arrived == count:
            all_there.set()
        with anyio.fail_after(PATIENCE):
            await all_there.wait()
        return result(str(call.arguments["cwd"]))

    with SyncRunEnv(ScriptedEnv().on("meet", meet)) as env, ThreadPoolExecutor(count) as threads:
        calls = [threads.submit(env.exec, "meet", cwd=str(number)) for number in range(count)]
        texts = [call.result(PATIENCE).stdout.text for call in calls]
    assert texts == [str(number) for number in range(count)]


def test_all_envs_share_one_loop_that_ends_with_the_last() -> None:
    """And a later one gets a new loop."""
    for _ in range(2):
        with SyncRunEnv(ScriptedEnv()) as one:
            with SyncRunEnv(ScriptedEnv()) as other:
                assert len(loop_threads()) == 1
                assert one.list() == other.list() == []
            assert len(loop_threads()) == 1
        assert loop_threads() == []


def test_a_call_on_the_background_loop_is_an_error_and_not_a_deadlock() -> None:
    """Such as from a function that the env calls there."""
    caught: list[str] = []

    def again(_: Call) -> ExecResult:
        for use in (lambda: env.exec("ls"), env.close):
            with pytest.raises(EnvError) as error:
                use()
            caught.append(str(error.value))
        return result()

    with SyncRunEnv(ScriptedEnv().on("again", again)) as env:
        assert env.exec("again").ok
    assert caught == ["a sync env cannot be used on its own background loop, where it would wait for itself"] * 2


# Opening and closing.


def test_it_must_be_open() -> None:
    """Not before, not after, not twice; closing is harmless at any time."""
    env = SyncRunEnv(ScriptedEnv())
    with pytest.raises(EnvClosedError, match="not open"):
        env.read("a")
    with env:
        with pytest.raises(EnvClosedError, match="opened before"):
            env.__enter__()
        assert env.list() == []
    env.close()
    env.close()
    with pytest.raises(EnvClosedError, match="not open"):
        env.read("a")
    with pytest.raises(EnvClosedError, match="opened before"):
        env.__enter__()
    never = SyncRunEnv(ScriptedEnv())
    never.close()
    assert loop_threads() == []


def test_an_env_that_cannot_start_leaves_no_loop() -> None:
    """The error is the env's own, also when closing fails as well."""

    class Broken(ScriptedEnv):
        async def __aenter__(self) -> Self:
            raise EnvStartError("no such image")

        async def aclose(self) -> None:
            raise EnvError("nothing to close")

    with pytest.raises(EnvStartError, match="no such image"):
        SyncRunEnv(Broken()).__enter__()
    assert loop_threads() == []


def test_closing_ends_calls_of_other_threads() -> None:
    """They get EnvClosedError, and the loop does not wait for them for ever."""
    started = threading.Event()

    async def start(call: Call) -> ExecResult:
        started.set()
        return await hang(call)

    env = SyncRunEnv(ScriptedEnv().on("hang", start))
    with ThreadPoolExecutor() as threads, env:
        waiting = threads.submit(env.exec, "hang")
        assert started.wait(PATIENCE)
        closing = [threads.submit(env.close) for _ in range(3)]
        with pytest.raises(EnvClosedError, match="closed during the call"):
            waiting.result(PATIENCE)
        for closer in closing:
            closer.result(PATIENCE)
    assert loop_threads() == []


def test_an_error_of_closing_reaches_the_caller_and_the_loop_ends() -> None:
    """It is told once."""

    class Broken(ScriptedEnv):
        async def aclose(self) -> None:
            raise EnvError("the engine is gone")

    env = SyncRunEnv(Broken())
    with pytest.raises(EnvError, match="engine is gone"), env:
        pass
    env.close()
    assert loop_threads() == []


def test_open_env_sync_makes_the_env_of_a_configuration() -> None:
    """What is none is refused before anything starts."""
    with pytest.raises(EnvError.__mro__[1], match="known kind"):
        open_env_sync("docker")  # type: ignore[arg-type]
    assert loop_threads() == []


# Interruption, in processes of their own with real signals.


class Script:
    """A program in a process of its own, with what it needs imported."""

    HEAD = """
    import asyncio, os, signal, sys, threading
    import anyio
    from runenv.errors import EnvClosedError
    from runenv.sync import SyncRunEnv
    from runenv.testing.scripted import ScriptedEnv, result

    def say(*words):
        print(*words, flush=True)

    async def hang(call):
        say("started")
        try:
            await anyio.sleep_forever()
        finally:
            say("cancelled")

    env = SyncRunEnv(ScriptedEnv().on("hang", hang).on("ls", "listed"))
    """

    def __init__(self, body: str) -> None:
        code = textwrap.dedent(self.HEAD) + textwrap.dedent(body)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def expect(self, line: str) -> None:
        """Read the next line."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def rest(self) -> tuple[list[str], str, int]:
        """Wait for the end; return the lines left, what went to stderr, and the exit code."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        return out.split("\n")[:-1], err, self.process.returncode


def test_ctrl_c_cancels_the_work_and_leaves_the_env_usable() -> None:
    """The work has ended by the time the exception is seen."""
    script = Script("""
    with env:
        try:
            env.exec("hang")
        except KeyboardInterrupt:
            say("interrupted")
        say(env.exec("ls").stdout.text)
    """)
    script.expect("started")
    script.interrupt()
    assert script.rest() == (["cancelled", "interrupted", "listed"], "", 0)


def test_ctrl_c_that_is_not_caught_closes_and_ends_the_program() -> None:
    """With the usual traceback and nothing else on stderr."""
    script = Script("""
    with env:
        env.exec("hang")
    """)
    script.expect("started")
    script.interrupt()
    lines, err, code = script.rest()
    assert (lines, code) == (["cancelled"], -signal.SIGINT)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1


def test_ctrl_c_inside_a_running_loop_cancels_the_work() -> None:
    """The first one, though the loop that should react to it is blocked."""
    script = Script("""
    async def main():
        with env:
            try:
                env.exec("hang")
            except asyncio.CancelledError:
                say("task cancelled")
                raise
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        say("interrupted")
    """)
    script.expect("started")
    script.interrupt()
    assert script.rest() == (["cancelled", "task cancelled", "interrupted"], "", 0)


def test_a_second_ctrl_c_does_not_wait() -> None:
    """The first one waits for work that will not be cancelled."""
    script = Script("""
    async def stubborn(call):
        say("started")
        try:
            await anyio.sleep_forever()
        finally:
            say("cleaning")
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()

    env = SyncRunEnv(ScriptedEnv().on("stubborn", stubborn))
    env.__enter__()
    try:
        env.exec("stubborn")
    except KeyboardInterrupt:
        say("interrupted")
    os._exit(0)
    """)
    script.expect("started")
    script.interrupt()
    script.expect("cleaning")
    script.interrupt()
    assert script.rest() == (["interrupted"], "", 0)


def test_ctrl_c_during_close_lets_it_finish() -> None:
    """An env half closed would leave things behind."""
    script = Script("""
    class Slow(ScriptedEnv):
        async def aclose(self):
            say("closing")
            while not interrupted:
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            say("closed")

    interrupted = []
    def note(*_):
        interrupted.append(1)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        with SyncRunEnv(Slow()):
            pass
    except KeyboardInterrupt:
        say("interrupted", threading.active_count())
    """)
    script.expect("closing")
    script.interrupt()
    assert script.rest() == (["closed", "interrupted 1"], "", 0)


def test_ctrl_c_while_opening_ends_the_start() -> None:
    """And the env is closed, before the exception goes on."""
    script = Script("""
    class Slow(ScriptedEnv):
        async def __aenter__(self):
            await hang(None)
        async def aclose(self):
            say("closed")

    try:
        with SyncRunEnv(Slow()):
            pass
    except KeyboardInterrupt:
        say("interrupted", threading.active_count())
    """)
    script.expect("started")
    script.interrupt()
    assert script.rest() == (["cancelled", "closed", "interrupted 1"], "", 0)


def test_a_program_that_forgets_to_close_ends_quietly() -> None:
    """No hanging thread, nothing on stderr."""
    script = Script("""
    env.__enter__()
    say(env.exec("ls").stdout.text)
    """)
    assert script.rest() == (["listed"], "", 0)


def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    """The parent's env refuses there, closing it does nothing, and the parent goes on."""
    script = Script("""
    with env:
        say(env.exec("ls").stdout.text)
        child = os.fork()
        if not child:
            try:
                env.exec("ls")
            except EnvClosedError as error:
                say(error)
            env.close()
            with SyncRunEnv(ScriptedEnv().on("ls", "child")) as own:
                say(own.exec("ls").stdout.text)
            say(threading.active_count())
            os._exit(0)
        os.waitpid(child, 0)
        say(env.exec("ls").stdout.text)
    """)
    assert script.rest() == (
        [
            "listed",
            "this env was opened by the process that this one was forked from: open another one",
            "child",
            "1",
            "listed",
        ],
        "",
        0,
    )


def test_ctrl_c_kills_the_command_of_a_real_env() -> None:
    """The whole tree is gone when the exception is seen, and the env takes the next command."""
    script = Script("""
    from pathlib import Path
    from runenv.config import LocalConfig
    from runenv.sync import open_env_sync

    def sleepers():
        return [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\\0004321\\0" in content(path)]

    def content(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    with open_env_sync(LocalConfig()) as env:
        try:
            env.exec(f"sleep 4321 & setsid sleep 4321 & kill -INT {os.getpid()}; sleep 4321", timeout=None)
        except KeyboardInterrupt:
            say("interrupted", len(sleepers()))
        say(env.exec("echo usable").stdout.text.strip())
    """)
    assert script.rest() == (["interrupted 0", "usable"], "", 0)
