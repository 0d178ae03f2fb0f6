"""The README's code runs: every Python block, in order, in one folder with the files that the README shows."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mcp import Client

from tests.adapters.mcp_peers import stdio, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def blocks(language: str) -> Iterator[str]:
    """The fenced blocks of a language."""
    yield from re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.docker
def test_every_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks share their names, as a reader's session would; a failed assert in one is a wrong README."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODER_TOKEN", "not-a-secret")
    (agents,) = blocks("yaml")
    (tmp_path / "agents.yaml").write_text(agents)
    python = list(blocks("python"))
    assert len(python) >= 7
    names: dict[str, object] = {}
    with asyncio.Runner() as runner:
        for number, block in enumerate(python):
            code = compile(block, f"README block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)  # noqa: S307 - our own README
            if inspect.iscoroutine(running):
                runner.run(running)


@pytest.mark.docker
@pytest.mark.anyio
async def test_the_mcp_configuration_of_the_readme_works() -> None:
    """A client that is configured so starts the server and calls a tool."""
    (configuration,) = blocks("json")
    server = json.loads(configuration)["mcpServers"]["runenv"]
    assert server["command"] == "runenv"
    async with Client(stdio(*server["args"][1:])) as client:
        assert "exec" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("exec", {"command": "echo from the sandbox"})
        assert "from the sandbox" in text_of(result)


def test_the_limits_of_the_readme_are_those_of_the_code() -> None:
    """The table of defaults repeats what the configuration says."""
    from runenv import DockerConfig

    config = DockerConfig()
    assert config.timeout == 120
    assert config.max_output_bytes == 240_000
    assert config.max_text_chars == 30_000
    assert config.spill_quota_bytes == 256 << 20
    assert (config.memory_bytes, config.pids, config.cpus) == (1 << 30, 1024, 2)
    assert (config.network, config.user, config.workdir, config.pull_timeout) == (
        "none",
        "1000:1000",
        "/workspace",
        600,
    )
    for stated in (
        "120 s",
        "240,000",
        "30,000 characters",
        "256 MiB",
        "1 GiB, 1,024, 2",
        "1000:1000",
        "`/workspace`",
        "600 s",
    ):
        assert stated in README


def test_the_limits_of_artifacts_in_the_readme_are_those_of_the_code() -> None:
    """The same for stores, expansion, offloading and blobs."""
    from runenv.artifacts import (
        DEFAULT_TTL,
        MAX_GET_BYTES,
        READING_TOOLS,
        Quotas,
        arguments,
        content,
        names,
        offload,
        retrieval,
    )
    from runenv.artifacts.backends import backend
    from runenv.artifacts.inputs import saving

    metadata_bytes, around = content.MAX_METADATA_BYTES, retrieval.DEFAULT_CONTEXT

    def mib(size: int) -> str:
        return f"{size / 1024**2:g} MiB"

    assert DEFAULT_TTL == {"run": 24 * 3600, "session": None, "user": None}
    assert Quotas() == Quotas(max_artifact_bytes=None, max_bytes=None, max_count=None)
    assert "artifact_read" in READING_TOOLS
    assert backend.UNREFERENCED_SECONDS == 24 * 3600
    table = README.partition("## Limits and defaults")[2].partition("\n## ")[0]
    for stated in (
        "| of a run 24 h, of a session or a user no end |",
        f"| {names.MAX_NAME_BYTES} bytes, {names.MAX_SEGMENT_BYTES} between slashes; {metadata_bytes >> 10} KiB |",
        f"| `store.get` | {mib(MAX_GET_BYTES)} |",
        f"| each {mib(arguments.MAX_BYTES)}, all {mib(arguments.MAX_TOTAL_BYTES)}; as paths no limit |",
        f"| {offload.THRESHOLD_CHARS:,} characters, from reading tools {offload.EXEMPT_CHARS:,} |",
        f"| {offload.PREVIEW_CHARS:,} characters, half from each end |",
        f"| copies of longer ones in an env | {mib(offload.MAX_ENV_BYTES)}, oldest deleted first |",
        f"| {retrieval.ANSWER_CHARS:,} characters, {retrieval.DEFAULT_LIMIT:,} lines; {around} lines around a match |",
        f"| blobs of a message | {saving.MAX_BLOBS}, {mib(saving.MAX_BYTES)} |",
        "| marked by `prune`, removed by one 24 h later |",
    ):
        assert stated in table
