"""Where the Docker engine is: found as the `docker` command finds it, and said in errors as it would say it.

Reads the environment and the docker command's configuration folder, and nothing else: it opens no connection.
Below `engine.py` and `carriers.py`, which speak to the place that is found here.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from runenv.errors import EnvStartError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("Endpoint", "Tls", "find_endpoint", "ssh_command", "ssh_environment")

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_DEFAULT_CONTEXT: Final = "default"
_SSH_CONNECT_SECONDS: Final = 10
"""How long `ssh` may take to reach the host."""
_SSH_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")
"""What `ssh` gets of our environment: enough to find keys and agent, no secrets of the program around us."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificates of a TLS endpoint.

    Attributes:
        ca: file of the authorities that the engine's certificate is checked against; None for the system's.
        cert: file of our own certificate, or None.
        key: file of its key, or None.
        verify: check the engine's certificate.
    """

    ca: str | None
    cert: str | None
    key: str | None
    verify: bool

    def context(self) -> ssl.SSLContext:
        """Return the settings for our own connections, equal to those that the SDK makes of the same files.

        Raises:
            OSError: a file is missing or is no certificate (`ssl.SSLError` is an OSError).
        """
        context = ssl.create_default_context(cafile=self.ca if self.verify else None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place where an engine should answer.

    Attributes:
        url: as it was written, such as "unix:///var/run/docker.sock".
        source: who named it, such as "DOCKER_HOST".
        kind: "unix", "tcp" or "ssh".
        path: of the socket; for ssh the socket on that host, or "" for its default.
        host: name or address, for tcp and ssh.
        port: for tcp and ssh; None for ssh's default.
        user: for ssh.
        tls: for tcp, when the connection is encrypted.
    """

    url: str
    source: str
    kind: str
    path: str = ""
    host: str = ""
    port: int | None = None
    user: str | None = None
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{self.url} ({self.source})"


