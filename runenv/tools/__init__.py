"""What the model holds in its hands: the tools, over any env and with the store. The table of contents.

async with open_env(config) as env, toolset(env, store, scope="run-1") as tools:
    result = await tools.call("exec", {"command": "ls"})

    toolset     the tools of one agent and what stands around each call;  tool, schema  one tool and its arguments;
                failures  errors as answers;  paths  what may be touched;  telemetry  spans and log records
    exec  search  artifact  listing  writing (replacing, seen)     one module a tool, or a few of one kind
    reading (opened)    `file_read`: text (encodings), pdf, notebooks, archives, documents for all else
    images      what is shown of an image;  image_pool, image_process, image_wire  the workers from outside;
                image_worker, image_decoding (image_structure), pdf_decoding  what runs in them
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
