"""Tables for `media.py`: media types by file extension, aliases, and what is based on what. Data only.

Types are those registered at iana.org where there is one, else what is in common use. Not the tables of `mimetypes`:
those read files of the host, so that the same artifact would have different types on different machines.
"""

from __future__ import annotations

from typing import Final

__all__ = ("ALIASES", "EXTENSIONS", "OLE_BASED", "TEXT_TYPES", "ZIP_BASED")

_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_ODF: Final = "application/vnd.oasis.opendocument"

_ZIPS: Final = {
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".dotx": f"{_OFFICE}.wordprocessingml.template",
    ".docm": "application/vnd.ms-word.document.macroenabled.12",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".potx": f"{_OFFICE}.presentationml.template",
    ".ppsx": f"{_OFFICE}.presentationml.slideshow",
    ".pptm": "application/vnd.ms-powerpoint.presentation.macroenabled.12",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".xltx": f"{_OFFICE}.spreadsheetml.template",
    ".xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
    ".xlsb": "application/vnd.ms-excel.sheet.binary.macroenabled.12",
    ".odt": f"{_ODF}.text",
    ".ods": f"{_ODF}.spreadsheet",
    ".odp": f"{_ODF}.presentation",
    ".odg": f"{_ODF}.graphics",
    ".epub": "application/epub+zip",
    ".jar": "application/java-archive",
    ".apk": "application/vnd.android.package-archive",
    ".kmz": "application/vnd.google-earth.kmz",
    ".whl": "application/x-wheel+zip",
    ".npz": "application/x-npz",
}
_OLES: Final = {
    ".doc": "application/msword",
    ".xls": "application/vnd.ms-excel",
    ".ppt": "application/vnd.ms-powerpoint",
    ".msg": "application/vnd.ms-outlook",
    ".msi": "application/x-msi",
}
_TEXTS: Final = {
    **dict.fromkeys((".txt", ".text", ".log", ".conf", ".cfg", ".ini", ".diff", ".patch"), "text/plain"),
    **dict.fromkeys((".md", ".markdown"), "text/markdown"),
    ".rst": "text/x-rst",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    **dict.fromkeys((".html", ".htm"), "text/html"),
    ".xhtml": "application/xhtml+xml",
    ".css": "text/css",
    **dict.fromkeys((".js", ".mjs", ".cjs"), "text/javascript"),
    ".ts": "text/x-typescript",
    ".json": "application/json",
    **dict.fromkeys((".jsonl", ".ndjson"), "application/x-ndjson"),
    ".ipynb": "application/x-ipynb+json",
    ".geojson": "application/geo+json",
    ".xml": "application/xml",
    ".svg": "image/svg+xml",
    ".rss": "application/rss+xml",
    ".atom": "application/atom+xml",
    **dict.fromkeys((".yaml", ".yml"), "application/yaml"),
    ".toml": "application/toml",
    ".sql": "application/sql",
    ".py": "text/x-python",
    **dict.fromkeys((".sh", ".bash"), "text/x-shellscript"),
    **dict.fromkeys((".c", ".h"), "text/x-c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp"), "text/x-c++"),
    ".java": "text/x-java",
    ".go": "text/x-go",
    ".rs": "text/x-rust",
    ".rb": "text/x-ruby",
    ".r": "text/x-r",
    ".tex": "text/x-tex",
    ".ics": "text/calendar",
    ".vcf": "text/vcard",
    ".eml": "message/rfc822",
}
_OTHERS: Final = {
    ".png": "image/png",
    **dict.fromkeys((".jpg", ".jpeg", ".jfif"), "image/jpeg"),
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".bmp": "image/bmp",
    **dict.fromkeys((".tif", ".tiff"), "image/tiff"),
    ".ico": "image/vnd.microsoft.icon",
    ".pdf": "application/pdf",
    ".rtf": "application/rtf",
    ".zip": "application/zip",
    **dict.fromkeys((".gz", ".tgz"), "application/gzip"),
    ".bz2": "application/x-bzip2",
    ".xz": "application/x-xz",
    ".zst": "application/zstd",
    ".7z": "application/x-7z-compressed",
    ".rar": "application/vnd.rar",
    ".tar": "application/x-tar",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    **dict.fromkeys((".ogg", ".oga", ".opus"), "audio/ogg"),
    ".ogv": "video/ogg",
    ".m4a": "audio/mp4",
    ".mp4": "video/mp4",
    ".m4v": "video/x-m4v",
    ".mov": "video/quicktime",
    ".3gp": "video/3gpp",
    ".avi": "video/x-msvideo",
    ".mkv": "video/x-matroska",
    ".webm": "video/webm",
    ".wasm": "application/wasm",
    ".parquet": "application/vnd.apache.parquet",
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), "application/vnd.sqlite3"),
    ".npy": "application/x-npy",
    **dict.fromkeys((".pkl", ".pickle"), "application/x-pickle"),
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".otf": "font/otf",
    ".ttf": "font/ttf",
}

EXTENSIONS: Final = {**_ZIPS, **_OLES, **_TEXTS, **_OTHERS}
"""Media type by extension, both in lower case."""
ZIP_BASED: Final = frozenset(_ZIPS.values())
"""Types whose content is a zip archive."""
OLE_BASED: Final = frozenset(_OLES.values())
"""Types whose content is an OLE compound file."""
TEXT_TYPES: Final = frozenset(
    {kind for kind in _TEXTS.values() if not kind.startswith("text/")}
    | {"application/graphql", "application/x-www-form-urlencoded", "application/x-tex", "application/x-httpd-php"}
)
"""Types of text that are not called so."""
ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "image/x-bmp": "image/bmp",
    "image/x-icon": "image/vnd.microsoft.icon",
    "image/svg": "image/svg+xml",
    "application/x-pdf": "application/pdf",
    "application/csv": "text/csv",
    "application/x-csv": "text/csv",
    "text/x-csv": "text/csv",
    "text/comma-separated-values": "text/csv",
    "text/x-markdown": "text/markdown",
    "text/json": "application/json",
    "application/x-json": "application/json",
    "application/jsonl": "application/x-ndjson",
    "application/jsonlines": "application/x-ndjson",
    "text/xml": "application/xml",
    "text/yaml": "application/yaml",
    "text/x-yaml": "application/yaml",
    "application/x-yaml": "application/yaml",
    "text/rtf": "application/rtf",
    "text/x-sh": "text/x-shellscript",
    "application/x-sh": "text/x-shellscript",
    "application/javascript": "text/javascript",
    "application/x-javascript": "text/javascript",
    "application/x-python": "text/x-python",
    "application/x-zip": "application/zip",
    "application/x-zip-compressed": "application/zip",
    "application/x-gzip": "application/gzip",
    "application/x-bzip": "application/x-bzip2",
    "application/x-rar-compressed": "application/vnd.rar",
    "application/x-sqlite3": "application/vnd.sqlite3",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "binary/octet-stream": "application/octet-stream",
}
"""Other names of a type, and the one that is kept."""
