"""Providers: pure functions both ways between our parts and each vendor's JSON.

One module a wire: `anthropic` (Messages), `openai_responses`, `openai_chat` (Chat Completions, and what is compatible
with it), `gemini`, `bedrock` (Converse), `mcp`. Each has `tool_definitions`, `tool_calls` and `tool_results`, and
`tool_result` where one result is a value of its own there. Nothing here sends a request or imports a vendor's SDK.

`fit` keeps a request within a vendor's `limits`; `strip_media` makes one that a vendor refused fit to be sent again.
"""

from __future__ import annotations

from runenv.providers import anthropic, bedrock, gemini, limits, mcp, openai_chat, openai_responses
from runenv.providers.budget import fit, fit_results
from runenv.providers.limits import Limits
from runenv.providers.pieces import Images
from runenv.providers.rejection import strip_media
from runenv.providers.spots import Lighter
from runenv.types import BadCall

__all__ = (
    "BadCall",
    "Images",
    "Lighter",
    "Limits",
    "anthropic",
    "bedrock",
    "fit",
    "fit_results",
    "gemini",
    "limits",
    "mcp",
    "openai_chat",
    "openai_responses",
    "strip_media",
)
