"""The contract of output: bounded where it is born, cut in the middle, marked, counted, and whole in a file of the env.

Rules E10 and O1 to O4. Output of exact bytes is made with `cat` and stdin, so that no shell and no `printf` is trusted.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import anyio
import pytest

from runenv.testing.contract.base import Contract
from runenv.testing.contract.measure import MIB, Memory

if TYPE_CHECKING:
    from runenv.env import RunEnv
    from runenv.types import Output

__all__ = ("OutputContract",)

TEXT_CHARS: Final = 30_000
"""Bound of `Output.text` unless the configuration says otherwise."""
DATA_BYTES: Final = 240_000
"""Bound of `Output.data`, likewise."""
FLAT_BYTES: Final = 12 * MIB
"""What any output may cost this process at most, whatever its size."""
MARKER: Final = re.compile(
    r"\[\.\.\. (?P<bytes>[\d,]+) bytes? \((?P<lines>[\d,]+) lines?\) left out; (?P<where>[^\n]*) \.\.\.\]"
)
LINES: Final = b"".join(b"%06d is the number of this line\n" % number for number in range(40_000))


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def check_cut(output: Output, whole: bytes, *, max_chars: int) -> None:
    """Hold a text that was cut to its marker: both sides are of the output, and the counts are exact."""
    assert output.truncated
    assert len(output.text) <= max_chars
    markers = list(MARKER.finditer(output.text))
    assert len(markers) == 1
    (marker,) = markers
    before = output.text[: marker.start()].removesuffix("\n").encode()
    after = output.text[marker.end() :].removeprefix("\n").encode()
    assert whole.startswith(before)
    assert whole.endswith(after)
    assert len(before) > 0
    assert len(after) > 0
    gap = len(whole) - len(before) - len(after)
    assert gap - _number(marker["bytes"]) in {0, 1}  # a line end before the marker stands for the output's own
    middle = whole[len(before) : len(whole) - len(after)]
    assert middle.count(b"\n") - _number(marker["lines"]) in {0, 1}
    assert output.spill_path is not None
    assert output.spill_path in marker["where"]


class OutputContract(Contract):
    """What is kept of output, what is shown of it, and what it costs."""

    big_bytes: ClassVar[int] = 1_000_000_000
    """How much the commands that print too much print."""

    # -- the cut

    @pytest.mark.parametrize("size", [9_999, 10_000, 10_001, 16_384])
    async def test_C011_the_cut_is_announced_at_the_exact_boundary(self, env: RunEnv, size: int) -> None:
        """With a limit of 10,000 bytes nothing is cut up to it, and from the next byte on it is said."""
        whole = b"BEGIN" + (b"0123456789" * 2000)[: size - 8] + b"END"
        output = (await env.exec(self.argv("cat"), stdin=whole, max_output_bytes=10_000)).stdout
        assert output.total_bytes == size
        assert output.truncated is (size > 10_000)
        assert output.omitted_bytes == max(0, size - 10_000)
        assert output.text.startswith("BEGIN")
        assert output.text.endswith("END")
        assert (output.text.encode() == whole) is (size <= 10_000)

    async def test_C012_head_and_tail_are_kept(self, env: RunEnv) -> None:
        """First lines, a marker with a count, the last lines, the error at the end, and the exit code beside them."""
        script = self.script("seq 1 200000; echo FINAL-ERROR >&2; exit 3")
        result = await env.exec(script, max_output_bytes=4096)
        assert result.stdout.text.startswith("1\n2\n3\n")
        assert result.stdout.text.endswith("199999\n200000\n")
        assert MARKER.search(result.stdout.text)
        assert (result.stderr.text, result.exit_code) == ("FINAL-ERROR\n", 3)
        check_cut(result.stdout, b"".join(b"%d\n" % number for number in range(1, 200_001)), max_chars=4096)

    @pytest.mark.parametrize("character", ["€", "😀"], ids=["euro", "emoji"])
    async def test_C013_a_character_is_never_split(self, env: RunEnv, character: str) -> None:
        """50,000 of them, with limits at every offset into one: no replacement character at either edge of the gap."""
        whole = character.encode() * 50_000
        for limit in range(9_999, 10_004):
            output = (await env.exec(self.argv("cat"), stdin=whole, max_output_bytes=limit)).stdout
            assert len(output.text) <= limit
            assert len(output.data) == limit
            assert len(MARKER.findall(output.text)) == 1
            assert set(MARKER.sub("", output.text)) == {character, "\n"}
            assert (output.total_bytes, output.omitted_bytes) == (len(whole), len(whole) - limit)

    async def test_C015_one_line_without_an_end_is_cut_in_the_middle(self, env: RunEnv) -> None:
        """200,000 characters: longer than any line buffer."""
        result = await env.exec(self.script(r'head -c 200000 /dev/zero | tr "\0" A'))
        assert result.exit_code == 0
        assert result.stdout.total_bytes == 200_000
        assert result.stdout.data == b"A" * 200_000
        check_cut(result.stdout, b"A" * 200_000, max_chars=TEXT_CHARS)

    async def test_O1_data_is_the_first_and_the_last_half(self, env: RunEnv) -> None:
        """Byte for byte, up to `max_output_bytes`; `text` is cut at line ends within its own bound."""
        for limit in (DATA_BYTES, 100_001, 1_024):
            result = await env.exec(self.argv("cat"), stdin=LINES, max_output_bytes=limit)
            output = result.stdout
            head = limit // 2
            assert output.data == LINES[:head] + LINES[len(LINES) - (limit - head) :]
            assert (output.total_bytes, output.omitted_bytes) == (len(LINES), len(LINES) - limit)
            check_cut(output, LINES, max_chars=min(TEXT_CHARS, limit))
            kept = [line for line in output.text.splitlines() if not MARKER.fullmatch(line)]
            assert all(re.fullmatch(r"\d{6} is the number of this line", line) for line in kept)
        assert (await env.exec(self.argv("cat"), stdin=LINES)).stdout.omitted_bytes == len(LINES) - DATA_BYTES

    async def test_O1_a_program_may_ask_for_more(self, env: RunEnv) -> None:
        """With a larger bound the bytes are whole, though the text for the model is not."""
        output = (await env.exec(self.argv("cat"), stdin=LINES, max_output_bytes=8 * MIB)).stdout
        assert (output.data, output.omitted_bytes) == (LINES, 0)
        check_cut(output, LINES, max_chars=TEXT_CHARS)

    async def test_O1_each_stream_has_its_own_bound(self, env: RunEnv) -> None:
        """A flood of stdout takes nothing from stderr."""
        script = self.script("cat >&2; head -c 1000000 /dev/zero")
        result = await env.exec(script, stdin=LINES[:20_000], max_output_bytes=20_000)
        assert (result.stderr.data, result.stderr.truncated) == (LINES[:20_000], False)
        assert (len(result.stdout.data), result.stdout.total_bytes) == (20_000, 1_000_000)

    # -- the whole

    async def test_O3_the_whole_output_is_in_a_file_of_the_env(self, env: RunEnv) -> None:
        """Where `spill_path` says, outside the workdir, in a closed folder, for the verbs and later calls to read."""
        output = (await env.exec(self.argv("cat"), stdin=LINES)).stdout
        path = output.spill_path
        assert path is not None
        assert not path.startswith(env.workdir.rstrip("/") + "/")
        assert output.spilled_bytes == len(LINES)
        assert await env.read(path) == LINES
        assert await env.read(path, offset=1000, length=77) == LINES[1000:1077]
        assert (await env.exec(self.argv("tail", "-n", "1", path))).stdout.data == LINES.splitlines(keepends=True)[-1]
        info = await env.stat(path)
        folder = await env.stat(path.rpartition("/")[0])
        assert (info.size, folder.mode & 0o777) == (len(LINES), 0o700)

    async def test_O3_text_that_is_cut_names_a_file_even_if_the_data_is_whole(self, env: RunEnv) -> None:
        """Between the bound of the text and that of the data: the marker still says where the rest is."""
        whole = LINES[:100_000]
        output = (await env.exec(self.argv("cat"), stdin=whole)).stdout
        assert (output.data, output.omitted_bytes, output.spilled_bytes) == (whole, 0, len(whole))
        check_cut(output, whole, max_chars=TEXT_CHARS)
        assert output.spill_path is not None
        assert await env.read(output.spill_path) == whole

    async def test_O3_output_that_fits_makes_no_file(self, env: RunEnv) -> None:
        """Nothing is left out, so there is nothing to look up."""
        output = (await env.exec(self.argv("cat"), stdin=LINES[:TEXT_CHARS])).stdout
        assert (output.text.encode(), output.truncated) == (LINES[:TEXT_CHARS], False)
        assert (output.spill_path, output.spilled_bytes) == (None, 0)

    # -- odd output

    async def test_C016_output_that_is_not_text_is_replaced_in_text_only(self, env: RunEnv) -> None:
        """Replacement characters for the model, the exact bytes for a program."""
        output = (await env.exec(self.argv("cat"), stdin=b"\xff\xfeok\n")).stdout
        assert (output.data, output.text) == (b"\xff\xfeok\n", "\ufffd\ufffdok\n")
        noise = (await env.exec(self.argv("head", "-c", "4096", "/dev/urandom"))).stdout
        assert (len(noise.data), noise.total_bytes) == (4096, 4096)
        noise.text.encode()

    async def test_C018_text_is_what_a_terminal_would_show(self, env: RunEnv) -> None:
        """Colours, cursor moves, private modes and titles are gone, CR is applied, CRLF is a line end."""
        raw = b"\x1b[?25l\x1b[2Kget 1%\rget 2%\r\n\x1b[31mdone\x1b[0m\x1b]0;title\x07"
        output = (await env.exec(self.argv("cat"), stdin=raw)).stdout
        assert (output.text, output.data) == ("get 2%\ndone", raw)

    async def test_E10_nul_and_other_control_characters_are_survived(self, env: RunEnv) -> None:
        """All 256 byte values: the data is exact, the text has no control character but line ends and tabs."""
        raw = bytes(range(256)) * 4
        output = (await env.exec(self.argv("cat"), stdin=raw)).stdout
        assert output.data == raw
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", output.text)

    async def test_E10_a_line_of_50_MB_is_survived(self, env: RunEnv) -> None:
        """Head and tail of it, and its exact length."""
        output = (await env.exec(self.script("head -c 50000000 /dev/zero; printf end"))).stdout
        assert output.total_bytes == 50_000_003
        assert output.data.endswith(b"\0end")
        assert output.text.endswith("end")
        assert len(output.text) <= TEXT_CHARS

    async def test_E10_output_in_pieces_is_put_together(self, env: RunEnv) -> None:
        """A character that is written byte by byte, with time between, is one character."""
        output = (await env.exec(self.script(r'for b in "\342" "\202" "\254"; do printf $b; sleep 0.02; done'))).stdout
        assert output.text == "€"

    # -- memory

    async def test_C010_O4_a_gigabyte_of_output_costs_this_process_nothing(self, env: RunEnv) -> None:
        """Exit code 0, head and tail, an exact count; the file holds the beginning, as far as its quota goes."""
        command = self._zeros(self.big_bytes)
        await env.exec(self._zeros(3_000_000), max_output_bytes=100_000)  # warms up
        with Memory() as memory:
            result = await env.exec(command, max_output_bytes=100_000)
        output = result.stdout
        assert (result.exit_code, result.timed_out) == (0, False)
        assert (output.total_bytes, len(output.data)) == (self.big_bytes, 100_000)
        assert memory.growth_bytes < FLAT_BYTES
        if output.spilled_bytes < output.total_bytes:
            assert f"its first {output.spilled_bytes:,} bytes are in {output.spill_path}" in output.text
        if output.spill_path is not None:
            assert (await env.stat(output.spill_path)).size == output.spilled_bytes
        # What was spilled makes room for what comes later.
        later = (await env.exec(self.argv("cat"), stdin=LINES)).stdout
        assert later.spilled_bytes == len(LINES)

    def _zeros(self, size: int) -> list[str]:
        return self.argv("dd", "if=/dev/zero", "bs=1000000", f"count={size // 1_000_000}", "status=none")

    async def test_C010_O4_an_endless_output_costs_this_process_nothing(self, env: RunEnv) -> None:
        """Random bytes until the deadline: every one of them is a line end or a broken character."""
        with Memory() as memory:
            result = await env.exec(self.argv("cat", "/dev/urandom"), timeout=1, max_output_bytes=100_000)
        assert result.timed_out
        assert result.stdout.total_bytes > 10 * MIB
        assert memory.growth_bytes < FLAT_BYTES

    async def test_O4_50_chatty_commands_at_once_cost_this_process_nothing(self, env: RunEnv) -> None:
        """Each prints a fiftieth of a gigabyte; what comes back of each is dropped."""
        command = self._zeros(self.big_bytes // 50)
        totals: list[int] = []

        async def one() -> None:
            totals.append((await env.exec(command, timeout=None)).stdout.total_bytes)

        with Memory() as memory:
            async with anyio.create_task_group() as group:
                for _ in range(50):
                    group.start_soon(partial(one))
        assert totals == [self.big_bytes // 50] * 50
        assert memory.growth_bytes < FLAT_BYTES
