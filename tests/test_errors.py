"""Errors have one root, are builtins where a builtin says it, and foreign ones become ours at the boundary."""

from __future__ import annotations

import pytest

from runenv import errors
from runenv.errors import (
    ConfigError,
    EnvClosedError,
    EnvError,
    EnvLostError,
    EnvStartError,
    LimitError,
    RunEnvError,
    translate,
)


def test_every_error_has_one_root() -> None:
    """One `except RunEnvError` catches what is ours."""
    classes = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
    assert len(classes) == 13
    assert all(issubclass(error, RunEnvError) for error in classes)


def test_a_failed_env_is_told_from_a_wrong_request() -> None:
    """`EnvError` is the environment's failure; a configuration is also a `ValueError`."""
    assert {EnvStartError, EnvLostError, EnvClosedError} == set(EnvError.__subclasses__())
    assert issubclass(ConfigError, ValueError)
    assert not issubclass(ConfigError, EnvError)
    assert not issubclass(LimitError, EnvError)


def test_a_foreign_error_becomes_ours_with_its_cause() -> None:
    """What was being done, what was said, on one line."""
    with pytest.raises(EnvStartError) as caught, translate({OSError: EnvStartError}, "the engine was asked"):
        raise ConnectionRefusedError("no\n  one   there")
    assert str(caught.value) == "the engine was asked: no one there"
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_a_silent_foreign_error_is_told_by_its_type() -> None:
    """A sentence never ends in nothing."""
    with pytest.raises(EnvLostError, match=r"^reading: EOFError$"), translate({EOFError: EnvLostError}, "reading"):
        raise EOFError


def test_the_first_match_in_order_decides() -> None:
    """So a table goes from the special to the general."""
    table: dict[type[BaseException], type[RunEnvError]] = {FileNotFoundError: ConfigError, OSError: EnvError}
    with pytest.raises(ConfigError), translate(table, "x"):
        raise FileNotFoundError
    with pytest.raises(EnvError), translate(table, "x"):
        raise PermissionError


def test_other_errors_pass() -> None:
    """What is not in the table is not ours to explain."""
    with pytest.raises(KeyError), translate({OSError: EnvError}, "x"):
        raise KeyError
    with translate({OSError: EnvError}, "x"):
        pass
