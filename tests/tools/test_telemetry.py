"""What is told of calls of tools to those who run an agent: spans and log records, without secrets."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from runenv.config import LocalConfig
from runenv.env import Masks
from runenv.envs import open_env
from runenv.errors import EnvLostError
from runenv.testing.scripted import ScriptedEnv
from runenv.tools import telemetry as telemetry_module
from runenv.tools import toolset
from runenv.tools.telemetry import Masker, prepare_spans
from runenv.types import ExecResult, ToolCall
from tests.tools.fakes import DescribedEnv, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Where the spans of this process end; a provider can be set once only."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    """The same, empty."""
    exporter.clear()
    yield exporter
    exporter.clear()


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    """The one span that ended."""
    (span,) = spans.get_finished_spans()
    return span


async def test_a_call_is_a_span(spans: InMemorySpanExporter) -> None:
    """Named as the conventions have it, within the caller's, with kinds and counts and no texts."""
    async with scripted("secret output") as env:
        with trace.get_tracer("test").start_as_current_span("agent") as parent:
            await toolset(env).call(ToolCall("call-7", "exec", {"command": "secret command"}))
    span = spans.get_finished_spans()[0]
    assert span.name == "execute_tool exec"
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "exec"
    assert attributes["gen_ai.tool.call.id"] == "call-7"
    assert attributes["runenv.env.kind"] == "scripted"
    assert attributes["runenv.tool.is_error"] is False
    assert cast("int", attributes["runenv.tool.chars"]) > 0
    assert "secret" not in span.to_json()
    assert span.status.status_code is StatusCode.UNSET


async def test_a_span_says_how_a_call_failed(spans: InMemorySpanExporter) -> None:
    """An error result and an exception, by its type."""
    async with scripted(EnvLostError("with a secret")) as env:
        tools = toolset(env)
        await tools.call("exec", {})
        assert (only(spans).attributes or {})["error.type"] == "tool_error"
        assert only(spans).status.status_code is StatusCode.ERROR
        spans.clear()
        with pytest.raises(EnvLostError):
            await tools["exec"].call({"command": "it"})
    assert (only(spans).attributes or {})["error.type"] == "EnvLostError"
    assert only(spans).events == ()
    assert "secret" not in only(spans).to_json()


async def test_a_cancelled_call_ends_its_span(spans: InMemorySpanExporter) -> None:
    """And the cancellation goes on."""

    async def wait(_: object) -> ExecResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with ScriptedEnv().on(lambda _: True, wait) as env:
        with anyio.move_on_after(0.01) as scope:
            await toolset(env).call("exec", {"command": "it"})
    assert scope.cancelled_caught
    assert (only(spans).attributes or {})["error.type"] == "CancelledError"


async def test_calls_work_where_opentelemetry_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional."""
    prepare_spans.cache_clear()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    try:
        async with scripted() as env:
            assert not (await toolset(env).call("exec", {"command": "it"})).is_error
            assert (await toolset(env).call("exec", {})).is_error
    finally:
        prepare_spans.cache_clear()


def test_importing_the_tools_loads_nothing_optional() -> None:
    """Neither OpenTelemetry nor Pillow nor the storage library; they come with the first use."""
    program = "import sys, runenv.tools; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"opentelemetry", "PIL", "obstore", "pypdfium2", "docker"}


async def test_a_call_is_a_log_record(caplog: pytest.LogCaptureFixture) -> None:
    """When debugging with the arguments, cut and masked; counts of the answer, which is not in it."""
    caplog.set_level(logging.DEBUG, telemetry_module.__name__)
    async with DescribedEnv(environment=["DB"]).on(lambda _: True, "the answer") as env:
        tools = toolset(env, secrets=["hunter2"])
        command = f"DB=postgres://x; login hunter2 --password pw1; curl -H 'Authorization: Bearer abc' {'y' * 500}"
        await tools.call(ToolCall("call-9", "exec", {"command": command}))
        await tools.call("exec", {"api_key": "abc", "nested": {"token": ["abc"]}})
    first, second = (cast("Any", record) for record in caplog.records)
    assert (first.tool, first.call_id, first.env_id, first.outcome) == ("exec", "call-9", "scripted", "done")
    assert (first.is_error, first.images) == (False, 0)
    assert first.chars > 0
    shown = first.tool_arguments["command"]
    assert shown.startswith("DB=***; login *** --password ***; curl -H 'Authorization: ***'")
    assert shown.endswith(f"({len(command)} characters)")
    assert (second.outcome, second.tool_arguments) == ("error", {"api_key": "***", "nested": {"token": "***"}})
    assert "the answer" not in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_record_has_no_contents(caplog: pytest.LogCaptureFixture) -> None:
    """What a model writes is anybody's data: it is told only to whoever debugs."""
    caplog.set_level(logging.INFO, telemetry_module.__name__)
    async with scripted("the answer") as env:
        await toolset(env).call("exec", {"command": "echo Patient: Jane Doe"})
    (record,) = caplog.records
    assert "Jane" not in str(vars(record))
    assert "tool exec in scripted: done" in record.getMessage()


