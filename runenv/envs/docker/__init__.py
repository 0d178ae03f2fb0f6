"""The Docker sandbox: `env.py` is the env, `spec.py` its configuration for the engine; the rest is one subject a file.

`engine.py` alone speaks to the daemon through the SDK, `endpoint.py` finds it, `carriers.py` makes its streams, and
`socket_carrier.py` the one that goes past it. `container.py`, `images.py`, `volumes.py` and `mounts.py` are what it
holds, `sweep.py` is what is left behind and `owners.py` whose that is.
"""
