"""Artifacts: bytes behind handles, so that no model has to carry or retype them.

    async with ArtifactStore.open("s3://bucket/prefix") as store:
        handle = await save(env, "deck.pptx", store, scope="run-1")

The table of contents; each name is described where it is defined. Below are the values and protocols of the package and
obstore; the envs are not known here, only the protocol that they keep.

    store       the policies, over `backends/`;  artifact, names, media (extensions)  its values and their rules;
                sources, content  bytes on their way in
    handles     the short texts;  results  artifacts in what a tool gives;  arguments (nested, copies)  handles in what
                it takes;  transfers  between a store and an env
    offload     long results, cut for a model (previews);  retrieval (references, paging, lines)  the way back to them
    inputs/     blobs in incoming messages
"""

from __future__ import annotations

# What a tool takes and gives.
from runenv.artifacts.arguments import Form, expand, expanded
from runenv.artifacts.artifact import Artifact, Level, Record, Scope

# Where it lies.
from runenv.artifacts.backends.backend import Pruned, Quotas
from runenv.artifacts.handles import find, parse, part, placeholder

# What a model sees, and how it gets at the rest.
from runenv.artifacts.inputs import save_inputs
from runenv.artifacts.offload import READING_TOOLS, Offloader
from runenv.artifacts.results import absorb
from runenv.artifacts.retrieval import Retrieval
from runenv.artifacts.store import DEFAULT_TTL, MAX_GET_BYTES, ArtifactStore

# Between an env and a store.
from runenv.artifacts.transfers import load, load_tree, save, save_tree

__all__ = (
    "DEFAULT_TTL",
    "MAX_GET_BYTES",
    "READING_TOOLS",
    "Artifact",
    "ArtifactStore",
    "Form",
    "Level",
    "Offloader",
    "Pruned",
    "Quotas",
    "Record",
    "Retrieval",
    "Scope",
    "absorb",
    "expand",
    "expanded",
    "find",
    "load",
    "load_tree",
    "parse",
    "part",
    "placeholder",
    "save",
    "save_inputs",
    "save_tree",
)
