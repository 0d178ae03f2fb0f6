"""Which images are on an engine, for commands that can do with any: `doctor`, which tries one, and `cp`."""

from typing import TYPE_CHECKING, Final

from runenv.config import DockerConfig

if TYPE_CHECKING:
    from runenv.envs.docker.engine import Engine

__all__ = ("images_here",)

OWN_IMAGES: Final = ("runenv/python", "runenv/base", "runenv/static")
"""What `scripts/images` builds."""


async def images_here(engine: "Engine", wanted: str | None = None) -> list[str]:
    """Return the images that are on the engine, the wanted one first, then ours, then the others.

    Args:
        engine: to look at.
        wanted: the configuration's default unless given.
    """
    first = [name for name in (wanted or DockerConfig().image, *OWN_IMAGES) if await _has(engine, name)]
    images = await engine.call(lambda client: client.images(filters={"dangling": False}))
    tags = [tag for image in images for tag in image.get("RepoTags") or () if tag != "<none>:<none>"]
    return list(dict.fromkeys((*first, *tags)))


async def _has(engine: "Engine", image: str) -> bool:
    from runenv.envs.docker.faults import EngineFault

    try:
        await engine.call(lambda client: client.inspect_image(image))
    except EngineFault:
        return False
    return True
