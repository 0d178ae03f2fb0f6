"""Which options object storage has: a table for each service, and the connection's. Opens nothing.

Above is `bucket.py`, which hands them to obstore.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from runenv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("split_options",)

_CLIENT: Final[Mapping[str, Any]] = {"connect_timeout": "5s", "timeout": "120s"}
"""Bounds one connection attempt, and one request with a part as its content."""

_CLIENT_OPTIONS: Final = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
)
_SWITCHES: Final = ("allow_http", "allow_invalid_certificates")
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": (
        "access_key_id",
        "checksum_algorithm",
        "container_authorization_token_file",
        "container_credentials_full_uri",
        "container_credentials_relative_uri",
        "default_region",
        "disable_tagging",
        "endpoint",
        "metadata_endpoint",
        "region",
        "request_payer",
        "role_arn",
        "role_session_name",
        "secret_access_key",
        "server_side_encryption",
        "session_token",
        "skip_signature",
        "sse_bucket_key_enabled",
        "sse_kms_key_id",
        "sts_endpoint",
        "unsigned_payload",
        "virtual_hosted_style_request",
        "web_identity_token_file",
    ),
    "gs": (
        "application_credentials",
        "base_url",
        "bearer_token",
        "service_account",
        "service_account_key",
        "skip_signature",
    ),
    "az": (
        "account_key",
        "account_name",
        "authority_host",
        "client_id",
        "client_secret",
        "disable_tagging",
        "endpoint",
        "federated_token_file",
        "msi_endpoint",
        "msi_resource_id",
        "object_id",
        "sas_key",
        "skip_signature",
        "tenant_id",
        "token",
        "use_azure_cli",
        "use_emulator",
    ),
}


def split_options(scheme: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Tell options of the service from those of the connection.

    obstore takes them apart, and panics when one of the latter is among the former.

    Raises:
        ConfigError: there is no such option; the message shows no value.
    """
    config: dict[str, str] = {}
    client: dict[str, Any] = dict(_CLIENT)
    for key, value in options.items():
        if key in _OPTIONS[scheme]:
            config[key] = value
        elif key in _SWITCHES:
            if str(value).lower() not in {"true", "false"}:
                raise ConfigError(f"the option {key!r} is 'true' or 'false'")
            client[key] = str(value).lower() == "true"
        elif key in _CLIENT_OPTIONS:
            client[key] = value
        else:
            known = (*_OPTIONS[scheme], *_CLIENT_OPTIONS)
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"{scheme}:// has no option {key!r}; {hint}")
    return config, client
