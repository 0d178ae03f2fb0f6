"""Which paths the tools of one agent may touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.envs.transfer.globs import Verdict, matcher
from runenv.errors import ConfigError, ToolError
from runenv.testing.scripted import ScriptedEnv
from runenv.tools.paths import MAX_LINKS, PathRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio


async def allowed(path: str, *, allow: Sequence[str] | None = None, deny: Sequence[str] = ()) -> bool:
    """Whether a path without links is allowed."""
    async with ScriptedEnv(workdir="/home/agent/work") as env:
        try:
            await PathRules(allow, deny).check(env, path)
        except ToolError:
            return False
        return True


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        # below the workdir
        ("src/**", "src/a.py", True),
        ("src/**", "src/deep/a.py", True),
        ("src/**", "src", True),
        ("src/**", "srcs/a.py", False),
        ("src/**", "/home/agent/work/src/a.py", True),
        ("src/**", "/home/agent/other/src/a.py", False),
        ("src/**", "lib/../src/a.py", True),
        ("src/**", "src/../lib/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/*.py", "src/a.py/inside", True),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/**/test_*.py", "src/a/b/test_a.py", True),
        ("src/**/test_*.py", "src/a/b/a.py", False),
        ("./src/a", "src/a", True),
        (".", "anything/at/all", True),
        (".", "/home/agent/work", True),
        (".", "/home/agent", False),
        (".", "../../etc/passwd", False),
        # by a name, at any depth
        ("*.py", "src/deep/a.py", True),
        ("*.py", "src/deep/a.pyc", False),
        (".git", "src/.git/config", True),
        ("secret[s0-9]", "a/secrets/b", True),
        ("agent", "src/a", False),
        ("agent", "/home/agent/other", True),
        ("**", "src/a", True),
        # absolute
        ("/etc/**", "/etc/passwd", True),
        ("/etc/**", "/etcetera", False),
        ("/home/agent/work/src/**", "src/a", True),
        ("/", "/anything", True),
        ("/", "src/a", True),
    ],
)
async def test_a_pattern_fits(pattern: str, path: str, fits: bool) -> None:  # noqa: FBT001 - the table's
    """The same for what is allowed and what is denied, with all that is below it."""
    assert await allowed(path, allow=[pattern]) is fits
    assert await allowed(path, deny=[pattern]) is not fits


async def test_what_is_denied_wins() -> None:
    """Whatever is allowed."""
    assert await allowed("src/a.py", allow=["src/**"], deny=["*.key"])
    assert not await allowed("src/a.key", allow=["src/**"], deny=["*.key"])
    assert not await allowed("src/a.py", allow=[])


NAMES = st.sampled_from(["a", "b", "home", "work", "a.key"])
PARTS = st.sampled_from(["a", "b", "work", "*", "**", "?", "[ab]", "a**", "*.key", "home"])
PATTERNS = st.lists(PARTS, min_size=1, max_size=3).map("/".join) | st.lists(PARTS, min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PATTERNS, max_size=2), st.lists(NAMES, max_size=2), st.lists(NAMES, min_size=1, max_size=3))
async def test_a_search_is_told_what_is_denied(patterns: list[str], folder: list[str], below: list[str]) -> None:
    """What its patterns leave out is denied; and, unless it begins above the workdir, the other way round."""
    rules, base, path = PathRules(deny=patterns), "/" + "/".join(folder), "/".join(below)
    async with ScriptedEnv(workdir="/home/work") as env:
        try:
            await rules.check(env, base)
        except ToolError:
            return
        decide = matcher(exclude=await rules.excluded(env, base))
        is_allowed = (await rules.filter(env, base))(path)
    ways = [("/".join(below[:length]), length < len(below)) for length in range(1, len(below) + 1)]
    found = all(decide(*way) is not Verdict.LEAVE for way in ways)
    assert found or not is_allowed
    assert is_allowed or not found or "/home/work".startswith(base.rstrip("/") + "/")


async def test_without_rules_nothing_is_looked_at() -> None:
    """And the path goes on as it is."""
    async with ScriptedEnv() as env:
        assert await PathRules().check(env, "../x/./y") == "../x/./y"
        assert (await PathRules().filter(env, "."))("anything")
        assert env.calls == []


async def test_a_refusal_says_what_is_allowed() -> None:
    """So that the model need not try."""
    async with ScriptedEnv() as env:
        with pytest.raises(ToolError, match=r"'/etc/passwd' is not allowed: only src/\*\*, \*\.md is allowed"):
            await PathRules(["src/**", "*.md"]).check(env, "/etc/passwd")
        with pytest.raises(ToolError, match=r"it is one of '\*\.key', which is denied"):
            await PathRules(deny=["*.key"]).check(env, "a.key")


@pytest.mark.parametrize("patterns", [[""], ["../x"], ["a/../b"], "src"])
def test_patterns_that_make_no_sense_are_refused(patterns: Sequence[str]) -> None:
    """When the rules are made; a single text would be a list of letters."""
    with pytest.raises(ConfigError):
        PathRules(patterns)


async def link(env: RunEnv, target: str, name: str) -> None:
    """Make a symbolic link."""
    assert (await env.exec(["ln", "-s", target, name])).ok


async def test_links_are_followed_before_a_path_is_judged(env: RunEnv) -> None:
    """Relative and absolute ones, to folders and files, through others, and back from where they lead."""
    rules = PathRules(["open/**"])
    await env.write("open/deep/a", b"")
    await env.write("closed/a", b"")
    await link(env, "../closed", "open/out")
    await link(env, f"{env.workdir}/closed/a", "open/file")
    await link(env, "open", "in")
    await link(env, "in/deep", "in2")
    for path in ("open/out/a", "open/file", "open/out", "in/out/a", "in/file", "in2/../../closed/a", "open/out/new"):
        with pytest.raises(ToolError, match="not allowed"):
            await rules.check(env, path)
    for path in ("open/deep/a", "in/deep/a", "in2/a", "in2/../deep/new/er", "closed/../open/x"):
        real = await rules.check(env, path)
        assert real.startswith(f"{env.workdir}/open")
    with pytest.raises(ToolError, match="which leads to"):
        await rules.check(env, "open/out/a")


async def test_a_denied_name_is_denied_by_way_of_a_link_too(env: RunEnv) -> None:
    """By the name that was given, and by where it leads."""
    await env.write("plain", b"")
    await env.write("secret", b"")
    await link(env, "plain", "key")
    await link(env, "secret", "harmless")
    rules = PathRules(deny=["key", "secret"])
    for path in ("key", "harmless", "secret"):
        with pytest.raises(ToolError, match="denied"):
            await rules.check(env, path)
    assert await rules.check(env, "plain") == f"{env.workdir}/plain"


async def test_a_loop_of_links_ends(env: RunEnv) -> None:
    """With an answer."""
    await link(env, "b", "a")
    await link(env, "a", "b")
    with pytest.raises(ToolError, match="too many links"):
        await PathRules(["x"]).check(env, "a/c")


async def test_a_long_path_costs_a_bounded_number_of_questions() -> None:
    """However many components it has."""
    async with ScriptedEnv() as env:
        with pytest.raises(ToolError, match="too many"):
            await PathRules(["x"]).check(env, "a/" * 2000)
        assert len(env.calls) < 10 * MAX_LINKS


async def test_what_is_below_a_folder_is_judged_by_its_name(env: RunEnv) -> None:
    """Through a link to the folder, too."""
    await env.write("open/a", b"")
    await link(env, "open", "in")
    rules = PathRules(["open/**"], ["*.key"])
    for folder in ("open", "in"):
        is_allowed = await rules.filter(env, await rules.check(env, folder))
        assert is_allowed("deep/a")
        assert not is_allowed("deep/a.key")
        assert not is_allowed("x.key/a")
