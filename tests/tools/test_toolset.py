"""The tools of one agent: which it has, and what stands around each call of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from runenv.artifacts import Artifact, ArtifactStore, Quotas, Scope
from runenv.artifacts.handles import find
from runenv.artifacts.offload import Offloader
from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.errors import ConfigError, EnvLostError, StoreError, ToolError
from runenv.providers import openai_chat
from runenv.testing.scripted import ScriptedEnv, result
from runenv.tools import TOOLS, PathRules, Tool, toolset
from runenv.types import BadCall, ExecResult, FilePart, Output, TextPart, ToolCall, ToolDefinition, ToolResult
from tests.tools.fakes import SearchingEnv, scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runenv.env import RunEnv
    from runenv.tools import Toolset

pytestmark = pytest.mark.anyio

LONG = "".join(f"line {number}\n" for number in range(3000))


def names(tools: Toolset) -> tuple[str, ...]:
    """The tools in their order."""
    return tuple(tool.name for tool in tools)


# -- which tools


def test_T1_there_is_a_tool_for_each_need(store: ArtifactStore) -> None:
    """All of them with a store over an env that searches; without one or the other, those that are possible."""
    assert names(toolset(SearchingEnv(), store, scope="r")) == TOOLS
    assert set(TOOLS) == {
        *("exec", "file_read", "file_write", "file_edit", "file_list", "glob", "grep"),
        *("artifact_save", "artifact_load", "artifact_list", "artifact_read"),
    }
    assert names(toolset(SearchingEnv())) == TOOLS[:7]
    assert names(toolset(ScriptedEnv())) == TOOLS[:5]
    tools = toolset(ScriptedEnv())
    assert [definition.name for definition in tools.definitions] == list(TOOLS[:5])
    assert len(tools) == 5
    assert "exec" in tools
    assert "grep" not in tools
    assert tools["exec"].name == "exec"


def test_a_toolset_needs_an_open_env() -> None:
    """Nothing is known of one that is not: neither its shell nor its folder."""
    with pytest.raises(ConfigError, match="needs an open env"):
        toolset(open_env(LocalConfig()))


def test_tools_are_allowed_and_denied_by_name(store: ArtifactStore) -> None:
    """What this env cannot have is left out in silence, so that one list fits all envs; what is no tool is an error."""
    assert names(toolset(SearchingEnv(), allow=["grep", "exec", "artifact_read"])) == ("exec", "grep")
    assert names(toolset(SearchingEnv(), deny=["exec", "file_write", "file_edit"])) == (*TOOLS[1:2], *TOOLS[4:7])
    assert names(toolset(SearchingEnv(), allow=["exec", "grep"], deny=["exec"])) == ("grep",)
    assert names(toolset(SearchingEnv(), allow=[])) == ()
    for wrong in ({"allow": ["file_raed"]}, {"deny": ["shell"]}):
        with pytest.raises(ConfigError, match="there is no tool"):
            toolset(SearchingEnv(), **cast("Any", wrong))
    with pytest.raises(ConfigError, match="did you mean 'file_read'"):
        toolset(SearchingEnv(), allow=["file_raed"])
    with pytest.raises(ConfigError, match="needs a scope"):
        toolset(SearchingEnv(), store)


def test_a_description_names_only_tools_that_there_are(store: ArtifactStore) -> None:
    """For each tool alone, and for all but one."""
    for name in TOOLS:
        for tools in (
            toolset(SearchingEnv(), store, scope="r", allow=[name]),
            toolset(SearchingEnv(), store, scope="r", deny=[name]),
        ):
            missing = set(TOOLS) - set(names(tools)) - {"exec", "glob", "grep"}  # these are words, too
            for definition in tools.definitions:
                said = f"{definition.description} {definition.parameters}"
                assert not {other for other in missing if other in said}, definition.name


async def test_T1_an_unknown_tool_is_an_answer() -> None:
    """With the nearest one and all that there are; a denied one is unknown."""
    async with scripted() as env, toolset(env, deny=["file_edit"]) as tools:
        for name in ("Exec", "file_edit", "nothing-like-it", ""):
            answer = await tools.call(name, {})
            assert answer.is_error
            assert "There are: exec, file_read, file_write, file_list." in answer.text
        assert "Did you mean exec?" in (await tools.call("Exec")).text
        with pytest.raises(KeyError):
            tools["file_edit"]


async def test_a_call_that_could_not_be_read_does_nothing() -> None:
    """W1: it is answered with what was wrong, also for a tool that needs no arguments."""
    (call,) = openai_chat.tool_calls({"tool_calls": [{"id": "c", "function": {"name": "exec", "arguments": "{"}}]})
    async with scripted() as env, toolset(env) as tools:
        answer = await tools.call(call)
        assert env.calls == []
    assert isinstance(call, BadCall)
    assert answer == call.answer


def go_on(*_: object) -> None:
    """A hook that changes nothing."""


def say_yes(*_: object) -> str:
    """A hook that gives what none may give."""
    return "yes"


def nested(depth: int) -> object:
    """Lists in one another."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        *("\ud800", "x" * 5_000, "x" * 2_000_000, "{" + "a," * 100_000 + "}", ["x" * 200_000], ["x"] * 10_000),
        *(10**5_000, -(10**17), 1e308, nested(700), nested(50_000), {"a": nested(700)}),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
