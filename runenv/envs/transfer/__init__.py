"""Trees between host and env, safe in both directions: folders of this host to and from tar streams.

`pack` reads a host folder for an upload, `unpack` writes one from a download. Both block and belong into a worker
thread, started by the env (`guested`), whose guest is at the stream's other end. Single files do not come this way.
`Rewriter` makes a stream that anybody may have written into one that may be stored or unpacked; it does not block.
`tar.py` knows the stream, `globs.py` the patterns, `folders.py` how to walk without following links.
"""

from runenv.envs.transfer.globs import Verdict, matcher
from runenv.envs.transfer.packing import pack
from runenv.envs.transfer.rewriting import Rewriter
from runenv.envs.transfer.unpacking import unpack

__all__ = ("Rewriter", "Verdict", "matcher", "pack", "unpack")
