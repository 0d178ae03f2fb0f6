"""What is public: every module says so, and the sync env is the async one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

import runenv
from runenv.env import RunEnv
from runenv.sync import SyncRunEnv

PACKAGE: Final = Path(runenv.__file__).parent
MODULES: Final = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


PUBLIC: Final = (
    "runenv",
    "runenv.config",
    "runenv.config_file",
    "runenv.env",
    "runenv.envs",
    "runenv.errors",
    "runenv.output",
    "runenv.sync",
    "runenv.testing.contract",
    "runenv.testing.scripted",
    "runenv.types",
)
"""What users import from; everything else is the package's own."""


@pytest.mark.parametrize("module", MODULES)
def test_what_a_module_names_is_there(module: str) -> None:
    """`__all__` is a tuple of names that exist, each once."""
    loaded = importlib.import_module(module)
    public = getattr(loaded, "__all__", ())
    assert isinstance(public, tuple)
    assert len(set(public)) == len(public)
    assert all(hasattr(loaded, name) for name in public)


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_names_all_that_it_defines(module: str) -> None:
    """Every class and function without an underscore is meant for others."""
    defined = {
        node.name
        for node in ast.parse(MODULES[module].read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    assert defined <= set(importlib.import_module(module).__all__)


def test_the_table_of_contents_is_short() -> None:
    """At most 30 names, and nothing beside them but modules."""
    assert len(runenv.__all__) <= 30
    names = {name for name in vars(runenv) if not name.startswith("_")} - {"annotations"}
    assert {name for name in names if not inspect.ismodule(getattr(runenv, name))} == set(runenv.__all__)


def verbs(env: type) -> dict[str, object]:
    """Everything public of an env, by its name in the sync world."""
    return {name.replace("aclose", "close"): member for name, member in vars(env).items() if not name.startswith("_")}


def test_the_sync_env_has_the_same_verbs() -> None:
    """No more and no fewer."""
    assert set(verbs(SyncRunEnv)) == set(verbs(RunEnv))


@pytest.mark.parametrize("verb", sorted(verbs(RunEnv)))
def test_a_sync_verb_has_the_signature_of_the_async_one(verb: str) -> None:
    """The same parameters with the same defaults and types; what is async there is plain here."""
    ours, theirs = verbs(SyncRunEnv)[verb], verbs(RunEnv)[verb]
    if isinstance(theirs, property):
        assert isinstance(ours, property)
        ours, theirs = ours.fget, theirs.fget
    assert callable(ours)
    assert callable(theirs)
    assert signature(ours) == signature(theirs)


def signature(function: object) -> str:
    """The signature as text, with the types of the sync world."""
    assert callable(function)
    text = str(inspect.signature(function))
    text = re.sub(r"AbstractAsyncContextManager\[(.*)\]", r"Generator[\1]", text)
    return text.replace("Async", "").replace("'", "")