async def test_T1_whatever_the_arguments_are_a_call_is_answered(value: object, store: ArtifactStore) -> None:
    """In every place of every tool, in short words, with hooks and records that look at them."""
    async with open_env(LocalConfig()) as env, toolset(env, store, scope="r", before_call=go_on) as tools:
        for tool in tools:
            for name in cast("dict[str, object]", tool.definition.parameters["properties"]):
                answer = await tools.call(tool.name, {name: value, **({} if name == "path" else {"path": "a"})})
                assert len(answer.text) < 10_000
            answer = await tools.call(tool.name, {f"unknown {number}": value for number in range(1_000)})
            assert (answer.is_error, len(answer.text) < 10_000) == (True, True)
        answer = await tools.call("file_read", cast("Any", value))
        assert answer.is_error


def greeter(greet: Callable[[Mapping[str, object]], ToolResult]) -> Tool:
    """A tool of a framework's own."""

    async def handle(arguments: Mapping[str, object]) -> ToolResult:
        return greet(arguments)

    return Tool(ToolDefinition("greet", "Greet.", {"type": "object"}), handle)


async def test_own_tools_are_called_like_the_others(store: ArtifactStore) -> None:
    """Long texts are offloaded, hooks called, errors answered."""
    seen: list[str] = []
    errors = {"tool": ToolError("Nobody is there."), "file": FileNotFoundError(2, "none", "x")}

    def greet(arguments: Mapping[str, object]) -> ToolResult:
        if "error" in arguments:
            raise errors[str(arguments["error"])]
        return ToolResult((TextPart(LONG if "long" in arguments else "Hello."),))

    def before(name: str, _: Mapping[str, object]) -> None:
        seen.append(name)

    async with (
        scripted() as env,
        toolset(env, store, scope="r", allow=["greet", "exec"], own=[greeter(greet)], before_call=before) as tools,
    ):
        assert names(tools) == ("exec", "greet")
        assert (await tools.call("greet", {})).text == "Hello."
        assert len((await tools.call("greet", {"long": True})).text) < len(LONG)
        assert (await tools.call("greet", {"error": "tool"})).text == "Nobody is there."
        missing = await tools.call("greet", {"error": "file"})
    assert (missing.is_error, "There is no 'x'" in missing.text) == (True, True)
    assert seen == ["greet"] * 4


def test_an_own_tool_has_a_name_of_its_own() -> None:
    """It replaces none of ours by accident; it can be denied like them."""
    tool = greeter(lambda _: ToolResult(()))
    with pytest.raises(ConfigError, match="two tools 'greet'"):
        toolset(SearchingEnv(), own=[tool, tool])
    assert "greet" not in toolset(SearchingEnv(), own=[tool], deny=["greet"])
    with pytest.raises(ConfigError, match="did you mean 'greet'"):
        toolset(SearchingEnv(), own=[tool], deny=["gret"])
    with pytest.raises(ConfigError, match=r"write \['exec'\]"):
        toolset(SearchingEnv(), allow="exec")


