r"""Patterns as models write them, for the regular expressions of the guest's C library. Pure.

What goes in is the common ground of Python, PCRE and ripgrep, matched within one line: `\d \w \s \b`, classes with
escapes in them, lazy and counted repetitions, `(?:...)`, named groups, a leading `(?i)`. What comes out is a POSIX
extended regular expression (musl's, which knows `\d \w \s \b` outside of classes) and the longest text that every match
must hold, by which the guest passes over most lines. What the library cannot do is refused with a sentence for the
model.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Final

__all__ = ("Pattern", "literal_pattern", "translate")

MAX_PATTERN: Final = 4096
"""Characters; bounds what the guest compiles."""
MAX_REPEAT: Final = 255
"""Of a counted repetition: the C library's RE_DUP_MAX."""

_SHORTHANDS: Final = {"d": "[:digit:]", "w": "[:alnum:]_", "s": "[:space:]"}
_CONTROLS: Final = {"t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_SPECIAL: Final = frozenset(".[]*^$+?{}()|\\")
_HEX: Final = {"x": 2, "u": 4, "U": 8}
_COUNT: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_GROUP: Final = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)")
_POSIX_CLASS: Final = re.compile(r"\[:(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit):\]")


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the guest is given.

    Attributes:
        text: the regular expression, or the text itself.
        is_literal: it is the text itself.
        ignore_case: letters match in both cases.
        needed: what every match holds, in lower case with `ignore_case`; may be empty.
    """

    text: str
    is_literal: bool
    ignore_case: bool
    needed: str


def literal_pattern(text: str, *, ignore_case: bool) -> Pattern:
    """Return the pattern that finds `text` itself.

    Raises:
        ValueError: it is empty, too long, or more than one line.
    """
    _check(text)
    if not ignore_case:
        return Pattern(text, is_literal=True, ignore_case=False, needed=text)
    if text.isascii():
        return Pattern(text, is_literal=True, ignore_case=True, needed=text.lower())
    return Pattern("".join(map(_quoted, text)), is_literal=False, ignore_case=True, needed="")


def translate(pattern: str, *, ignore_case: bool) -> Pattern:
    """Return a pattern as the guest's library takes it.

    Raises:
        ValueError: it is no regular expression, or uses what is not supported; the text says what to write instead.
    """
    _check(pattern)
    if pattern.startswith("(?i)"):
        pattern, ignore_case = pattern[len("(?i)") :], True
    reader = _Reader(pattern)
    reader.read()
    needed = reader.needed()
    if ignore_case:
        needed = needed.lower() if needed.isascii() else ""
    return Pattern("".join(reader.out), is_literal=False, ignore_case=ignore_case, needed=needed)


def _check(pattern: str) -> None:
    if not pattern:
        raise ValueError("the pattern is empty")
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern):,} characters, the limit is {MAX_PATTERN:,}")
    if "\n" in pattern or "\0" in pattern:
        raise ValueError("a pattern is matched within one line, so it cannot hold a line break or NUL")


def _quoted(char: str) -> str:
    return "\\" + char if char in _SPECIAL else char


@dataclass(slots=True)
class _Reader:
    """One walk over a pattern."""

    pattern: str
    at: int = 0
    depth: int = 0
    out: list[str] = field(default_factory=list)
    repeatable: bool = False
    """The last thing read can be repeated."""
    runs: list[str] = field(default_factory=lambda: [""])
    """Texts that every match holds."""
    ends_in_char: bool = False
    """The last thing read is the character at the end of the last run."""
    alternatives: bool = False

    def needed(self) -> str:
        return "" if self.alternatives else max(self.runs, key=len)

    def read(self) -> None:
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            self.at += 1
            if char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char in "*+?":
                self._repeat(char, can_be_none=char != "+")
            elif char == "{":
                self._count()
            elif char in "(|)":
                self._group(char)
            elif char == ".":
                self._other(char)
            elif char in "^$":
                self.out.append(char)
                self.repeatable = False
                self.ends_in_char = False
            else:
                self._char(char)
        if self.depth:
            raise ValueError("the pattern has a '(' without its ')': write '\\(' for the character itself")

    # -- what can be repeated

    def _char(self, char: str) -> None:
        self.out.append(_quoted(char))
        self.repeatable = True
        if not self.depth:
            self.runs[-1] += char
            self.ends_in_char = True

    def _other(self, text: str) -> None:
        self.out.append(text)
        self.repeatable = True
        self._end_run()

    def _end_run(self) -> None:
        self.runs.append("")
        self.ends_in_char = False

    def _escape(self) -> None:
        char = self._next("a pattern cannot end with '\\'")
        if char.lower() in _SHORTHANDS:
            self._other("\\" + char)
        elif char in "bB<>":
            self.out.append("\\" + char)
            self.repeatable = False
            self.ends_in_char = False
        elif char == "A":
            self.out.append("^")
            self.repeatable = False
        elif char in "zZ":
            self.out.append("$")
            self.repeatable = False
        else:
            found = self._escaped(char)
            _check(found)
            self._char(found)

    def _escaped(self, char: str) -> str:
        """The character that an escape stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in _HEX:
            digits = self.pattern[self.at : self.at + _HEX[char]]
            if len(digits) < _HEX[char] or not re.fullmatch("[0-9A-Fa-f]+", digits):
                raise ValueError(f"'\\{char}' needs {_HEX[char]} hexadecimal digits after it")
            self.at += _HEX[char]
            code = int(digits, 16)
            if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - surrogates are no characters
                raise ValueError(f"'\\{char}{digits}' is no character")
            return chr(code)
        if char.isascii() and char.isalnum():
            what = "a reference to a group" if char.isdigit() else "this escape"
            if char == "n":
                what = "a line break (a pattern is matched within one line)"
            raise ValueError(f"'\\{char}' is not supported: {what} cannot be searched for")
        return char

    def _next(self, otherwise: str) -> str:
        if self.at >= len(self.pattern):
            raise ValueError(otherwise)
        self.at += 1
        return self.pattern[self.at - 1]

    # -- repetitions

    def _repeat(self, text: str, *, can_be_none: bool) -> None:
        if not self.repeatable:
            raise ValueError(
                f"there is nothing before {text!r} to repeat: write '\\{text[0]}' for the character itself"
            )
        self.out.append(text)
        self.repeatable = False
        if self.ends_in_char and can_be_none:
            self.runs[-1] = self.runs[-1][:-1]
        self._end_run()
        if self.pattern[self.at : self.at + 1] == "?":  # lazy: the same lines match
            self.at += 1
        elif self.pattern[self.at : self.at + 1] == "+":
            raise ValueError(f"'{text}+' is not supported: write {text!r}")

    def _count(self) -> None:
        found = _COUNT.match(self.pattern, self.at - 1)
        if not found or not (found[1] or found[3]) or not self.repeatable:
            self._char("{")
            return
        low, high = int(found[1] or 0), int(found[3]) if found[3] else None
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            raise ValueError(
                f"{found[0]!r}: a repetition goes from a number to one that is not smaller, up to {MAX_REPEAT}"
            )
        self.at = found.end()
        self._repeat(f"{{{low}{found[2]}{'' if high is None else high}}}", can_be_none=not low)

    # -- groups and classes

    def _group(self, char: str) -> None:
        if char == "(":
            self.at -= 1
            named = _GROUP.match(self.pattern, self.at)
            if named:
                self.at = named.end()
            elif self.pattern.startswith("(?", self.at):
                raise ValueError(
                    f"{self.pattern[self.at : self.at + 4]!r} is not supported: there is no lookaround and no flag but "
                    "a leading '(?i)'; search for a part of it and look at the lines"
                )
            else:
                self.at += 1
            self._end_run()
            self.depth += 1
            self.repeatable = False
        elif char == "|":
            self.alternatives = self.alternatives or not self.depth
            self._end_run()
            self.repeatable = False
        else:
            if not self.depth:
                raise ValueError("the pattern has a ')' without its '(': write '\\)' for the character itself")
            self.depth -= 1
            self._end_run()
            self.repeatable = True
        self.out.append(char)

    def _class(self) -> None:
        reader = _Class()
        if self.pattern[self.at : self.at + 1] == "^":
            reader.negated = True
            self.at += 1
        start = self.at
        while True:
            char = self._next("the pattern has a '[' without its ']': write '\\[' for the character itself")
            if char == "]" and self.at - 1 > start:
                break
            self._class_item(reader, char)
        self._other(reader.text())

    def _class_item(self, reader: _Class, char: str) -> None:
        posix = _POSIX_CLASS.match(self.pattern, self.at - 1) if char == "[" else None
        if posix:
            self.at = posix.end()
            reader.names.append(posix[0])
            return
        if char == "\\":
            char = self._next("the pattern has a '[' without its ']'")
            if char.lower() in _SHORTHANDS:
                reader.add_shorthand(char)
                return
            if char == "n":
                reader.has_nothing = True  # no line holds one
                return
            char = "\b" if char == "b" else self._escaped(char)
        char = char.replace("\0", "\1")  # no text holds the first of the two
        rest = self.pattern[self.at :]
        if not rest.startswith("-") or rest.startswith("-]") or len(rest) < len("-x"):
            reader.singles.append(char)
            return
        self.at += 1
        end = self._next("")
        if end == "\\":
            end = self._next("the pattern has a '[' without its ']'")
            if end.lower() in _SHORTHANDS:
                reader.singles += [char, "-"]
                reader.add_shorthand(end)
                return
            end = self._escaped(end)
        if end < char:
            raise ValueError(f"the range '{char}-{end}' goes backwards")
        reader.ranges.append((char, end))


