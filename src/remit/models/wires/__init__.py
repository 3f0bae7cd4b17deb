"""The wires: how requests and replies are written for each kind of endpoint. Pure; no I/O.

    codec.py      what every wire can do, and the values that go in and out
    pieces.py     messages as they were encoded when they first went out, and bodies made of them
    sse.py        the events in a stream of bytes
    lowering.py   schemas in the dialect of a wire, by way of schema_source, root_union, schema_writer,
                  strict_grammars and optional_nulls;  aliases.py  names and ids that a wire takes
    toolbox.py    the tools of a request as a wire takes them, and the way back
    waiting.py    when a server wants to be asked again
    anthropic, responses, chat      one codec each;  dialects.py  servers that speak Chat Completions

Above: `models/endpoint.py`, which sends what is written here. Wires are found by name in `WIRES`, so that
only those that are used are imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from remit.errors import ConfigurationError, TranscriptError
from remit.models.wires.codec import Codec, Parsed

__all__ = ["WIRES", "codec", "parse"]

WIRES: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic": ("remit.models.wires.anthropic", "AnthropicCodec"),
    "openai": ("remit.models.wires.responses", "ResponsesCodec"),
    "openai-chat": ("remit.models.wires.chat", "ChatCodec"),
}
"""Name of a wire to where its codec stands."""


def codec(wire: str) -> Codec:
    """The codec of a wire, with its defaults. Errors: `ConfigurationError` for another name."""
    if wire not in WIRES:
        raise ConfigurationError(f"no wire is called {wire!r}: there are {', '.join(WIRES)}")
    module, name = WIRES[wire]
    return getattr(import_module(module), name)()


def parse(body: Mapping[str, Any] | Sequence[Any], wire: str) -> Parsed:
    """Read a request body back; a list is taken for its messages. Objects of the providers' own SDKs may stand in it.

    Errors: `ConfigurationError`, `TranscriptError`.
    """
    reader = codec(wire)
    try:
        plain = _plain(body)
    except RecursionError:
        raise TranscriptError("a request is not nested as deeply as this") from None
    if isinstance(plain, dict):
        return reader.parse(cast("dict[str, Any]", plain))
    if not isinstance(plain, list):
        raise TranscriptError(f"a request is an object, or its messages, not {type(body).__name__}")
    return reader.parse({"input" if wire == "openai" else "messages": plain})


def _plain(value: object) -> object:
    """A value as JSON has it: what SDKs made of it tells itself what it would be sent as."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        if not all(isinstance(key, str) for key in table):
            raise TranscriptError("a request holds names that are no texts")
        return {key: _plain(each) for key, each in table.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("Sequence[object]", value)]
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    if callable(dump):
        # As those SDKs send it themselves.
        return _plain(dump(mode="json", by_alias=True, exclude_unset=True))
    kind = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise TranscriptError(
        f"a request is an object, or its messages, as JSON has them: no {kind} is one"
    )
