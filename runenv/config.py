"""What an env is made from: one frozen model for each kind. No engine, no file is touched here but to look at mounts.

`runenv.envs` is above and reads these, `runenv.config_file` makes them from a file; below are only `runenv.errors` and
pydantic. Every refusal is a `ConfigError` of one sentence. None shows a value, since it may be a secret, except the
paths and names that a sentence would be useless without.

Sizes are bytes and may be given as text with a unit, as for the docker command: "512m", "1GiB" (k, m, g, t; always
powers of 1,024). Times are seconds. In both, None means no limit where the type allows it.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import posixpath
import re
import stat
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from runenv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

__all__ = ("BindMount", "DockerConfig", "EnvConfig", "LocalConfig", "Mount", "TmpfsMount", "VolumeMount")

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
_UNITS: Final = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_BOUNDS: Final = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
}
"""Of pydantic's refusals: where each has its bound, and what that is in words."""
_DOC_WIDTH: Final = 110
"""Columns of a model's docstring."""
_MAX_ID: Final = 2**32 - 2
"""The largest user or group id; the one above means "nobody" to the kernel's calls."""

_KERNEL_FOLDERS: Final = ("/dev", "/proc", "/sys")
_GUEST_FOLDER: Final = "/.runenv"
"""In a container the place of the guest; nothing else may be mounted there."""
_GUEST_VOLUMES: Final = "runenv-guest-"
"""How the names of the volumes with the guest begin."""
_ENGINE_SOCKETS: Final = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/user/0/docker.sock",
)
"""Whoever reaches one of these is root on the host. Beside them every path that is a socket is refused."""
_HOME_SOCKETS: Final = ("~/.docker/run/docker.sock", "~/.docker/desktop/docker.sock")
_ENGINE_SCHEMES: Final = ("unix", "tcp", "http", "https", "ssh", "npipe")


@contextmanager
def _refusals(model: type[BaseModel]) -> Generator[None]:
    """Tell in one sentence what pydantic found."""
    try:
        yield
    except ValidationError as error:
        sentences = [_sentence(model, detail) for detail in error.errors(include_url=False, include_input=False)]
        raise ConfigError("; ".join(sentences)) from None  # the cause would hold the values


def _sentence(model: type[BaseModel], detail: ErrorDetails) -> str:
    *parents, key = detail["loc"] or ("",)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    cause = detail.get("ctx", {}).get("error")
    if detail["type"] == "extra_forbidden" and not parents:
        return f"{model.__name__} has no key {str(key)!r}; {_nearest(str(key), tuple(model.model_fields))}"
    if isinstance(cause, ConfigError):  # the sentence of a model within this one, or of this one itself
        return f"{model.__name__}{place}: {cause}" if place else str(cause)
    if detail["type"] == "missing":
        return f"{model.__name__}{place} is missing"
    if detail["type"] in _BOUNDS:
        name, words = _BOUNDS[detail["type"]]
        return f"{model.__name__}{place}: must be {words} {_shown(str(key), detail.get('ctx', {}).get(name))}"
    message = str(cause) if cause else detail["msg"][:1].lower() + detail["msg"][1:]
    return f"{model.__name__}{place}: {message}"


def _shown(key: str, value: object) -> str:
    """Write a value of a key for people; bytes with their unit."""
    if not key.endswith("_bytes") or not isinstance(value, int):
        if isinstance(value, float):
            return f"{value:g}"
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if value and value % unit == 0:
            return f"{value // unit:,} {name}"
    return f"{value:,} bytes"


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"


