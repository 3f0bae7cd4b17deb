"""What people give to reach a model, checked: names, addresses, keys, headers. Told in words that help.

Most of it comes from a file, a variable or a clipboard, so each fault says what is usually behind it. No text
shows what may be secret: a key, the value of a header, what stands before the `@` of a URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from remit.errors import ConfigurationError
from remit.models.base import ModelProfile, Price
from remit.models.connection import Connection

__all__ = [
    "check_parts",
    "checked_headers",
    "checked_name",
    "checked_url",
    "proper_key",
    "shown_url",
]

_MOST_NAME: Final = 300
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the name of a header is made of (RFC 9110, 5.6.2)."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "proxy-authorization",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the connection: whoever writes the request sets them, once."""
_LABEL: Final = re.compile(r"[\w-]{1,63}")


def checked_name(prefix: str, name: str) -> str:
    """The name of a model behind its prefix. Errors: `ConfigurationError`."""
    if not name.strip():
        raise ConfigurationError(f"model {prefix}: name the model, such as {prefix}:MODEL")
    if not name.isprintable() or name != name.strip() or len(name) > _MOST_NAME:
        raise ConfigurationError(
            f"model {prefix}:{name[:100]!r}: no model is named so: look for a space or a line end around the name, or "
            "another character that is not seen"
        )
    return name


def checked_url(given: object, what: str) -> str:
    """An address, as it was given. `what` it is the address of, for people. Errors: `ConfigurationError`."""
    if not isinstance(given, str):
        raise ConfigurationError(
            f"{what} is a text such as http://localhost:8000/v1, not {given!r}"
        )
    fault = _fault(given)
    if fault is not None:
        raise ConfigurationError(
            f"{what} is no http://HOST or https://HOST with a path: {shown_url(given)!r}: {fault}"
        )
    return given


def shown_url(given: str) -> str:
    """An address without what may be secret in it."""
    return re.sub(r"(^|//)[^/?#]*@", r"\1", given).partition("?")[0][:200]


def _fault(given: str) -> str | None:
    """What is wrong with an address; None where nothing is."""
    if given != given.strip():
        return "take away the space or the line end around it"
    if any(each.isspace() or not each.isprintable() or each == "\\" for each in given):
        return "it holds a space, a backslash or something that is not seen"
    if "://" not in given:
        begins = "http" if re.match(r"(localhost|[\d.]+|\[)", given) else "https"
        return f"say how it is spoken to, as in {begins}://{shown_url(given).lstrip('/')}"
    try:
        parts = urlsplit(given)
        return _fault_of(parts, parts.hostname or "", parts.port)
    except ValueError:
        return "its host or its port is none"


def _fault_of(parts: SplitResult, host: str, port: int | None) -> str | None:
    if parts.scheme not in {"http", "https"}:
        return "only http and https are spoken, to a host and a port"
    if parts.username is not None:
        return "it holds no name and no password: give api_key= or headers="
    if parts.query or parts.fragment:
        return "nothing may stand behind its path: a version is said by Connection(api_version=...)"
    if not host or port == 0:
        return "it has no host" if not host else "no server has the port 0"
    if ":" not in host and not all(map(_LABEL.fullmatch, host.removesuffix(".").split("."))):
        return f"no host is named {host[:100]!r}"
    return None


def check_parts(*, profile: object, price: object, codec: object, connection: object) -> None:
    """What takes the place of the usual; None where nothing does. Errors: `ConfigurationError`."""
    for name, value, kind, example in (
        (
            "profile",
            profile,
            ModelProfile,
            "ModelProfile(context_window=131_072, max_output=16_384)",
        ),
        ("price", price, Price, 'Price(input=Decimal("3"), output=Decimal("15"))'),
        ("connection", connection, Connection, 'Connection(proxy="http://proxy:3128")'),
    ):
        if value is not None and not isinstance(value, kind):
            raise ConfigurationError(f"{name}= takes a remit.{kind.__name__}, such as {example}")
    if codec is not None and (isinstance(codec, type) or not hasattr(codec, "encoder")):
        raise ConfigurationError(
            'codec= takes an object that speaks a wire, such as AnthropicCodec(cache_ttl="1h")'
        )


def proper_key(key: object, where: str) -> str | None:
    """A key as it is sent, None for an empty one. Errors: `ConfigurationError`, which does not show it."""
    if not isinstance(key, str):
        raise ConfigurationError(f"{where} is a text, not of the type {type(key).__name__}")
    key = key.strip()
    fault = None
    if not (key.isascii() and key.isprintable()) and key:
        fault = "holds characters that no key has: was something else copied along?"
    elif len(key) > 1 and key[0] in "\"'" and key[0] == key[-1]:
        fault = "stands in quotes: take them away; files of variables are not read as a shell reads them"
    elif key.lower().startswith(("bearer ", "x-api-key:", "authorization:")):
        fault = "is a whole header: give the key alone"
    if fault is not None:
        raise ConfigurationError(f"{where} {fault}")
    return key or None


def checked_headers(headers: object) -> dict[str, str]:
    """Headers by names in lower case. Errors: `ConfigurationError`, which shows no value: it may be the key."""
    if not isinstance(headers, Mapping):
        raise ConfigurationError('headers= maps names to texts, such as {"x-team": "support"}')
    found: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", headers).items():
        if not (isinstance(name, str) and _TOKEN.fullmatch(name)):
            raise ConfigurationError(f"the header {name!r} cannot be sent: no header is named so")
        if not isinstance(value, str):
            raise ConfigurationError(
                f"the header {name!r} cannot be sent: its value is a text, not of the type {type(value).__name__}"
            )
        if _CONTROL.search(value):
            raise ConfigurationError(
                f"the header {name!r} cannot be sent: its value holds a line end, or another character that is not "
                "seen; is there a line end behind the key?"
            )
        if name.lower() in _FRAMING:
            raise ConfigurationError(
                f"the header {name!r} cannot be sent: it says how this connection is used, and is set for you"
            )
        if name.lower() in found:
            raise ConfigurationError(
                f"the header {name!r} is given twice: case makes no difference"
            )
        found[name.lower()] = value.strip()
    return found