@dataclass(slots=True)
class _Class:
    """What is between brackets."""

    negated: bool = False
    names: list[str] = field(default_factory=list)
    """Of POSIX classes, without the outer brackets."""
    opposites: set[str] = field(default_factory=set)
    ranges: list[tuple[str, str]] = field(default_factory=list)
    singles: list[str] = field(default_factory=list)
    has_nothing: bool = False
    """Something that is in no line is a part of it."""

    def add_shorthand(self, char: str) -> None:
        if char.isupper():
            self.opposites.add(char.lower())
        else:
            self.names.append(_SHORTHANDS[char])

    def text(self) -> str:
        """The class as POSIX writes it, where a backslash is no escape and places matter."""
        if any(_SHORTHANDS[char] in self.names for char in self.opposites):
            if self.negated:
                raise ValueError("a class that excludes every character matches nothing")
            return "."  # such as [\s\S]
        if self.opposites:
            if self.names or self.ranges or self.singles or len(self.opposites) > 1:
                raise ValueError("'\\D', '\\W' and '\\S' inside of brackets are not supported: use (\\S|x) or [^...]")
            (char,) = self.opposites
            return f"\\{char}" if self.negated else f"\\{char.upper()}"
        if self.has_nothing and not (self.names or self.ranges or self.singles):
            if self.negated:
                return "."
            raise ValueError("a pattern is matched within one line, which holds no line break")
        singles = set(self.singles)
        if singles == {"^"} and not self.names and not self.ranges and not self.negated:
            return "\\^"
        first = "]" if "]" in singles else ""
        last = "".join(char for char in "[^-" if char in singles)
        if last[:1] == "^" and not (first or self.names or self.ranges or singles - {"^", "-"}) and not self.negated:
            last = "-^" if "-" in singles else last
        middle = "".join(sorted(singles - set("[]^-")))
        ranges = "".join(self._range(low, high) for low, high in self.ranges)
        return f"[{'^' if self.negated else ''}{first}{ranges}{''.join(self.names)}{middle}{last}]"

    @staticmethod
    def _range(low: str, high: str) -> str:
        if low in "[]^-" or high in "[]^-":
            raise ValueError(f"the range '{low}-{high}' is not supported: list its characters")
        return f"{low}-{high}"
