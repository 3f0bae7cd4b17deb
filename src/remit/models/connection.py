"""How a server is reached: a proxy, what is trusted, who we are, which version of its API. A value.

It is checked when it is made, so that a file which is not there or a proxy that is none is told before a
run begins. Who opens connections is `http.py`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from remit.errors import ConfigurationError
from remit.explained import explained

__all__ = ["Connection", "check_proxy", "host_of", "is_local", "is_loopback"]


@explained("Connection(proxy=..., ca_file=..., client_cert=..., api_version=...)")
@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How a server is reached, where the usual way is not meant."""

    proxy: str | None = None
    """`http://[name:password@]host:port`. None: what HTTPS_PROXY, HTTP_PROXY and NO_PROXY say; empty: none."""
    ca_file: str | None = None
    """Certificates that are trusted instead of the system's, as a PEM file."""
    client_cert: str | tuple[str, str] | None = None
    """Our own certificate: a PEM file that holds the key too, or the files of certificate and key."""
    api_version: str | None = None
    """The version of the provider's API, where the one that this version of remit was written for is not meant."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for a proxy that is none, and for a file that is not there."""
        if self.proxy is not None:
            check_proxy(self.proxy, "Connection(proxy=...)")
        version = self.api_version
        if version is not None and not (
            isinstance(version, str)  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            and re.fullmatch(r"[\w.:-]+", version, re.ASCII)
        ):
            raise ConfigurationError(
                f"Connection(api_version={version!r}): give a version as the provider writes it, such as 2024-10-21"
            )
        for name, path in (("ca_file", self.ca_file), *self._own_files()):
            if path is not None and not isinstance(path, str):
                raise ConfigurationError(f"Connection({name}={path!r}): give the path as a text")
            if path is not None and not os.path.isfile(path):  # noqa: PTH113 - `pathlib` is slow to import
                raise ConfigurationError(f"Connection({name}={path!r}): there is no such file")

    def __repr__(self) -> str:
        """Without the password of the proxy."""
        proxy = None if self.proxy is None else host_of(self.proxy)
        return (
            f"Connection(proxy={proxy!r}, ca_file={self.ca_file!r}, "
            f"client_cert={self.client_cert!r}, api_version={self.api_version!r})"
        )

    def _own_files(self) -> tuple[tuple[str, object], ...]:
        cert: object = self.client_cert
        match cert:
            case None:
                return ()
            case str(one):
                return (("client_cert", one),)
            case (certificate, key) if type(cert) is tuple:
                return (("client_cert", certificate), ("client_cert", key))
            case _:
                raise ConfigurationError(
                    f"Connection(client_cert={cert!r}): give one file, or a pair of files as a tuple"
                )


def check_proxy(proxy: object, where: str) -> None:
    """Errors: `ConfigurationError`, which shows no password, for what is no proxy; an empty one is none."""
    if proxy == "":
        return
    parts = None
    if isinstance(proxy, str) and proxy.isprintable() and " " not in proxy:
        with suppress(ValueError):  # a port that is none
            found = urlsplit(proxy)
            parts = found if found.port != 0 else None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(
            f"{where}: give http://host:port; other kinds of proxy are not spoken"
        )


def host_of(url: str) -> str:
    """The host of a URL with its port, as far as it has them; for people, so without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    host = host.lower().strip("[]")
    return (
        host == "localhost"
        or host.endswith(".localhost")
        or host == "::1"
        or (host.startswith("127.") and host.replace(".", "").isdecimal())
    )


def is_local(host: str) -> bool:
    """Whether a host is this machine or one beside it, where servers usually ask for no key."""
    host = host.lower().strip("[]")
    if "." not in host and ":" not in host:
        return True  # `localhost`, or a name that only a local network knows
    if host.endswith((".localhost", ".local", ".internal", ".lan")):
        return True
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_private or address.is_loopback or address.is_link_local
