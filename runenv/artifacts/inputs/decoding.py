"""Base64 and `data:` URIs to bytes. Pure."""

from __future__ import annotations

import binascii
from typing import Final
from urllib.parse import unquote_to_bytes

from runenv.errors import ArtifactError

__all__ = ("decode", "decoded_size", "is_data_uri", "uri_type")

_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_BLANKS: Final = b" \t\r\n\f"
_SHOWN: Final = 40
"""Characters of bad input that an error names."""


def decode(data: str | bytes | bytearray | memoryview, where: str) -> bytes:
    """Return the bytes of a blob.

    Args:
        data: the bytes themselves, or base64 in either alphabet, with blanks and without padding if need be, or a
            `data:` URI.
        where: the blob's place, for an error.

    Raises:
        ArtifactError: the text is none of these.
    """
    if not isinstance(data, str):
        return bytes(data)
    if not is_data_uri(data):
        return _base64(data, where)
    head, comma, body = data.partition(",")
    if not comma:
        raise ArtifactError(f"the blob at {where} is a data: URI without a comma: {data[:_SHOWN]!r}")
    if head.lower().endswith(";base64"):
        return _base64(body if "%" not in body else unquote_to_bytes(body).decode("latin-1"), where)
    return unquote_to_bytes(body)


def decoded_size(data: str | bytes | bytearray | memoryview) -> int:
    """Return about how many bytes `decode` will give; never much less."""
    return len(data) * 3 // 4 if isinstance(data, str) else memoryview(data).nbytes


def is_data_uri(text: str) -> bool:
    """Say whether a text is a `data:` URI."""
    return text[:5].lower() == "data:"


def uri_type(text: str) -> str | None:
    """Return the media type that a `data:` URI names, with its parameters, or None."""
    head = text[5 : text.find(",")] if is_data_uri(text) else ""
    kind = head.removesuffix(";base64").strip()
    return kind if "/" in kind.partition(";")[0] else None


def _base64(text: str, where: str) -> bytes:
    try:
        data = text.encode("ascii").translate(_URL_SAFE, _BLANKS).rstrip(b"=")
        return binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ArtifactError(f"the blob at {where} is not base64: {error}; it begins with {text[:_SHOWN]!r}") from error
