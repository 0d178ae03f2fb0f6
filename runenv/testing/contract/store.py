"""The contract of the artifact store: what a place that keeps artifacts must do, as tests for any of them.

Made for pytest, and for authors and users of places inside and outside of this package: another folder, another S3
dialect, another cloud. A subclass in a test file says where its stores are and what they can; pytest finds the rest:

    from runenv.testing.contract.store import Place, StoreContract

    class TestMyBucket(StoreContract):
        has_exact_quotas = is_deduplicated = False

        @pytest.fixture
        def place(self) -> Place:
            return Place(f"s3://my-bucket/{uuid.uuid4()}", {"endpoint": "https://..."})

The attributes of `StoreTests` (in `store_base.py`) are what a subclass may say. Names of tests begin with the rule or
the case that they are the test of. What is special to one kind of place, such as its errors when it is out of reach, is
not here. The tests are async and run under anyio's pytest plugin, which comes with runenv, on asyncio.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}_{part}" for part in ("base", "content", "versions", "scopes", "lifetimes", "names", "damage"))
)

from runenv.testing.contract.store_base import Clock, Place, StoreTests  # noqa: E402 - as in the package's __init__
from runenv.testing.contract.store_content import StoreContent  # noqa: E402
from runenv.testing.contract.store_damage import StoreDamage  # noqa: E402
from runenv.testing.contract.store_lifetimes import StoreLifetimes  # noqa: E402
from runenv.testing.contract.store_names import StoreNames  # noqa: E402
from runenv.testing.contract.store_scopes import StoreScopes  # noqa: E402
from runenv.testing.contract.store_versions import StoreVersions  # noqa: E402

__all__ = (
    "Clock",
    "Place",
    "StoreContent",
    "StoreContract",
    "StoreDamage",
    "StoreLifetimes",
    "StoreNames",
    "StoreScopes",
    "StoreTests",
    "StoreVersions",
)


class StoreContract(StoreContent, StoreVersions, StoreScopes, StoreLifetimes, StoreNames, StoreDamage):
    """All that a store must do. Takes some seconds on two cores."""