def _key_line(key: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"default {_shown(key, field.default)}"
    text = f"{key}: {' '.join((field.description or '').split())} ({default})"
    return textwrap.fill(text, _DOC_WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)


class _Settings(BaseModel):
    """Frozen, without unknown keys, and refusing with `ConfigError` however it is made."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        validate_default=False,
    )

    if not TYPE_CHECKING:  # type checkers take the signature from the fields

        @classmethod
        def __pydantic_init_subclass__(cls, **_: object) -> None:
            """Have `help()` tell what can be set: each key with its default, without the types' validators."""
            fields = {key: field for key, field in cls.model_fields.items() if key != "kind"}
            lines = [_key_line(key, field) for key, field in fields.items()]
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "Attributes:", *lines])
            cls.__signature__ = inspect.Signature(
                [
                    inspect.Parameter(
                        key,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=inspect.Parameter.empty if field.is_required() else field.default,
                    )
                    for key, field in fields.items()
                ]
            )

        def __init__(self, **data: object) -> None:
            """Check the settings.

            Raises:
                ConfigError: a key is unknown or its value is not allowed.
            """
            with _refusals(type(self)):
                super().__init__(**data)

        def __setattr__(self, name: str, value: object) -> None:
            with _refusals(type(self)):  # even this refusal of pydantic's shows the value
                super().__setattr__(name, value)

        @classmethod
        def model_validate(cls, *args: object, **options: object) -> Self:
            """As pydantic's, with our error."""
            with _refusals(cls):
                return super().model_validate(*args, **options)

        @classmethod
        def model_validate_json(cls, *args: object, **options: object) -> Self:
            """As pydantic's, with our error."""
            with _refusals(cls):
                return super().model_validate_json(*args, **options)


