"""The contract: what every env must do, as tests that any implementation of `RunEnv` can be held to.

Made for pytest, and for authors of envs inside and outside of this package. A subclass in a test file says how its env
is made and what it can; pytest finds the rest:

    from runenv.testing.contract import EnvContract

    class TestMyEnv(EnvContract):
        python = "python3"
        known_failures = {"test_C112_cancelling_ends_the_command": "the vendor's API cannot end a command"}

        @classmethod
        def make_env(cls) -> RunEnv:
            return MyEnv(image="python:3.12-slim")

The attributes of `Contract` (in `base.py`) are what a subclass may say about its env. Names of tests begin with the
rule or the case that they are the test of; each part of the contract is a class of its own, for an env that is to be
held to that part only. What is special to one backend (its lifecycle, its errors at start) is not here.

The tests are async and run under anyio's pytest plugin, which comes with runenv, on asyncio. Above are test files;
below is the protocol, `runenv.env`: nothing here knows a backend.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("base", "exec", "ends", "output", "files", "paths", "writes"))
)
pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("trees", "tree_streams", "searches", "lifecycle", "limits"))
)

from runenv.testing.contract.base import Contract  # noqa: E402 - only now are its asserts explained when they fail
from runenv.testing.contract.ends import EndsContract  # noqa: E402
from runenv.testing.contract.exec import ExecContract  # noqa: E402
from runenv.testing.contract.files import FilesContract  # noqa: E402
from runenv.testing.contract.lifecycle import LifecycleContract  # noqa: E402
from runenv.testing.contract.limits import LimitsContract  # noqa: E402
from runenv.testing.contract.output import OutputContract  # noqa: E402
from runenv.testing.contract.paths import PathsContract  # noqa: E402
from runenv.testing.contract.searches import SearchesContract  # noqa: E402
from runenv.testing.contract.tree_streams import TreeStreamsContract  # noqa: E402
from runenv.testing.contract.trees import TreesContract  # noqa: E402
from runenv.testing.contract.writes import WritesContract  # noqa: E402

__all__ = (
    "Contract",
    "EndsContract",
    "EnvContract",
    "ExecContract",
    "FilesContract",
    "LifecycleContract",
    "LimitsContract",
    "OutputContract",
    "PathsContract",
    "SearchesContract",
    "TreeStreamsContract",
    "TreesContract",
    "WritesContract",
)


class EnvContract(
    ExecContract,
    EndsContract,
    OutputContract,
    FilesContract,
    PathsContract,
    WritesContract,
    TreesContract,
    TreeStreamsContract,
    SearchesContract,
    LifecycleContract,
    LimitsContract,
):
    """All that an env must do. Takes about a minute on two cores."""
