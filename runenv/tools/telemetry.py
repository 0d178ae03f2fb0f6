"""What is told of calls of tools to those who run an agent: a span where OpenTelemetry is installed, and a log record.

Spans are named as the conventions for generative AI have it, and say how a call ended and how large its answer was;
never what was asked or answered; nor does a record, unless the level DEBUG is on. Then it has the arguments, cut, with
what looks like a secret masked: keys and assignments with telling names, headers, passwords in URLs, keys of known
shapes, texts that were named as secret, and the values of the env's variables, which an env hides that is a `Masks`.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from runenv.types import ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span

    from runenv.env import RunEnv
    from runenv.types import ToolResult

__all__ = ("Masker", "Observed", "observe", "prepare_spans")

_log = logging.getLogger(__name__)

MASK: Final = "***"
SHOWN_CHARS: Final = 200
"""Characters of an argument that a record has."""
LOOKED_AT_CHARS: Final = 4_000
"""Characters in which secrets are looked for, before it is cut to those that are shown."""
SHOWN_ITEMS: Final = 20
SHOWN_DEPTH: Final = 4

_TELLING: Final = (
    r"pass(?:word|wd|phrase)|secret|token|credential|cookie|authorization"
    r"|(?:api|access|private|signing|encryption|account)[-_ ]?key"
)
_KEY: Final = re.compile(rf"{_TELLING}|(?:^|[-_])(?:auth|pass|pwd)(?:$|[-_])", re.IGNORECASE)
_VALUE: Final = r"(?:\"[^\"\n]{0,1000}\"|'[^'\n]{0,1000}'|[^\s\"';&|]{1,1000})"
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]{0,4000}?(?:-----END [A-Z ]{0,30}-----|\Z)", MASK),
        (
            r"(authorization[\"']?\s{0,5}[:=]\s{0,5}[\"']?)(?:(?:bearer|basic|token|digest)\s+)?[^\s\"']{1,1000}",
            rf"\1{MASK}",
        ),
        (rf"(\b[\w-]{{0,40}}(?:{_TELLING})[\w-]{{0,40}}[\"']?\s{{0,5}}[:=]\s{{0,5}}){_VALUE}", rf"\1{MASK}"),
        (rf"(--?[\w-]{{0,40}}(?:{_TELLING})[\w-]{{0,40}}\s{{1,5}}){_VALUE}", rf"\1{MASK}"),
        (r"(://)[^\s/@:]{0,200}:[^\s/@]{1,1000}(?=@)", rf"\1{MASK}"),
        (r"\bbearer\s+[\w.~+/=-]{8,}", f"Bearer {MASK}"),
        (r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abps]|hf|npm|pypi)[-_][\w-]{16,}", MASK),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", MASK),
        (r"\bAIza[\w-]{35}", MASK),
        (r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", MASK),
    )
)


class Masker:
    """Makes what is logged harmless.

    Args:
        names: of variables whose values are secret.
        secrets: texts that are masked wherever they are.
        hide: masks what else is secret.
    """

    def __init__(
        self, names: Iterable[str] = (), secrets: Iterable[str] = (), hide: Callable[[str], str] | None = None
    ) -> None:
        self._hide = hide
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        known = "|".join(re.escape(name) for name in sorted(names))
        self._assignment = re.compile(rf"(\b(?:{known})\s{{0,5}}=\s{{0,5}}){_VALUE}") if known else None

    def text(self, text: str) -> str:
        """Return a text without secrets, cut to what a record has."""
        shown = text[:LOOKED_AT_CHARS] if self._hide is None else self._hide(text)[:LOOKED_AT_CHARS]
        for secret in self._secrets:
            shown = shown.replace(secret, MASK)
        if self._assignment is not None:
            shown = self._assignment.sub(rf"\1{MASK}", shown)
        for pattern, replacement in _PATTERNS:
            shown = pattern.sub(replacement, shown)
        more = len(text) > LOOKED_AT_CHARS
        if more and self._secrets:  # its end may be the beginning of one
            shown = shown[: -len(self._secrets[0])]
        if more or len(shown) > SHOWN_CHARS:
            shown = f"{shown[:SHOWN_CHARS]}... ({len(text):,} characters)"
        return shown

    def arguments(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return arguments for a record."""
        return self._mapping(arguments, SHOWN_DEPTH)

    def _mapping(self, value: Mapping[Any, object], depth: int) -> dict[str, object]:
        return {
            self.text(str(key)): MASK if _KEY.search(str(key)) else self._value(one, depth - 1)
            for key, one in list(value.items())[:SHOWN_ITEMS]
        }

    def _value(self, value: object, depth: int) -> object:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth > 0 and isinstance(value, dict):
            return self._mapping(value, depth)
        if depth > 0 and isinstance(value, list | tuple):
            return [self._value(one, depth - 1) for one in value[:SHOWN_ITEMS]]
        return f"({type(value).__name__})"


