"""Blobs in incoming messages: saved as artifacts, and a placeholder in their place, before a model or a log sees them.

`saving.py` is what callers use; `walking.py` finds the blobs of a message and makes the new message, `forms.py` knows
how each vendor writes one, `decoding.py` reads base64 and `data:` URIs. Only `saving.py` knows the store.
"""

from runenv.artifacts.inputs.saving import save_inputs

__all__ = ("save_inputs",)
