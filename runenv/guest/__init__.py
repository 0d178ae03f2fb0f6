"""The guest: the small program beside an env's commands, and the host's end of the wire to it.

`frames.py` is the wire format, `link.py` many calls over one byte stream, `call.py` one of them, `errnos.py` the
guest's errors as ours. The program itself is C, in `src/`, compiled when the package is built. Envs are above this
package; below it is the standard library.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

from runenv.errors import EnvStartError

__all__ = ("MACHINES", "guest_binary")

MACHINES: Final = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""The processors that the guest is built for, by each name that a host or an engine gives them."""


def guest_binary(machine: str | None = None) -> Path:
    """Return the compiled guest for a processor.

    Args:
        machine: its name, as `uname -m` or the engine spells it; this host's when None.

    Raises:
        EnvStartError: there is no guest for this processor, or it was not built.
    """
    name = platform.machine() if machine is None else machine
    known = MACHINES.get(name.lower())
    if known is None:
        raise EnvStartError(f"there is no guest for the processor {name!r}: only x86_64 and aarch64 Linux run commands")
    path = Path(__file__).parent / "bin" / f"guest-{known}"
    if not path.is_file():
        raise EnvStartError(
            f"the guest for {known} was not built ({path} is missing): install a built package, "
            "or in a source tree run `pip install -e .`, which compiles it"
        )
    return path
