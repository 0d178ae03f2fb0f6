"""The Docker sandbox: `env.py` is the env; the rest knows no configuration and is one subject a file.

`engine.py` alone speaks to the daemon through the SDK, `endpoint.py` finds it, `carriers.py` makes its streams,
`container.py`, `images.py`, `volumes.py` and `mounts.py` are what it holds, `sweep.py` is what is left behind.
"""
