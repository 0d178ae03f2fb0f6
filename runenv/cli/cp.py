"""`runenv cp`: files and trees between this host and a named volume.

An env ends with its owner, so today the place that outlives one is a volume of the engine. It is reached through a
container of a moment, with nothing but the guest in it. No shell or program of its image is used, so that any image
will do: the default one where it is on the engine, else another that is. A later version copies to and from persistent
envs; the form `volume:NAME/PATH` leaves every other name to them.
"""

import errno
import os
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer
from rich.console import Console

from runenv.cli.images import images_here
from runenv.cli.options import Kind, User, blamed, env_config
from runenv.cli.terminal import FAILED, bytes_in, complain_refused, moved, one_line_errors, transfer_bar
from runenv.config import DockerConfig, VolumeMount
from runenv.env import RunEnv
from runenv.envs import open_env
from runenv.errors import ConfigError, RunEnvError
from runenv.types import TransferResult

__all__ = ("cp_command",)

SCHEME: Final = "volume:"
MOUNT: Final = "/workspace"
"""Where the volume is in the container; the working folder, so it belongs to the env's user when it is new."""
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class _Place:
    """A path in a volume."""

    volume: str
    path: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.volume}/{self.path}" if self.path else f"{SCHEME}{self.volume}"

    @property
    def env_path(self) -> str:
        """Where it is in the container."""
        return posixpath.join(MOUNT, self.path)


def cp_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Path on this host, or volume:NAME/PATH.", show_default=False)
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The other of the two.", show_default=False)],
    *,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Image of the container that copies; any that is there unless given."),
    ] = None,
    user: User = None,
) -> None:
    """Copy a file or a tree to or from a named Docker volume.

    As `cp -r` does: into TARGET where that is a folder or ends in /, else to that name. SOURCE/. stands for what is in
    the folder. A volume that is not there is made.

    An env ends with its command, a volume stays: see the second example.

    Exit status: 0, or 1 when something was not copied.

    Examples:
        runenv cp ./data volume:work/
        runenv exec -v work:/workspace -- 'python3 data/run.py >result.txt'
        runenv cp volume:work/result.txt .
    """
    with one_line_errors():
        inside, outside = _place(source), _place(target)
        if inside is not None and outside is None:
            config = _config(inside, image, user, read_only=True)
            is_complete = anyio.run(_download, config, inside, _target(inside, target))
        elif outside is not None and inside is None:
            config = _config(outside, image, user)
            is_complete = anyio.run(_upload, config, _source(source), outside)
        else:
            which = "neither" if inside is None else "each"
            raise ConfigError(f"{which} of SOURCE and TARGET is a volume: one of them is volume:NAME/PATH")
    raise typer.Exit(0 if is_complete else FAILED)


def _place(text: str) -> _Place | None:
    if not text.startswith(SCHEME):
        return None
    volume, _, path = text.removeprefix(SCHEME).partition("/")
    path = path.lstrip("/")
    if not volume or ".." in path.split("/"):
        raise ConfigError(f"{text!r} is no place in a volume: write volume:NAME/PATH, without '..'")
    return _Place(volume, path)


def _config(place: _Place, image: str | None, user: str | None, *, read_only: bool = False) -> DockerConfig:
    with blamed(repr(str(place))):
        mount = VolumeMount(name=place.volume, target=MOUNT, read_only=read_only)
    config = env_config(Kind.DOCKER, settings={"image": image, "user": user, "mounts": (mount,)})
    assert isinstance(config, DockerConfig)  # noqa: S101 - asked for
    return config


@dataclass(frozen=True, slots=True)
class _Source:
    """What goes into a volume.

    Attributes:
        path: on this host.
        name: of its copy in a folder; "" when it is the folder's content that is copied.
        total: bytes to expect.
    """

    path: Path
    name: str
    total: int


def _source(text: str) -> _Source:
    path = Path(text)
    total = bytes_in(path)
    if total is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
    name = "" if _means_content(text) else Path(os.path.abspath(path)).name  # noqa: PTH100 - links are not followed
    return _Source(path, name, total)


def _target(source: _Place, text: str) -> Path:
    """Return where on this host a copy of `source` goes."""
    path = Path(text)
    if not text.endswith("/") and not path.is_dir():
        return path
    name = posixpath.basename(source.path.rstrip("/")) or source.volume
    return path if _means_content(source.path) else path / name


async def _upload(config: DockerConfig, source: _Source, target: _Place) -> bool:
    config = await _prepared(config)
    console = Console(stderr=True)
    async with open_env(config) as env:
        is_within = await _is_folder(env, target)
        path = posixpath.join(target.env_path, source.name) if is_within else target.env_path
        with transfer_bar(console, str(source.path), source.total) as progress:
            result = await env.upload(source.path, path, progress=progress)
    return _report(console, result, f"{SCHEME}{target.volume}{path.removeprefix(MOUNT)}")


async def _download(config: DockerConfig, source: _Place, target: Path) -> bool:
    config = await _prepared(config, volume=source.volume)
    console = Console(stderr=True)
    async with open_env(config) as env:
        try:
            with transfer_bar(console, str(source)) as progress:
                result = await env.download(source.env_path, target, progress=progress)
        except FileNotFoundError as error:
            if error.filename == source.env_path:
                error.filename = str(source)  # where it is in our container helps nobody
            raise
    return _report(console, result, str(target))


def _means_content(path: str) -> bool:
    return path == "." or path.endswith("/.")


async def _is_folder(env: RunEnv, place: _Place) -> bool:
    if place.path.endswith("/"):
        return True
    try:
        return (await env.stat(place.env_path)).is_dir
    except FileNotFoundError:
        return False


async def _prepared(config: DockerConfig, *, volume: str | None = None) -> DockerConfig:
    """Return the configuration with an image that is on the engine, unless one was asked for.

    Args:
        config: as the options have it.
        volume: which one is to be read. It must be there: mounting it would make it.

    Raises:
        RunEnvError: there is no such volume.
    """
    from runenv.envs.docker.engine import Engine
    from runenv.envs.docker.faults import EngineFault

    engine = await Engine.connect(config.engine)
    try:
        if volume is not None:
            await engine.call(lambda client: client.inspect_volume(volume))
        if "image" in config.model_fields_set:
            return config
        here = await images_here(engine)
        return config.model_copy(update={"image": here[0]}) if here else config
    except EngineFault as fault:
        if volume is not None and fault.status == _NOT_FOUND:
            missing = f"there is no volume {volume!r} on the engine (docker volume ls shows those that are)"
            raise RunEnvError(missing) from fault
        raise RunEnvError(str(fault)) from fault
    finally:
        await engine.close()


def _report(console: Console, result: TransferResult, target: str) -> bool:
    is_complete = not complain_refused(result)
    console.print(f"copied {moved(result)} to {target}", markup=False, highlight=False, soft_wrap=True)
    return is_complete