async def test_S5_values_of_variables_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    """The env hides them itself: wherever they are written, and however long the text is."""
    caplog.set_level(logging.DEBUG, telemetry_module.__name__)
    config = LocalConfig.model_validate({"environment": {"DSN": "sesame-open", "LONG": "sesame-open-wide", "CI": "1"}})
    async with open_env(config) as env:
        assert isinstance(env, Masks)
        assert env.mask("1 sesame-open-wide sesame-open") == "1 *** ***"
        await toolset(env).call("exec", {"command": f"true {'x' * 3995} sesame-open-wide"})
    assert "sesa" not in str(vars(caplog.records[0]))


async def test_a_failed_env_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """By the type of the error."""
    caplog.set_level(logging.WARNING, telemetry_module.__name__)
    async with scripted(EnvLostError("gone")) as env:
        with pytest.raises(EnvLostError):
            await toolset(env).call("exec", {"command": "it"})
    (record,) = (cast("Any", record) for record in caplog.records)
    assert (record.levelname, record.outcome) == ("WARNING", "EnvLostError")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export API_TOKEN=abc123", "export API_TOKEN=***"),
        ("export MY_API_KEY='a b c' next", "export MY_API_KEY=*** next"),
        ('{"password": "hunter2", "user": "x"}', '{"password": ***, "user": "x"}'),
        ("password: hunter2", "password: ***"),
        ("mysql --password hunter2 db", "mysql --password *** db"),
        ("mysql --password=hunter2 db", "mysql --password=*** db"),
        ("curl -H 'Authorization: Bearer abc.def'", "curl -H 'Authorization: ***'"),
        ("git clone https://me:pw@host/x", "git clone https://***@host/x"),
        ("use sk-abcdefghijklmnopqrstuvwx now", "use *** now"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "***"),
        ("CUSTOM = value; x", "CUSTOM = ***; x"),
        ("say named-secret twice: named-secret", "say *** twice: ***"),
        ("ls -la src/passes.py tokens/", "ls -la src/passes.py tokens/"),
        ("echo author: me, compass", "echo author: me, compass"),
        ("http://host:8080/path@2", "http://host:8080/path@2"),
    ],
)
def test_S5_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    """And what does not stays readable."""
    assert Masker(["CUSTOM"], ["named-secret"]).text(text) == shown


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.lists(st.integers(), max_size=3), max_size=5))
def test_S5_a_named_secret_is_nowhere(arguments: dict[str, object]) -> None:
    """At whatever depth, and next to whatever."""
    hidden = "\u2603hidden\u2603"
    spread = {f"{key}{hidden}": [value, {hidden: f"{value}{hidden}"}] for key, value in arguments.items()}
    assert hidden not in str(Masker(secrets=[hidden]).arguments(spread))


@pytest.mark.parametrize("text", ["a" * 10**6, "-a" * 10**5, "token" * 10**5, "://a:" * 10**5, "api_key = '" * 10**5])
def test_S5_masking_takes_bounded_time(text: str) -> None:
    """However long the argument is."""
    assert len(Masker(["A", "B"], ["c"]).text(text)) < 300


def test_S5_the_beginning_of_a_secret_is_not_shown() -> None:
    """Where a long argument is cut before it is looked at."""
    hidden = "0123456789" * 7
    assert "0" not in Masker(secrets=[hidden]).text(hidden * 100).partition("...")[0]
