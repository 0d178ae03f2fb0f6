"""Where artifacts are kept: a URL becomes a `Backend`. What a backend needs is loaded when one of its kind is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from runenv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.artifacts.backends.backend import Backend

__all__ = ("folder_of", "make_backend")

SCHEMES: Final = ("memory", "file", "s3", "gs", "az")
OBJECT_STORAGE: Final = ("s3", "gs", "az")


def make_backend(url: str, options: Mapping[str, str]) -> Backend:
    """Return the backend of a URL, not yet open.

    Args:
        url: `memory://`, `file:///folder` (or `file:folder`, from the working folder), `s3://bucket/prefix`,
            `gs://bucket/prefix`, `az://container/prefix`.
        options: credentials and the like, for object storage only.

    Raises:
        ConfigError: the URL or an option is not understood. The message shows no value of an option, and nothing of
            the URL behind its scheme where that may hold a password.
    """
    try:
        parts = urlsplit(url)
        has_secrets = bool(parts.query or parts.fragment) or parts.username is not None
    except ValueError as error:
        raise ConfigError("the URL of an artifact store is no URL") from error
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES or not url[len(scheme) :].startswith(":"):
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ConfigError(f"the URL of an artifact store starts with one of {known}; a folder is 'file:///folder'")
    if scheme != "file" and has_secrets:
        raise ConfigError(f"the URL {scheme}://... has credentials or a query in it: pass them as options")
    if scheme in OBJECT_STORAGE:
        from runenv.artifacts.backends.bucket import Bucket
        from runenv.artifacts.backends.objects import ObjectBackend

        return ObjectBackend(Bucket(scheme, parts.netloc, parts.path.strip("/"), options))
    if options:
        raise ConfigError(f"the artifact store {url!r} takes no options: remove {', '.join(map(repr, options))}")
    from runenv.artifacts.backends.cataloged import CatalogedBackend

    if scheme == "memory":
        from runenv.artifacts.backends.memory import MemoryPayloads

        if url.partition(":")[2].strip("/"):
            raise ConfigError(f"{url!r} names nothing: memory is this store's own, write 'memory://'")
        return CatalogedBackend(MemoryPayloads())
    from runenv.artifacts.backends.folder import FolderPayloads

    return CatalogedBackend(FolderPayloads(folder_of(url)))


def folder_of(url: str) -> str:
    """Return the path of a file URL; `file:folder`, `file://./folder` and `file://../folder` are relative.

    Raises:
        ConfigError: it is on another host, or names no folder.
    """
    rest = url.partition(":")[2]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost", ".", ".."}:
            raise ConfigError(
                f"{url!r} is on the host {host!r}: a relative folder is 'file:folder' or 'file://./folder'"
            )
        rest = (host if host.startswith(".") else "") + slash + path
    path = unquote(rest)
    if not path.strip("/") or "\0" in path:
        raise ConfigError(f"{url!r} names no folder: write 'file:///folder', or 'file:folder' for a relative one")
    return path
