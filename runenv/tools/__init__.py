"""What the model holds in its hands: the tools, over any env and with the store. The table of contents.

async with open_env(config) as env, toolset(env, store, scope="run-1") as tools:
    result = await tools.call("exec", {"command": "ls"})
"""

from __future__ import annotations

from runenv.tools.images import ImageLimits
from runenv.tools.paths import PathRules
from runenv.tools.tool import Tool
from runenv.tools.toolset import TOOLS, AfterCall, BeforeCall, Toolset, toolset

__all__ = (
    "TOOLS",
    "AfterCall",
    "BeforeCall",
    "ImageLimits",
    "PathRules",
    "Tool",
    "Toolset",
    "toolset",
)