@pytest.mark.parametrize("hook", ["before_call", "after_call"])
async def test_a_hook_that_returns_nonsense_is_a_fault_of_the_program(hook: str) -> None:
    """Not of the model, which must not hear of it."""
    async with scripted() as env, toolset(env, **cast("Any", {hook: say_yes})) as tools:
        with pytest.raises(TypeError, match=f"{hook} returns"):
            await tools.call("exec", {"command": "true"})


def test_T1_the_rules_for_paths_are_told_beforehand() -> None:
    """A model that knows them wastes no call; the shell is not bound by them."""
    tools = toolset(SearchingEnv(), paths=PathRules(allow=["src"], deny=["*.key", ".env"]))
    told = {tool.name: "only src, never *.key, .env" in tool.definition.description for tool in tools}
    assert told == {name: name != "exec" for name in TOOLS[:7]}


async def test_a_call_is_made_by_name_or_as_a_model_asks(store: ArtifactStore) -> None:
    """Both give the same."""
    async with scripted() as env, toolset(env, store, scope="r") as tools:
        call = ToolCall("call-1", "exec", {"command": "it"})
        assert await tools.call(call) == await tools.call("exec", {"command": "it"})
        assert "'command' is missing" in (await tools.call("exec")).text


# -- hooks


async def test_hooks_see_and_change_a_call() -> None:
    """Both kinds, plain and async, for a model's call and a program's."""
    seen: list[object] = []

    def before(name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        seen.append((name, dict(arguments)))
        cast("dict[str, object]", arguments)["command"] = "spoilt"
        return {"command": "changed"}

    async def after(name: str, arguments: Mapping[str, object], answer: ToolResult) -> ToolResult:
        await anyio.lowlevel.checkpoint()
        seen.append((name, dict(arguments), answer.text))
        return ToolResult((TextPart("swapped"),))

    given = {"command": "given"}
    async with ScriptedEnv().on("changed", "ran") as env:
        tools = toolset(env, before_call=before, after_call=after)
        assert (await tools.call("exec", given)).text == "swapped"
        assert (await tools["exec"].call(given)).text == "swapped"
    assert given == {"command": "given"}
    assert seen[:2] == seen[2:]
    assert seen[0] == ("exec", {"command": "given"})
    assert cast("tuple[str, dict[str, object], str]", seen[1])[1] == {"command": "changed"}
    assert "ran" in cast("tuple[str, dict[str, object], str]", seen[1])[2]


async def test_a_hook_can_answer_itself() -> None:
    """The tool does not run; the other hook sees the answer."""
    own = ToolResult((TextPart("no need"),))
    seen: list[ToolResult] = []

    def after(_name: str, _arguments: Mapping[str, object], answer: ToolResult) -> None:
        seen.append(answer)

    async with ScriptedEnv() as env:
        tools = toolset(env, before_call=lambda _name, _arguments: own, after_call=after)
        assert await tools.call("exec", {"command": "it"}) is own
        assert env.commands == []
    assert seen == [own]


async def test_hooks_that_say_nothing_change_nothing() -> None:
    """None is go on."""
    async with scripted() as env:
        plain = await toolset(env).call("exec", {"command": "it"})
        hooked = toolset(env, before_call=lambda _n, _a: None, after_call=lambda _n, _a, _r: None)
        assert await hooked.call("exec", {"command": "it"}) == plain


async def test_a_hook_refuses_with_words_for_the_model() -> None:
    """`ToolError` is an answer, as everywhere; all else is a fault of the hook and propagates."""

    def refuse(name: str, _: Mapping[str, object]) -> None:
        raise ToolError("Ask a person first.") if name == "exec" else RuntimeError("a fault")

    async with scripted() as env:
        tools = toolset(env, before_call=refuse)
        answer = await tools.call("exec", {"command": "rm -rf /"})
        assert answer == ToolResult((TextPart("Ask a person first."),), is_error=True)
        with pytest.raises(RuntimeError, match="a fault"):
            await tools.call("file_list", {})
        assert env.commands == []


async def test_A7_artifacts_that_a_hook_puts_into_a_result_are_stored(store: ArtifactStore) -> None:
    """A7: the model is shown a part that stands for it."""

    def after(_name: str, _arguments: Mapping[str, object], answer: ToolResult) -> ToolResult:
        artifact = Artifact(b"bytes", "extra.bin")
        return ToolResult((*answer.parts, cast("Any", artifact)))

    async with scripted() as env:
        answer = await toolset(env, store, scope="r", after_call=after).call("exec", {"command": "it"})
        part = answer.parts[-1]
        assert isinstance(part, FilePart)
        assert await store.get(part.handle, scope="r") == b"bytes"
        async with ArtifactStore.open("memory://", quotas=Quotas(max_artifact_bytes=2)) as small:
            answer = await toolset(env, small, scope="r", after_call=after).call("exec", {"command": "it"})
        assert answer.is_error


@pytest.mark.parametrize("how", ["alone", "among parts", "in a result"])
async def test_A7_an_own_tool_may_return_an_artifact(store: ArtifactStore, how: str) -> None:
    """It becomes a part that stands for it; a program that calls the tool gets the same."""

    async def chart(_: Mapping[str, object]) -> object:
        artifact = Artifact(b"bytes", "chart.bin")
        parts = (TextPart("Here it is."), artifact)
        return {"alone": artifact, "among parts": parts, "in a result": ToolResult(cast("Any", parts))}[how]

    async with scripted() as env:
        tools = toolset(env, store, scope="r", own=[Tool(ToolDefinition("chart", "Draw.", {"type": "object"}), chart)])
        for answer in (await tools.call("chart", {}), await tools["chart"].call({})):
            part = answer.parts[-1]
            assert isinstance(part, FilePart)
            assert (part.filename, await store.get(part.handle, scope="r")) == ("chart.bin", b"bytes")


async def test_A7_artifacts_in_what_json_holds_become_placeholders(store: ArtifactStore) -> None:
    """A list or a dict is shown as JSON; without a store it is said what is missing."""

    async def charts(_: Mapping[str, object]) -> object:
        return {"ok": True, "files": [Artifact(b"1", "1.bin"), Artifact(b"2", "2.bin")]}

    own = [Tool(ToolDefinition("charts", "Draw.", {"type": "object"}), charts)]
    async with scripted() as env:
        shown = json.loads((await toolset(env, store, scope="r", own=own).call("charts", {})).text)
        contents = [await store.get(line, scope="r") for line in shown["files"]]
        with pytest.raises(TypeError, match=r"'charts' returned what is neither .* needs a toolset with a store"):
            await toolset(env, own=own).call("charts", {})
    assert (shown["ok"], contents) == (True, [b"1", b"2"])


async def test_A8_an_own_tool_gets_what_a_handle_stands_for(store: ArtifactStore) -> None:
    """In the form of each parameter, just before it runs: hooks and records keep the handle."""
    handle = await store.put(b"a,b\n", filename="table.csv", scope="r")
    before: list[object] = []
    got: list[Mapping[str, object]] = []

    async def upload(arguments: Mapping[str, Any]) -> str:
        got.append(dict(arguments))
        return (await env.read(arguments["path"])).decode()

    definition = ToolDefinition("upload", "Send.", {"type": "object"})
    own = [Tool(definition, upload, forms={"content": "bytes", "path": "env_path"})]
    arguments = {"content": f"`{handle}`", "path": handle, "note": handle}
    async with ScriptedEnv() as env:
        tools = toolset(env, store, scope="r", own=own, before_call=lambda _, given: before.append(dict(given)))
        answer = await tools.call("upload", arguments)
        assert not [path for path in env.files if path.endswith("table.csv")]
    assert answer.text == "a,b\n"
    assert (got[0]["content"], got[0]["note"]) == (b"a,b\n", handle)
    assert before == [arguments] == [{"content": f"`{handle}`", "path": handle, "note": handle}]


@pytest.mark.parametrize("which", ["unknown", "foreign", "expired"])
async def test_A8_an_own_tool_never_gets_a_dead_handle(store: ArtifactStore, which: str) -> None:
    """The model is told which there are, and the tool does not run."""
    live = await store.put(b"live", filename="live.csv", scope="r")
    dead = {
        "unknown": "runenv+file://00000000-0000-4000-8000-000000000000",
        "foreign": await store.put(b"foreign", filename="foreign.csv", scope="other"),
        "expired": await store.put(b"expired", filename="expired.csv", scope="r", ttl=1e-9),
    }[which]

    async def upload(_: Mapping[str, object]) -> str:
        pytest.fail("it ran")

    own = [Tool(ToolDefinition("upload", "Send.", {"type": "object"}), upload, forms={"content": "bytes"})]
    async with scripted() as env:
        answer = await toolset(env, store, scope="r", own=own).call("upload", {"content": dead})
        with pytest.raises(ConfigError, match="'upload' takes artifacts: give the toolset `store`"):
            toolset(env, own=own)
        wrong = [replace(own[0], forms=cast("Any", {"content": "byts"}))]
        with pytest.raises(ConfigError, match="did you mean 'bytes'"):
            toolset(env, store, scope="r", own=wrong)
    assert answer.is_error
    assert dead in answer.text
    assert live in answer.text
    assert "foreign.csv" not in answer.text


async def test_an_own_tool_may_return_plain_values() -> None:
    """A text, a part, or what JSON can hold."""
    values = iter(["text", TextPart("part"), ["a", 1, None]])

    async def give(_: Mapping[str, object]) -> object:
        return next(values)

    async with scripted() as env:
        tools = toolset(env, own=[Tool(ToolDefinition("give", "Give.", {"type": "object"}), give)])
        assert [(await tools.call("give", {})).text for _ in range(3)] == ["text", "part", '["a", 1, null]']


async def test_T1_a_lost_env_ends_a_call() -> None:
    """Through the toolset, too."""
    async with scripted(EnvLostError("gone")) as env:
        with pytest.raises(EnvLostError):
            await toolset(env).call("exec", {"command": "it"})


# -- offloading


async def test_P1_P4_a_long_result_is_offloaded_for_a_model_only(store: ArtifactStore) -> None:
    """A program that calls a tool gets all of it; the model can read on with what the result names."""
    async with scripted(LONG) as env:
        tools = toolset(env, store, scope="r")
        whole = await tools["exec"].call({"command": "it"})
        assert LONG in whole.text
        shown = await tools.call("exec", {"command": "it"})
        assert len(shown.text) < 4000
        assert shown.text.startswith("Exit code 0")
        assert "stdout:\nline 0\n" in shown.text
        assert shown.text.endswith("line 2999\n")
        (match,) = find(shown.text)
        found = await tools.call("artifact_read", {"reference": match.handle, "pattern": "line 1500"})
        assert "line 1500" in found.text
        assert (await toolset(env, store, scope="r", offload=False).call("exec", {"command": "it"})).text == whole.text
        assert (await toolset(env).call("exec", {"command": "it"})).text == whole.text


async def test_P1_what_was_offloaded_does_not_stay(store: ArtifactStore) -> None:
    """It is kept for a run's time, whoever's it is: nobody looks for it later, and a session has no end."""
    session = Scope(session="s")
    async with scripted(LONG) as env:
        await toolset(env, store, scope=session).call("exec", {"command": "it"})
    (record,) = [record async for record in store.list(session)]
    assert record.expires == record.created + 24 * 3600


async def test_P1_a_model_reads_on_by_the_path_too(env: RunEnv, store: ArtifactStore) -> None:
    """It is one that its file tools take."""
    tools = toolset(env, store, scope="r")
    shown = await tools.call("exec", {"command": "seq 1 5000"})
    path = next(word for word in shown.text.split() if "/.runenv/results/" in word)
    assert "4321" in (await tools.call("grep", {"pattern": "^4321$", "path": path})).text
    assert "4321" in (await tools.call("artifact_read", {"reference": path, "pattern": "4321"})).text


async def test_P1_output_that_is_in_a_file_already_is_not_copied(env: RunEnv, store: ArtifactStore) -> None:
    """The file with the whole stream is named; only the other, long stream is stored."""
    tools = toolset(env, store, scope="r")
    shown = await tools.call("exec", {"command": "seq 1 200000; seq 1 4000 >&2"})
    assert len(shown.text) < 10_000
    _, out, err = (part.text for part in shown.parts if isinstance(part, TextPart))
    assert "-stdout" in out
    assert not find(out)
    assert len(find(err)) == 1
    records = [record async for record in store.list("r")]
    assert [record.size for record in records] == [len("stderr:\n") + 18_893]
    path = next(word.rstrip(".]") for word in out.split() if word.endswith("-stdout"))
    assert "123456" in (await tools.call("grep", {"pattern": "^123456$", "path": path})).text


async def test_P1_a_hook_that_changes_the_text_takes_its_file_away(store: ArtifactStore) -> None:
    """What it put there is stored, not mistaken for the file."""
    spilled = Output(b"", LONG, truncated=True, total_bytes=10**6, spill_path="/spill/1", spilled_bytes=10**6)

    def after(_name: str, _arguments: Mapping[str, object], answer: ToolResult) -> ToolResult:
        return ToolResult((TextPart(f"{answer.text}!"),))

    async with scripted(ExecResult(0, stdout=spilled)) as env:
        plain = await toolset(env, store, scope="r").call("exec", {"command": "it"})
        assert not find(plain.text)
        changed = await toolset(env, store, scope="r", after_call=after).call("exec", {"command": "it"})
        assert len(find(changed.text)) == 1


async def test_P2_a_retrieval_tool_that_is_denied_is_not_named(store: ArtifactStore) -> None:
    """Nor are copies put where the model may not read."""
    async with scripted(LONG) as env:
        shown = await toolset(env, store, scope="r", deny=["artifact_read"]).call("exec", {"command": "it"})
        assert "artifact_read" not in shown.text
        assert "/.runenv/results/" in shown.text
        count = len(env.files)
        rules = PathRules(["src/**"])
        shown = await toolset(env, store, scope="r", paths=rules).call("exec", {"command": "it; again"})
        assert len(env.files) == count
        assert "artifact_read" in shown.text


async def test_an_offloader_of_ones_own_is_used(store: ArtifactStore) -> None:
    """For reading, too."""
    async with scripted("x" * 3000) as env:
        own = Offloader(store, scope="r", threshold=1000, preview=200)
        shown = await toolset(env, store, scope="r", offload=own).call("exec", {"command": "it"})
        assert len(shown.text) < 1000


async def test_P3_a_result_is_cut_when_it_cannot_be_stored() -> None:
    """And its error flag stays, whatever the store does."""
    async with ArtifactStore.open("memory://", quotas=Quotas(max_artifact_bytes=10)) as store, scripted(LONG) as env:
        tools = toolset(env, store, scope="r", paths=PathRules(["x"]), after_call=lambda _n, _a, r: _failed(r))
        shown = await tools.call("exec", {"command": "it"})
    assert shown.is_error
    assert len(shown.text) <= 10_000
    assert "could not be kept" in shown.text


def _failed(answer: ToolResult) -> ToolResult:
    return ToolResult(answer.parts, is_error=True)


# -- the end


async def test_closing_leaves_the_env_and_the_store_open(store: ArtifactStore) -> None:
    """They are their owner's; it does no harm to close twice."""
    async with open_env(LocalConfig()) as env:
        async with toolset(env, store, scope="r") as tools:
            await tools.call("exec", {"command": "true"})
        await tools.aclose()
        assert (await env.exec("true")).ok
        assert [record async for record in store.list("r")] == []


async def test_many_calls_run_at_once(env: RunEnv, store: ArtifactStore) -> None:
    """Nothing of one is in another."""
    tools = toolset(env, store, scope="r")
    answers: dict[int, str] = {}

    async def call(number: int) -> None:
        answers[number] = (await tools.call("exec", {"command": f"echo {number}-{number}"})).text

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(call, number)
    assert all(f"stdout:\n{number}-{number}\n" in text for number, text in answers.items())
    assert len(answers) == 30


async def test_a_store_that_fails_while_offloading_is_no_failure(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: the copy in the env is named then."""

    async def put(*_: object, **__: object) -> str:
        raise StoreError("away")

    monkeypatch.setattr(store, "put", put)
    async with scripted(result(LONG)) as env:
        shown = await toolset(env, store, scope="r").call("exec", {"command": "it"})
    assert "/.runenv/results/" in shown.text
    assert not shown.is_error
