"""The models of the demo's third act: the way to a vendor's server, replies in its form, and the one that is played."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pytest

from runenv.cli.demo.agent import api
from runenv.cli.demo.agent.api import ModelError, choose
from runenv.cli.demo.agent.scripted import Script, asks, played, says
from runenv.cli.demo.agent.wires import ANTHROPIC, OPENAI
from runenv.errors import ConfigError
from tests.command_line import run
from tests.envs.engines import ROOT
from tests.model_server import Answer, ModelServer, Post

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

PICTURE: Final = ROOT / "tests" / "data" / "images" / "alpha.png"
KEYS: Final = {"ANTHROPIC_API_KEY": "key-a", "OPENAI_API_KEY": "key-o"}


@pytest.mark.parametrize(
    ("name", "environ", "says_what"),
    [
        ("claude-any", {}, r"^the model 'claude-any' needs a key: set ANTHROPIC_API_KEY, or leave out --model"),
        ("gpt-any", {"OPENAI_API_KEY": " "}, "set OPENAI_API_KEY"),
        ("llama", KEYS, "'llama' is of no vendor known here"),
        ("claudette", KEYS, "is of no vendor"),
        ("o3", KEYS | {"OPENAI_BASE_URL": "http://example.org/v1"}, "a key is sent over TLS only: OPENAI_BASE_URL"),
        ("gpt-any", KEYS | {"OPENAI_BASE_URL": "ftp://localhost"}, "must be an https URL"),
    ],
)
def test_a_model_that_cannot_be_asked_is_one_sentence(name: str, environ: dict[str, str], says_what: str) -> None:
    """Before anything is opened."""
    with pytest.raises(ConfigError, match=says_what):
        choose(name, environ)


def test_a_missing_key_ends_the_command_before_it_opens_an_env(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one line."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    done = run(capfdbinary, "demo", "--env", "local", "--model", "claude-any")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"runenv: the model 'claude-any' needs a key: set ANTHROPIC_API_KEY")


async def asked(answer: Callable[[Post], Answer], request: dict[str, Any]) -> tuple[dict[str, Any], list[Post]]:
    """The response to a request, and all that arrived."""
    with ModelServer(answer) as server:
        model = choose("claude-any", KEYS | {"ANTHROPIC_BASE_URL": server.url})
        return await model.send(request), server.posts


async def test_a_busy_server_is_asked_again() -> None:
    """After as long as it says."""
    answers = iter([Answer({"error": {"message": "slow down"}}, 429, (("Retry-After", "0"),)), Answer({"id": "1"})])
    response, posts = await asked(lambda _: next(answers), {"messages": []})
    assert (response, len(posts)) == ({"id": "1"}, 2)


async def test_a_server_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence with its own words."""
    monkeypatch.setattr(api, "WAITS", (0.0, 0.0, 0.0))
    with pytest.raises(ModelError, match=r"^Anthropic refuses the request \(529\): Overloaded$"):
        await asked(lambda _: Answer({"error": {"message": "Overloaded"}}, 529), {"messages": []})


@pytest.mark.parametrize(
    ("answer", "says_what"),
    [
        (Answer({"error": {"message": "invalid\nx-api-key"}}, 401), r"refuses the request \(401\): invalid x-api-key$"),
        (Answer(b"<html>no</html>", 404), r"\(404\): <html>no</html>$"),
        (Answer(b"<html>yes</html>"), "is no JSON object; is that the right server"),
        (Answer([1]), "is no JSON object"),
    ],
)
async def test_a_server_that_refuses_is_one_sentence(answer: Answer, says_what: str) -> None:
    """And is not asked again."""
    with pytest.raises(ModelError, match=says_what):
        await asked(lambda _: answer, {"messages": []})


async def test_a_server_that_is_not_there_is_one_sentence() -> None:
    """With its address."""
    with ModelServer(lambda _: Answer({})) as server:
        url = server.url
    with pytest.raises(ModelError, match=f"does not answer at '{url}/v1/messages': "):
        await choose("claude-any", KEYS | {"ANTHROPIC_BASE_URL": url}).send({"messages": []})


async def test_a_key_does_not_follow_a_redirect() -> None:
    """It is for one server."""
    with ModelServer(lambda _: Answer({})) as stranger:
        moved = Answer({}, 307, (("Location", stranger.url),))
        with pytest.raises(ModelError, match=r"\(307\)"):
            await asked(lambda _: moved, {"messages": []})
    assert stranger.posts == []


def test_a_response_that_is_not_complete_says_why() -> None:
    """In the vendor's word for it."""
    incomplete = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    assert OPENAI.reply(incomplete).cut == "max_output_tokens"
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
    reply = OPENAI.reply({"status": "completed", "output": [refused]})
    assert (reply.text, reply.cut) == ("I will not.", "")
    assert ANTHROPIC.reply({"content": [], "stop_reason": "refusal"}).cut == "refusal"


def request_with(**changed: object) -> dict[str, Any]:
    """The second request of a run whose first turn called `exec`."""
    result = {"type": "tool_result", "tool_use_id": "toolu_01_0", "content": [{"type": "text", "text": "ok"}]} | changed
    return {
        "model": "m",
        "tools": [{"name": "exec"}],
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": []},
            {"role": "user", "content": [result]},
        ],
    }


def image(data: bytes, media_type: str = "image/png") -> list[dict[str, Any]]:
    """The content of a result: one image."""
    encoded = base64.b64encode(data).decode()
    return [{"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}}]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tool_use_id": "another"}, "it answers the calls"),
        ({"content": []}, "a result is empty"),
        ({"content": [{"type": "text", "text": " \n"}]}, "a text is blank"),
        ({"content": [{"type": "document"}]}, "neither text nor image"),
        ({"content": image(b"\x89PNG\r\n\x1a\n")}, "cannot be decoded"),
        ({"content": image(PICTURE.read_bytes(), "image/jpeg")}, "is not 'image/jpeg', as it is said to be"),
        ({"content": [{"type": "image", "source": {"media_type": "image/png", "data": "no base64"}}]}, "not base64"),
    ],
)
async def test_a_played_model_is_as_strict_as_a_server(changed: dict[str, object], why: str) -> None:
    """Else the wires would not be tried by it."""

    def calls() -> Script:
        yield says("Go.", asks("exec", command="true"))
        yield says("Done.")

    model, good = played(calls()), played(calls())
    for each in (model, good):
        await each.send(request_with() | {"messages": [{"role": "user", "content": "go"}]})
    assert (await good.send(request_with()))["stop_reason"] == "end_turn"
    with pytest.raises(ModelError, match=f"the played model refuses the request: .*{why}"):
        await model.send(request_with(**changed))
