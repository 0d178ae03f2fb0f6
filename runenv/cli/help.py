"""How a command shows its help: plain text that fits an 80-column terminal and can be copied from.

It is Typer's own, but for three things: an argument stands as it is written, without its type or braces; a command's
line in a list is its whole first sentence; and a paragraph of a docstring with an indented line is left as it is, for
examples.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperArgument, TyperCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("PLAIN", "Command")

PLAIN: Final[Mapping[str, Any]] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "add_completion": False,
}
"""Settings of every `Typer`."""
_MAX_SUMMARY: Final = 1000
"""Characters of a first sentence; no bound is needed, and Typer wants one."""


class Command(TyperCommand):
    """A command of the command line. Contexts and formatters are of a click inside Typer, which is not public."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - see the class
        """Return what comes after the name of the command."""
        return ["[OPTIONS]", *(name if is_required else f"[{name}]" for name, is_required, _ in self._arguments(ctx))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - see the class
        """Write the docstring."""
        for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                if "\n " in paragraph:
                    formatter.write("".join(f"  {line}\n" for line in paragraph.splitlines()))
                else:
                    formatter.write_text(paragraph)

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - see the class
        """Write what the arguments and the options are."""
        arguments = [(name, text) for name, _, text in self._arguments(ctx)]
        records = [each.get_help_record(ctx) for each in self.get_params(ctx) if not isinstance(each, TyperArgument)]
        for heading, rows in (("Arguments", arguments), ("Options", [each for each in records if each is not None])):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def get_short_help_str(self, limit: int = _MAX_SUMMARY) -> str:
        """Return its line in a list of commands."""
        return super().get_short_help_str(max(limit, _MAX_SUMMARY))

    def _arguments(self, ctx: Any) -> list[tuple[str, bool, str]]:  # noqa: ANN401 - see the class
        """Return each argument as it is shown, whether it is required, and its help."""
        given = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return [
            (f"{each.metavar or each.name}{'' if each.nargs == 1 else '...'}", each.required, each.help or "")
            for each in given
        ]
