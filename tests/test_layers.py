"""Who may import whom: the table of the design, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import runenv

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(runenv.__file__).parent
MODULES: Final = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@dataclass(frozen=True)
class Rule:
    """What the modules of one row of the table may import; the first row that fits a module holds."""

    modules: tuple[str, ...]
    own: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


VALUES: Final = ("runenv.errors", "runenv.types", "runenv.output", "runenv.placeholders", "runenv.guest.frames")
PROTOCOLS: Final = ("runenv.config", "runenv.config_file", "runenv.env")
GUEST: Final = ("runenv.guest",)
ENVS: Final = ("runenv.envs", "runenv.sync")
ARTIFACTS: Final = ("runenv.artifacts",)
TOOLS: Final = ("runenv.tools",)
DECODERS: Final = ("runenv.tools.image_decoding", "runenv.tools.pdf_decoding")
"""What runs in worker processes only."""
DOCKER_SDK: Final = ("docker", "requests", "urllib3")
TABLE: Final = (
    Rule(VALUES, own=VALUES),
    Rule(PROTOCOLS, own=VALUES + PROTOCOLS, libraries=("pydantic", "pydantic_core", "yaml")),
    Rule(GUEST, own=VALUES + PROTOCOLS + GUEST, libraries=("anyio",)),
    Rule(
        ("runenv.envs.docker.engine", "runenv.envs.docker.faults"),
        own=VALUES + PROTOCOLS + GUEST + ENVS,
        libraries=("anyio", "tenacity", *DOCKER_SDK),
    ),
    Rule(ENVS, own=VALUES + PROTOCOLS + GUEST + ENVS, libraries=("anyio", "pydantic", "tenacity")),
    Rule(
        ("runenv.artifacts",),
        own=VALUES + PROTOCOLS + ARTIFACTS,
        libraries=("anyio", "obstore", "pydantic", "tenacity"),
    ),
    Rule(("runenv.providers",), own=(*VALUES, "runenv.providers")),
    Rule(DECODERS, own=VALUES + PROTOCOLS + ARTIFACTS + TOOLS, libraries=("PIL", "pillow_heif", "pypdfium2")),
    Rule(
        TOOLS,
        own=VALUES + PROTOCOLS + ARTIFACTS + TOOLS,
        libraries=("anyio", "opentelemetry", "pydantic", "pydantic_core"),
    ),
    Rule(
        ("runenv.adapters.mcp",),
        own=VALUES + PROTOCOLS + ARTIFACTS + TOOLS + ("runenv.envs", "runenv.providers", "runenv.adapters"),
        libraries=("anyio", "h11", "mcp", "pydantic", "starlette", "uvicorn"),
    ),
    Rule(("runenv.adapters",)),
    Rule(
        ("runenv.testing",),
        own=("runenv",),
        libraries=("anyio", "docker", "hypothesis", "obstore", "pytest", "testcontainers"),
    ),
    Rule(("runenv.cli",), own=("runenv",), libraries=("anyio", "rich", "typer")),
    Rule(("runenv",), own=("runenv",)),
)


def within(module: str, names: tuple[str, ...]) -> bool:
    """Say whether a module is one of `names` or inside of one."""
    return any(module == name or module.startswith(f"{name}.") for name in names)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it, for types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_what_its_level_may(module: str) -> None:
    """Own modules of its level and below, and the libraries that belong there."""
    rule = next(rule for rule in TABLE if within(module, rule.modules))
    for name in imports(MODULES[module]):
        top = name.partition(".")[0]
        if top == "runenv":
            assert within(name, rule.own), f"{module} imports {name}"
        else:
            assert top in sys.stdlib_module_names or top in rule.libraries, f"{module} imports {name}"


def test_no_backend_imports_another() -> None:
    """The local env knows nothing of Docker, and the other way round."""
    local, docker = "runenv.envs.local", "runenv.envs.docker.env"
    assert docker not in reached(local)
    assert local not in reached(docker)
    assert "runenv.envs.docker.engine" not in reached(local)
    assert "runenv.envs.docker.engine" in reached(docker)


def reached(module: str) -> set[str]:
    """The package's modules that a module imports, directly or not."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for name in imports(MODULES[waiting.pop()]):
            if name in MODULES and name not in seen:
                seen.add(name)
                waiting.append(name)
    return seen


@pytest.mark.parametrize("statement", ["import runenv", "import runenv.envs.local"])
def test_importing_loads_nothing_optional(statement: str) -> None:
    """No Docker SDK, no command line, no test library: only what is used is loaded."""
    program = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pydantic" in loaded
    assert not loaded & {*DOCKER_SDK, "tenacity", "typer", "rich", "pytest", "testcontainers", "obstore", "PIL"}