class Observed:
    """How one call went, told by whoever makes it."""

    def __init__(self, span: Span | None) -> None:
        self._span = span
        self._result: ToolResult | None = None

    def ended(self, result: ToolResult) -> None:
        """Note the answer."""
        self._result = result

    @property
    def facts(self) -> dict[str, bool | int]:
        """What is known of the answer."""
        if self._result is None:
            return {}
        texts = [part.text for part in self._result.parts if isinstance(part, TextPart)]
        return {
            "is_error": self._result.is_error,
            "chars": sum(map(len, texts)),
            "images": sum(isinstance(part, ImagePart) for part in self._result.parts),
        }

    def tell_span(self, error: BaseException | None) -> None:
        """Set what the span says at its end: kinds and counts, no texts."""
        if self._span is None:
            return
        self._span.set_attributes({f"runenv.tool.{name}": value for name, value in self.facts.items()})
        failed = type(error).__qualname__ if error is not None else "tool_error" if self.facts.get("is_error") else None
        if failed is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", failed)
            self._span.set_status(StatusCode.ERROR)


@contextmanager
def observe(
    tool: str, arguments: Mapping[str, object], *, env: RunEnv, masker: Masker, call_id: str | None = None
) -> Generator[Observed]:
    """Watch one call: a span around it, and a record at its end.

    Args:
        tool: its name.
        arguments: as the model wrote them.
        env: where it runs.
        masker: of the record.
        call_id: the vendor's name of the call, if it has one.
    """
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "runenv.env.kind": env.kind,
        "runenv.env.id": env.id,
        **({"gen_ai.tool.call.id": call_id} if call_id else {}),
    }
    began, error = time.monotonic(), None
    with _span(f"execute_tool {tool}", attributes) as span:
        observed = Observed(span)
        try:
            yield observed
        except BaseException as raised:
            error = raised
            raise
        finally:
            observed.tell_span(error)
            _record(tool, arguments, observed, error, env, masker, call_id, time.monotonic() - began)


def _record(
    tool: str,
    arguments: Mapping[str, object],
    observed: Observed,
    error: BaseException | None,
    env: RunEnv,
    masker: Masker,
    call_id: str | None,
    duration: float,
) -> None:
    level = logging.WARNING if isinstance(error, Exception) else logging.INFO  # to be cancelled is no fault
    if not _log.isEnabledFor(level):
        return
    facts: dict[str, object] = dict(observed.facts)
    how = type(error).__name__ if error is not None else "error" if facts.get("is_error") else "done"
    extra = {
        "tool": tool,
        "call_id": call_id,
        "env_id": env.id,
        "duration": duration,
        "outcome": how,
        **facts,
    }
    if _log.isEnabledFor(logging.DEBUG):
        facts = extra["tool_arguments"] = masker.arguments(arguments)
    _log.log(level, "tool %s in %s: %s after %.3f s, %s", tool, env.id, how, duration, facts, extra=extra)


def _span(name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Span | None]:
    start = prepare_spans()
    return nullcontext() if start is None else start(name, attributes)


@cache
def prepare_spans() -> Callable[[str, Mapping[str, str]], AbstractContextManager[Span]] | None:
    """Return what starts a span, or None where OpenTelemetry is not installed; loads it at the first call."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    tracer = trace.get_tracer("runenv.tools")

    def start(name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Span]:
        # an exception's message may hold anything: `Observed` tells its type
        return tracer.start_as_current_span(
            name, attributes=dict(attributes), record_exception=False, set_status_on_exception=False
        )

    return start