def _size(value: object) -> object:
    """Read "512m" and the like; anything else is for the field's own type."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"{value!r} is no size: write bytes, or a number with a unit such as '512m' or '1GiB'")
    return math.floor(float(found[1]) * _UNITS[found[2].lower()])


def _seconds(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError("seconds are a finite number above 0")
    return value


def _variables(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, secret in value.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be the name of an environment variable")
        if "\0" in secret.get_secret_value():
            raise ValueError(f"the value of {name!r} has a NUL in it, which no environment variable can hold")
    return value


def _env_folder(value: str) -> str:
    if not value.startswith("/") or not value.isprintable():
        raise ValueError(f"{value!r} is no absolute path inside the container")
    path = "/" + posixpath.normpath(value).lstrip("/")
    if path == "/" or any(_holds(folder, path) for folder in ("/proc", "/sys", _GUEST_FOLDER)) or path == "/dev":
        raise ValueError(f"{value!r} cannot be used: choose a folder that is neither the root nor the system's own")
    return path


def _numeric_user(value: object) -> object:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return value
    uid, _, gid = text.partition(":")
    ids = (uid, gid) if ":" in text else (uid, uid)
    if not all(part.isascii() and part.isdigit() and int(part) <= _MAX_ID for part in ids):
        raise ValueError(f"{text!r} is no numeric 'uid' or 'uid:gid': names are unknown before the image is there")
    return ":".join(str(int(part)) for part in ids)


def _capability(value: str) -> str:
    name = value.upper().removeprefix("CAP_")
    if not re.fullmatch(r"[A-Z][A-Z_]*", name):
        raise ValueError(f"{value!r} is no capability: write it as 'NET_ADMIN'")
    return name


def _labels(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not name or name.startswith("runenv."):
            raise ValueError(f"the label {name!r} cannot be set: those that start with 'runenv.' are kept for runenv")
    return value


def _engine_url(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if scheme not in _ENGINE_SCHEMES or not separator or not rest:
        schemes = ", ".join(f"{scheme}://" for scheme in _ENGINE_SCHEMES)
        raise ValueError(f"it is no address of an engine: it starts with one of {schemes}")
    return value


def _matching(pattern: str, what: str) -> Callable[[str], str]:
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is no {what}")
        return value

    return check


def _volume_name(value: str) -> str:
    if value.startswith(_GUEST_VOLUMES):
        raise ValueError(f"{value!r} is no name for a volume: {_GUEST_VOLUMES!r} begins those that are runenv's own")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]+", value):
        raise ValueError(f"{value!r} is no name for a volume: letters, digits, '_', '.', '-', two or more")
    return value


def _from_home(value: Path) -> Path:
    return Path(posixpath.expanduser(value))  # unlike pathlib's, harmless for a user without a home


def _host_folder(value: Path) -> Path:
    return _from_home(value).absolute()


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


Size: TypeAlias = Annotated[int, BeforeValidator(_size)]
Seconds: TypeAlias = Annotated[float, AfterValidator(_seconds)]
EnvFolder: TypeAlias = Annotated[str, AfterValidator(_env_folder)]


class BindMount(_Settings):
    """A file or folder of the engine's host, inside the container."""

    kind: Literal["bind"] = "bind"
    """What sort of mount this is."""
    source: Annotated[Path, AfterValidator(_from_home)]
    """Absolute path on the host where the engine runs, where it must be; `~` is the home of this process' user."""
    target: EnvFolder
    """Absolute path inside the container."""
    read_only: bool = True
    """The container cannot change it."""
    unsafe: bool = False
    """Allow a source that gives the host away: `/`, a socket such as the engine's, a folder that holds one, and the
    kernel's own folders."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.source.is_absolute():
            raise ConfigError(f"the source {str(self.source)!r} of a bind mount is not absolute")
        if not self.unsafe and (reason := _gives_host_away(self.source)):
            raise ConfigError(
                f"the source {str(self.source)!r} of a bind mount {reason}: it would give the container power over"
                " the host; set unsafe=True if you want that (in a file: unsafe: true)"
            )
        return self


class VolumeMount(_Settings):
    """A named volume of the engine; made when it is not there, kept when the env ends."""

    kind: Literal["volume"] = "volume"
    """What sort of mount this is."""
    name: Annotated[str, AfterValidator(_volume_name)]
    """Name of the volume: letters, digits, `_`, `.`, `-`."""
    target: EnvFolder
    """Absolute path inside the container."""
    read_only: bool = False
    """The container cannot change it."""


class TmpfsMount(_Settings):
    """A folder in memory, gone when the env ends; what is in it counts against `memory_bytes`."""

    kind: Literal["tmpfs"] = "tmpfs"
    """What sort of mount this is."""
    target: EnvFolder
    """Absolute path inside the container."""
    size_bytes: Annotated[Size, Field(ge=4 * KIB)] = 64 * MIB
    """How much fits, at least 4 KiB."""


Mount: TypeAlias = Annotated[BindMount | VolumeMount | TmpfsMount, Field(discriminator="kind")]


class EnvConfig(_Settings):
    """What every kind of env has; each kind has its own `kind` beside."""

    environment: Annotated[dict[str, SecretStr], AfterValidator(_variables)] = {}
    """Variables for every command, over the base environment. Plain text is taken; it is masked in logs and errors."""
    timeout: Seconds | None = 120.0
    """Seconds that a command may take unless its call says otherwise, then its whole process tree is killed."""
    max_output_bytes: Annotated[Size, Field(ge=KIB, le=64 * MIB)] = 240_000
    """How much of each of stdout and stderr comes back as bytes, 1 KiB to 64 MiB: the first and the last half."""
    max_text_chars: Annotated[int, Field(ge=1000)] = 30_000
    """Bound of the text view of each of them in characters, at least 1,000; never more than `max_output_bytes`."""
    spill_quota_bytes: Annotated[Size, Field(ge=0)] = 256 * MIB
    """What the files with whole outputs may take in the env together; the oldest are deleted first."""


class LocalConfig(EnvConfig):
    """A working folder on this host. Not a security boundary: commands run as this process' user."""

    kind: Literal["local"] = "local"
    """Which env this is for."""
    workdir: Annotated[Path, AfterValidator(_host_folder)] | None = None
    """Working folder, which must be there; a relative one starts at this process' own. When None a temporary one is
    made, and deleted at close."""
    confine: bool = True
    """File verbs and `cwd` stay inside the working folder, symbolic links resolved. Commands are not bound by it."""


