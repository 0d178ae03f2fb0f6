"""Every env with a guest: a backend is a subclass of `GuestedEnv`.

`env.py` has the verbs, `life.py` opening and closing; below them are `requests.py` to the guest, its `replies.py`, and
the transfers, `moves.py`, with their `bridge.py` to worker threads.
"""
