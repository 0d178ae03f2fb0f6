"""The contract of `Searches`: lines and files found in an env, bounded, without a program of its image (rule T6).

For envs that offer these verbs; the tests are skipped for others.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from runenv.env import Searches
from runenv.testing.contract.base import Contract
from runenv.testing.contract.measure import MIB, Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.env import RunEnv
    from runenv.types import GrepLine

__all__ = ("SearchesContract",)

FILES: Final[Mapping[str, bytes]] = {
    "a.py": b"import os\n\ndef main():\n    return os.name\n",
    "b/c.py": b"def other():\r\n    pass\r\n",
    "b/notes.txt": "über main\nKELVIN\n".encode(),
    "b/.hidden/d.py": b"def main(): ...",
    "z.bin": b"\0def main()\n",
}
LONG_LINE: Final = 3 * MIB
CATASTROPHE: Final = "(a|aa|aaa|b?a|[ab]a){60,80}(a|aa|aaa|b?a|[ab]a){60,80}$"


def found(*lines: GrepLine) -> list[tuple[str, int, str]]:
    """Return what matters of the lines that match."""
    return [(line.path, line.number, line.text) for line in lines if line.is_match]


class SearchesContract(Contract):
    """Tests of `grep` and `glob`."""

    @pytest.fixture
    def searches(self, env: RunEnv) -> Searches:
        """The same env, seen as one that searches."""
        if not isinstance(env, Searches):
            pytest.skip("this env does not search")
        return env

    @pytest.fixture
    async def tree(self, env: RunEnv, folder: str) -> str:
        """A folder with `FILES`."""
        for name, content in FILES.items():
            await env.write(f"{folder}/{name}", content)
        return folder

    async def test_T6_lines_are_found_in_the_order_of_names(self, searches: Searches, tree: str) -> None:
        """With their numbers, without line ends, in hidden folders too, and not in binary files."""
        result = await searches.grep(r"^def \w+\(", tree)
        assert found(*result.lines) == [
            ("a.py", 3, "def main():"),
            ("b/.hidden/d.py", 1, "def main(): ..."),
            ("b/c.py", 1, "def other():"),
        ]
        assert result.files == ("a.py", "b/.hidden/d.py", "b/c.py")
        assert (result.searched, result.binary, result.unreadable) == (4, 1, 0)
        assert (result.complete, result.timed_out) == (True, False)

    async def test_T6_one_file_is_searched_alone(self, searches: Searches, tree: str) -> None:
        """And is named as it was asked for."""
        result = await searches.grep("main", f"{tree}/a.py")
        assert found(*result.lines) == [(f"{tree}/a.py", 3, "def main():")]

    async def test_T6_context_is_shown_once(self, searches: Searches, env: RunEnv, folder: str) -> None:
        """Around matches that are near each other, at both ends of a file."""
        await env.write(f"{folder}/f", b"".join(b"%d%s\n" % (n, b"x" * (n in {1, 4, 9})) for n in range(1, 10)))
        result = await searches.grep("x", folder, context=1)
        assert [(line.number, line.is_match) for line in result.lines] == [
            *((1, True), (2, False), (3, False), (4, True), (5, False)),
            *((8, False), (9, True)),
        ]

    async def test_T6_text_is_found_as_it_is(self, searches: Searches, tree: str) -> None:
        """A literal has no special characters, and may ignore case beyond ASCII."""
        assert found(*(await searches.grep("main():", tree, literal=True, include=["a.py"])).lines) == [
            ("a.py", 3, "def main():")
        ]
        result = await searches.grep("ÜBER MAIN", tree, literal=True, ignore_case=True)
        assert found(*result.lines) == [("b/notes.txt", 1, "über main")]
        assert not (await searches.grep("MAIN", tree)).lines
        assert (await searches.grep("MAIN", tree, ignore_case=True)).files == ("a.py", "b/.hidden/d.py", "b/notes.txt")
        assert (await searches.grep("(?i)kelvin", tree)).files == ("b/notes.txt",)

    async def test_T6_files_are_chosen_by_patterns(self, searches: Searches, tree: str) -> None:
        """As in a transfer of a tree."""
        assert (await searches.grep("main", tree, include=["*.py"], exclude=[".hidden/"])).files == ("a.py",)
        result = await searches.grep("main", tree, files_only=True, max_matches=1)
        assert (result.files, result.lines, result.complete) == (("a.py",), (), False)

    async def test_T6_results_are_bounded(self, searches: Searches, env: RunEnv, folder: str) -> None:
        """By number, and by bytes: what is left out is said."""
        await env.write(f"{folder}/many", b"match\n" * 3000 + b"m" * 5000 + b"match\n")
        result = await searches.grep("match", folder, max_matches=100)
        assert len(found(*result.lines)) == 100
        assert not result.complete
        result = await searches.grep("^m+a", folder, max_matches=10_000)
        last = result.lines[-1]
        assert (last.number, len(last.text), last.omitted_before, last.omitted_after) == (3001, 2000, 0, 3005)
        await env.write(f"{folder}/wide", (b"w" * 1990 + b"\n") * 2000)
        result = await searches.grep("w", folder, max_matches=10_000)
        assert sum(len(line.text) for line in result.lines) < MIB
        assert not result.complete

    async def test_T6_a_long_line_is_searched_to_its_end(self, searches: Searches, env: RunEnv, folder: str) -> None:
        """Piece by piece, shown around the match, and counted as one line."""
        await env.write(f"{folder}/long", b"-" * LONG_LINE + b"needle" + b"-" * LONG_LINE + b"\nneedle\n")
        for literal in (False, True):
            result = await searches.grep("needle", folder, literal=literal)
            assert [line.number for line in result.lines] == [1, 2]
            first = result.lines[0]
            assert "needle" in first.text
            assert len(first.text) == 2000

    async def test_T6_text_that_is_not_utf8_is_searched(self, searches: Searches, env: RunEnv, folder: str) -> None:
        """Undecodable bytes match a dot and are replaced in what is shown."""
        await env.write(f"{folder}/latin", "für alle\n".encode("latin-1"))
        assert found(*(await searches.grep("f.r alle", folder)).lines) == [("latin", 1, "f\ufffdr alle")]
        assert found(*(await searches.grep("alle", folder, literal=True)).lines) == [("latin", 1, "f\ufffdr alle")]

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("a(?=b)", "no lookaround"),
            (r"(a)\1", "reference to a group"),
            (r"a\nb", "within one line"),
            ("a(b", "without its '\\)'"),
            ("*a", "to repeat"),
            ("a{1000}", "255"),
            ("", "empty"),
        ],
    )
    async def test_T6_an_unsupported_pattern_is_a_clear_answer(
        self, searches: Searches, pattern: str, said: str
    ) -> None:
        """It says what cannot be searched for."""
        with pytest.raises(ValueError, match=said):
            await searches.grep(pattern)

    async def test_T6_a_search_ends_at_its_deadline(self, searches: Searches, env: RunEnv, folder: str) -> None:
        """Whatever the pattern does to the library; the env is usable at once."""
        await env.write(f"{folder}/f", (b"a" * 20_000 + b"!\n") * 20)
        with suppress(ValueError):  # a library that needs more memory for it than it gets
            result = await searches.grep(CATASTROPHE, folder, timeout=0.5)
            assert (result.timed_out, result.complete) == (True, False)
        assert (await searches.grep("!$", folder, max_matches=1)).lines

    async def test_T6_a_path_that_cannot_be_searched_is_an_error(self, searches: Searches, env: RunEnv) -> None:
        """Of the kind that every verb on files has."""
        with pytest.raises(FileNotFoundError) as caught:
            await searches.grep("x", "not/there")
        assert caught.value.filename == "not/there"
        await env.write("plain", b"x")
        with pytest.raises(NotADirectoryError):
            await searches.glob("*", "plain")
        with pytest.raises(ValueError, match="match nothing"):
            await searches.grep("x", include=["../x"])
        assert (await env.exec(self.argv("mkfifo", "pipe"))).ok
        with pytest.raises(OSError, match="nvalid"):
            await searches.grep("x", "pipe")

    async def test_T6_links_are_not_followed(self, searches: Searches, env: RunEnv, tree: str) -> None:
        """A loop of them ends, and nothing is found twice."""
        assert (await env.exec(self.argv("ln", "-s", "..", f"{tree}/b/up"))).ok
        assert (await env.exec(self.argv("ln", "-s", "a.py", f"{tree}/link.py"))).ok
        assert (await searches.grep("return", tree)).files == ("a.py",)
        assert {file.path for file in (await searches.glob("*.py", tree)).files} == {"a.py", "b/c.py", "b/.hidden/d.py"}

    async def test_T6_files_are_found_by_name(self, searches: Searches, env: RunEnv, tree: str) -> None:
        """The newest first, with their sizes."""
        assert (await env.exec(self.argv("touch", "-t", "202001010000", f"{tree}/a.py"))).ok
        result = await searches.glob("**/*.py", tree, exclude=[".hidden/"])
        assert [(file.path, file.size) for file in result.files] == [
            ("b/c.py", len(FILES["b/c.py"])),
            ("a.py", len(FILES["a.py"])),
        ]
        assert (result.count, result.complete) == (2, True)
        result = await searches.glob("*", tree, max_files=2)
        assert (len(result.files), result.count, result.complete) == (2, 5, False)

    async def test_T6_a_large_file_costs_no_memory(self, searches: Searches, env: RunEnv, folder: str) -> None:
        """Neither here nor there: the answer is what matters."""
        if self.sh is None:
            pytest.skip("nothing in this env makes a large file")
        assert (await env.exec(self.script(f"yes some words | head -c 200000000 > {folder}/large"))).ok
        with Memory() as memory:
            result = await searches.grep("nowhere", folder)
        assert (result.lines, result.searched, result.complete) == ((), 1, True)
        assert memory.growth_bytes < 8 * MIB