def find_endpoint(explicit: str | None = None, environment: Mapping[str, str] | None = None) -> Endpoint:
    """Return the engine's place: the explicit one, else DOCKER_HOST, else the current context, else the default.

    The first of these that is set decides, as with the docker command: a dead one is an error of that one, because
    another engine would be another machine.

    Args:
        explicit: URL from the configuration.
        environment: variables to look in; those of this process by default.

    Raises:
        EnvStartError: what is set cannot be read or is no address.
    """
    variables = os.environ if environment is None else environment
    if explicit:
        return _parse(explicit, "from the configuration", _tls_from(variables))
    if host := variables.get("DOCKER_HOST"):
        return _parse(host, "from DOCKER_HOST", _tls_from(variables))
    folder = _config_folder(variables)
    name, source = variables.get("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
    if not name:
        name, source = _current_context(folder / "config.json"), str(folder / "config.json")
    if name and name != _DEFAULT_CONTEXT:
        return _from_context(folder, name, source)
    return _parse(f"unix://{DEFAULT_SOCKET}", "the default, as neither DOCKER_HOST nor a docker context is set", None)


def _config_folder(variables: Mapping[str, str]) -> Path:
    if folder := variables.get("DOCKER_CONFIG"):
        return Path(folder)
    return Path(variables.get("HOME") or Path("~").expanduser()) / ".docker"


def _tls_from(variables: Mapping[str, str]) -> Tls | None:
    # As the docker command has it: a certificate folder alone encrypts nothing.
    verify = bool(variables.get("DOCKER_TLS_VERIFY"))
    if not verify and not variables.get("DOCKER_TLS"):
        return None
    folder = Path(variables.get("DOCKER_CERT_PATH") or _config_folder(variables))
    return _tls_in(folder, verify=verify)


def _tls_in(folder: Path, *, verify: bool) -> Tls:
    ca, cert, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    if cert.exists() != key.exists():
        message = f"the docker certificate folder {str(folder)!r} holds one of cert.pem and key.pem: both are needed"
        raise EnvStartError(message)
    own = cert.exists()
    return Tls(
        ca=str(ca) if ca.exists() else None,
        cert=str(cert) if own else None,
        key=str(key) if own else None,
        verify=verify,
    )


def _current_context(file: Path) -> str | None:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvStartError(f"the docker configuration {str(file)!r} cannot be read: {error.strerror}") from error
    try:
        name = _mapping(json.loads(text)).get("currentContext")
    except ValueError as error:
        message = f"the docker configuration {str(file)!r} is damaged: {error}; repair it, or set DOCKER_HOST"
        raise EnvStartError(message) from error
    return name if isinstance(name, str) else None


def _from_context(folder: Path, name: str, source: str) -> Endpoint:
    key = hashlib.sha256(name.encode()).hexdigest()
    file = folder / "contexts" / "meta" / key / "meta.json"
    remedy = "run `docker context use default`, or set DOCKER_HOST"
    try:
        engine = _mapping(_mapping(_mapping(json.loads(file.read_bytes())).get("Endpoints")).get("docker"))
    except FileNotFoundError as error:
        message = f"the docker context {name!r}, named by {source}, does not exist; {remedy}"
        raise EnvStartError(message) from error
    except (OSError, ValueError) as error:
        message = f"the docker context {name!r} is damaged: {str(file)!r}: {error}; repair it, {remedy}"
        raise EnvStartError(message) from error
    host = engine.get("Host") or f"unix://{DEFAULT_SOCKET}"
    certificates = folder / "contexts" / "tls" / key / "docker"
    skip_verify = engine.get("SkipTLSVerify") is True
    tls = _tls_in(certificates, verify=not skip_verify) if certificates.is_dir() else None
    if tls is None and skip_verify:
        tls = Tls(ca=None, cert=None, key=None, verify=False)
    return _parse(str(host), f"from the docker context {name!r}", tls)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        message = f"expected an object, found {type(value).__name__}"
        raise ValueError(message)  # noqa: TRY004 - it is the content of a file that is wrong
    return value


def _parse(url: str, source: str, tls: Tls | None) -> Endpoint:
    text = url.strip()
    refusal = f"the engine address {text!r} ({source}) is not understood"
    remedy = "write unix:///path, tcp://host:port or ssh://user@host"
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        message = f"{refusal}: {error}; {remedy}"
        raise EnvStartError(message) from error
    match parts.scheme:
        case "unix" | "http+unix":
            path = f"/{parts.netloc}{parts.path}" if parts.netloc else parts.path
            return Endpoint(text, source, "unix", path=path or DEFAULT_SOCKET)
        case "tcp" | "http" | "https" if host:
            if parts.scheme == "https" and tls is None:
                tls = Tls(ca=None, cert=None, key=None, verify=True)
            default_port = 2375 if tls is None else 2376
            return Endpoint(text, source, "tcp", host=host, port=port or default_port, tls=tls)
        case "ssh" if host and not parts.password:
            path = "" if parts.path == "/" else parts.path
            return Endpoint(text, source, "ssh", path=path, host=host, port=port, user=parts.username)
        case _:
            raise EnvStartError(f"{refusal}; {remedy}")


def ssh_command(endpoint: Endpoint) -> list[str]:
    """Return the program whose stdin and stdout are a connection to the engine, as the docker command starts it."""
    # BatchMode: nobody is there to type a password; the question would hang.
    command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_SSH_CONNECT_SECONDS}", "-T"]
    if endpoint.user:
        command += ["-l", endpoint.user]
    if endpoint.port:
        command += ["-p", str(endpoint.port)]
    command += ["--", endpoint.host, "docker"]
    if endpoint.path:
        command += ["--host", f"unix://{endpoint.path}"]
    return [*command, "system", "dial-stdio"]


def ssh_environment() -> dict[str, str]:
    """Return the variables that `ssh` gets."""
    return {name: os.environ[name] for name in _SSH_VARIABLES if name in os.environ}