class DockerConfig(EnvConfig):
    """A container. The defaults give a command no network, no capabilities, no mounts and bounded resources."""

    kind: Literal["docker"] = "docker"
    """Which env this is for."""
    image: Annotated[str, AfterValidator(_matching(r"[A-Za-z0-9][\w.:/@-]*", "name of an image"))] = "python:3.12-slim"
    """Any image, by name, tag or digest. Its entrypoint, command and health check do not run."""
    workdir: EnvFolder = "/workspace"
    """Absolute path inside the container where commands start; made writable for `user`."""
    user: Annotated[str, BeforeValidator(_numeric_user)] = "1000:1000"
    """Numeric "uid" or "uid:gid" of every command; the group is that of the user's number unless given."""
    network: Literal["none", "full"] = "none"
    """"none", or "full" for what the engine's default network reaches: the internet and often the host."""
    memory_bytes: Annotated[Size, Field(ge=32 * MIB)] | None = GIB
    """Memory of all processes together, at least 32 MiB; swap is not added."""
    pids: Annotated[int, Field(ge=16)] | None = 1024
    """Processes and threads at a time, at least 16."""
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 2.0
    """CPU time in CPUs; at most what the engine has."""
    read_only: bool = False
    """The root is read-only; `workdir`, `/tmp` and the home folder are in memory then."""
    cap_add: tuple[Annotated[str, AfterValidator(_capability)], ...] = ()
    """Linux capabilities beside none, such as "NET_ADMIN"."""
    allow_new_privileges: bool = False
    """Programs with setuid bits or file capabilities get what they ask for (`sudo`, `ping`)."""
    mounts: tuple[Mount, ...] = ()
    """What else is inside: `BindMount`, `VolumeMount`, `TmpfsMount`, each at its own target."""
    pull: Literal["missing", "always", "never"] = "missing"
    """When the image is fetched from its registry: "missing" on the engine, "always", or "never"."""
    pull_timeout: Seconds = 600.0
    """Seconds that fetching it may take."""
    platform: Annotated[str, AfterValidator(_matching(r"[a-z0-9_]+/[a-z0-9_]+(/[a-z0-9_.]+)?", "platform"))] | None = (
        None
    )
    """Such as "linux/arm64"; the engine's own when None."""
    labels: Annotated[dict[str, str], AfterValidator(_labels)] = {}
    """Labels of the container, for your own tools; names that start with "runenv." are kept for runenv."""
    engine: Annotated[str, AfterValidator(_engine_url)] | None = None
    """Address of the engine, such as "unix:///run/docker.sock" or "ssh://user@host". When None it is found as the
    docker command finds it: DOCKER_HOST, the current context, the default socket."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        targets = [mount.target for mount in self.mounts]
        for target in targets:
            if targets.count(target) > 1:
                raise ConfigError(f"DockerConfig.mounts: two mounts have the target {target!r}")
        return self


def _resolved(path: str | Path) -> str:
    """With links followed, as far as they can be: the engine may be on another host, the path not ours to read."""
    try:
        return os.path.realpath(path)
    except OSError:
        return str(path)


def _gives_host_away(source: Path) -> str | None:
    """Why a mount of `source` would be no sandbox any more, or None."""
    resolved = Path(_resolved(source))
    try:
        if stat.S_ISSOCK(resolved.stat().st_mode):
            return "is a socket"
    except OSError:
        pass  # the names still tell something
    sockets = [*_ENGINE_SOCKETS, *filter(os.path.exists, map(posixpath.expanduser, _HOME_SOCKETS))]
    for path in {posixpath.normpath(source.as_posix()), resolved.as_posix()}:
        if path.strip("/") == "":
            return "is the whole file system"
        if path.endswith(("/docker.sock", "/podman.sock", "/containerd.sock")):
            return "is the socket of an engine"
        if any(_holds(path, socket) or _holds(path, _resolved(socket)) for socket in sockets):
            return "holds the socket of an engine"
        if any(_holds(folder, path) for folder in _KERNEL_FOLDERS):
            return "belongs to the host's kernel"
    return None
