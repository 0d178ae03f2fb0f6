"""An index: every case from public bug reports that concerns us has a test that names it, or a reason why not yet.

A test names a case in its name or in the first words of its docstring: `test_C001_...`, `\"\"\"C001: ...`. The ids are
those of the project's list of cases, by kind; a new id in that list is added here first.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("tests", "runenv/testing")
CASE: Final = re.compile(r"C\d{3}(?!\d)")

CASES: Final = {
    "exec": (
        "C001 C002 C003 C004 C006 C008 C010 C011 C012 C013 C015 C016 C018 C019 C020 C021 C023 C024 C025 C026 C027 C028"
        " C031 C032"
    ).split(),
    "files": "C034 C036 C037 C038 C040 C041 C044 C045 C047 C048 C049 C050 C052".split(),
    "docker lifecycle": "C066 C067 C068 C069 C070 C073 C074 C077 C078".split(),
    "images": "C054 C056 C057 C058 C059 C060 C062 C065".split(),
    "artifacts": "C079 C080 C081 C082 C083 C085 C086 C088 C089 C091".split(),
    "offload": "C093 C094 C096 C097 C099 C100 C101 C102".split(),
    "security": "C105 C106 C108 C109".split(),
}

NOT_YET: Final[dict[str, str]] = {}
"""Cases that no test is for, and why."""

PARTS_NOT_YET: Final = {
    "C031": "that each adapter shows the partial output comes with the adapters",
}
"""Parts of cases that no test is for, beside those that are tested."""


def find_cases() -> dict[str, list[str]]:
    """Find the tests of every case, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for case in CASE.findall(f"{node.name} {ast.get_docstring(node) or ''}"):
                    found.setdefault(case, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def test_every_case_has_a_test_or_a_reason() -> None:
    """Nothing of the list is forgotten."""
    tests = find_cases()
    missing = [case for cases in CASES.values() for case in cases if case not in tests and case not in NOT_YET]
    assert missing == []


def test_no_reason_is_out_of_date() -> None:
    """A case that is tested needs none, a part of one stands beside tests, and each is in the list."""
    tests = find_cases()
    listed = {case for cases in CASES.values() for case in cases}
    assert [case for case in NOT_YET if case in tests] == []
    assert [case for case in PARTS_NOT_YET if case not in tests] == []
    assert (NOT_YET.keys() | PARTS_NOT_YET.keys()) - listed == set()


def test_ids_are_listed_once() -> None:
    """A case is of one kind."""
    listed = [case for cases in CASES.values() for case in cases]
    assert sorted(set(listed)) == sorted(listed)
