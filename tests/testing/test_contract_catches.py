"""The contract catches envs that are wrong: each of these breaks one promise, and a test of it fails over that."""

from __future__ import annotations

import dataclasses
import inspect
import uuid
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.config import LocalConfig
from runenv.envs.local import LocalEnv
from runenv.testing.contract import EnvContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runenv.types import ExecResult, FileInfo, Output, TransferResult

pytestmark = pytest.mark.anyio


CODES = "test_C003_an_exit_code_is_the_commands_own"
SIGNALS, KILL = "test_C023_a_signal_is_told_by_its_name", {"number": 9, "name": "SIGKILL"}


class _Contract(EnvContract):
    """The contract itself, to call its tests by hand; not collected."""

    is_isolated = False
    is_confined = True


class _Right(LocalEnv):
    """An env without a fault."""


def _replaced(change: Callable[[ExecResult], dict[str, Any]]) -> type[LocalEnv]:
    """Make an env whose results differ."""

    class Wrong(LocalEnv):
        async def exec(self, *arguments: Any, **options: Any) -> ExecResult:  # noqa: ANN401 - handed on
            result = await super().exec(*arguments, **options)
            return dataclasses.replace(result, **change(result))

    return Wrong


def _without_tail(output: Output) -> Output:
    return dataclasses.replace(output, text=output.text[:100], data=output.data[:-1])


class _HasASecondLimit(LocalEnv):
    async def exec(self, *arguments: Any, **options: Any) -> ExecResult:  # noqa: ANN401 - handed on
        options["timeout"] = 0.05
        return await super().exec(*arguments, **options)


class _AddsVariables(LocalEnv):
    async def exec(self, *arguments: Any, **options: Any) -> ExecResult:  # noqa: ANN401 - handed on
        self.seen = getattr(self, "seen", {}) | (options.pop("env", None) or {})
        return await super().exec(*arguments, env=self.seen, **options)


class _WritesInPlace(LocalEnv):
    async def write(self, path: str, data: Any, **options: Any) -> None:  # noqa: ANN401 - handed on
        if isinstance(data, bytes):
            half = len(data) // 2
            await super().write(path, data[:half], **options)
            await super().write(path, data[half:], append=True)
        else:
            async for piece in data:
                await super().write(path, piece, append=True)


class _LosesModes(LocalEnv):
    async def write(self, path: str, data: Any, **options: Any) -> None:  # noqa: ANN401 - handed on
        options.setdefault("mode", 0o644)
        await super().write(path, data, **options)


class _ListsUnsorted(LocalEnv):
    async def list(self, path: str = ".") -> list[FileInfo]:
        return list(reversed(await super().list(path)))


class _ReadsText(LocalEnv):
    async def read(self, path: str, **options: Any) -> bytes:  # noqa: ANN401 - handed on
        return (await super().read(path, **options)).decode(errors="replace").encode()


class _HidesRefusals(LocalEnv):
    async def download(self, *arguments: Any, **options: Any) -> TransferResult:  # noqa: ANN401 - handed on
        result = await super().download(*arguments, **options)
        return dataclasses.replace(result, refused=(), refused_count=0)


class _StaysOpen(LocalEnv):
    async def __aexit__(self, *_: object) -> None:
        """Forget to close."""


@pytest.mark.parametrize(
    ("wrong", "test", "arguments"),
    [
        (_replaced(lambda _: {"exit_code": 0}), CODES, {"code": 124}),
        (_replaced(lambda r: {"timed_out": r.exit_code == 124}), CODES, {"code": 124}),
        (_replaced(lambda r: {"exit_code": r.exit_code or 137}), SIGNALS, KILL),
        (_replaced(lambda _: {"background": False}), "test_E4_what_is_left_goes_on", {}),
        (_replaced(lambda r: {"stdout": _without_tail(r.stdout)}), "test_C012_head_and_tail_are_kept", {}),
        (_replaced(lambda r: {"stdout": r.stderr, "stderr": r.stdout}), "test_C019_no_terminal_changes_the_output", {}),
        (_HasASecondLimit, "test_E6_the_timeout_given_is_the_only_one", {}),
        (_AddsVariables, "test_E8_variables_of_the_call_are_for_that_call", {}),
        (_WritesInPlace, "test_C044_a_reader_sees_one_whole_version", {}),
        (_WritesInPlace, "test_C044_a_write_that_fails_leaves_the_old_file", {}),
        (_LosesModes, "test_C044_overwriting_keeps_the_mode", {}),
        (_ListsUnsorted, "test_F1_a_folder_is_listed_in_order", {}),
        (_ReadsText, "test_C049_every_byte_value_comes_back", {}),
        (_HidesRefusals, "test_C106_nothing_lands_outside_of_the_target", {}),
        (_StaysOpen, "test_L1_an_error_in_the_block_closes_the_env_and_goes_on", {}),
    ],
)  # fmt: skip
async def test_a_wrong_env_is_caught(
    wrong: type[LocalEnv], test: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """The test passes over a right env, and fails over the wrong one."""
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    await _run(_Right, test, arguments, tmp_path / "right")
    with pytest.raises((AssertionError, pytest.fail.Exception, ExceptionGroup)):
        await _run(wrong, test, arguments, tmp_path / "wrong")


async def _run(kind: type[LocalEnv], test: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    """Run one test of the contract over an env of a class, with what its fixtures would give."""
    made: list[LocalEnv] = []

    class Contract(_Contract):
        @classmethod
        def make_env(cls) -> LocalEnv:
            made.append(kind(LocalConfig()))
            return made[-1]

    contract = Contract()
    function = getattr(contract, test)
    env = await contract.make_env().__aenter__()
    try:
        folder = f"{env.workdir}/{uuid.uuid4().hex}"
        await env.mkdir(folder)
        given = {"env": env, "folder": folder, "tmp_path": tmp_path, "marker": uuid.uuid4().hex, **arguments}
        with anyio.fail_after(60):
            await function(**{name: given[name] for name in inspect.signature(function).parameters})
    finally:
        for each in made:
            await each.aclose()
