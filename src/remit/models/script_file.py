"""A script of replies in a JSON file: `scripted:FILE.json`, a model without a key or a network.

The file is a list of turns. A turn is a text, or an object with any of these:

    text         what is said
    calls        a list of {"tool": NAME, "arguments": {...}}
    usage        {"input": N, "output": N, "cache_read": N, "cache_write": N}; estimated where absent
    stop_reason  one of remit's words, such as "refusal"; else it follows from the calls
    delay        seconds before the reply begins

The n-th request of a conversation is answered with the n-th turn, counted in its transcript and not in
this process: a run that is resumed and the next turn of a chat go on where the script stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from remit.errors import ConfigurationError, ModelRejected
from remit.messages import StopReason, Usage
from remit.models.base import Model, ModelRequest
from remit.models.scripted import Item, Part, ScriptedModel, Step
from remit.transcript import Transcript

__all__ = ["scripted_file"]

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    """As they stand in the file: a script can say what a model should not."""


class _Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: _Count = 0
    cache_read: _Count = 0
    cache_write: _Count = 0
    output: _Count = 0


class _Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    calls: tuple[_Call, ...] = ()
    usage: _Usage | None = None
    stop_reason: StopReason | None = None
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    def step(self) -> Step:
        said: list[Part] = [self.text] if self.text else []
        said += [(call.tool, bytes(call.arguments).decode()) for call in self.calls]
        return Step(
            said,
            stop_reason=self.stop_reason,
            usage="estimated"
            if self.usage is None
            else Usage(*msgspec.structs.astuple(self.usage)),
            delay=self.delay,
        )


def scripted_file(path: str) -> Model:
    """The model that plays this file. Errors: `ConfigurationError` for a file that is no script."""
    where = f"scripted:{path}"
    if not path:
        raise ConfigurationError("scripted: needs a file, as in scripted:turns.json")
    try:
        turns = msgspec.json.decode(Path(path).read_bytes(), type=list[str | _Turn])
    except OSError as error:
        raise ConfigurationError(f"{where}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{where}: {error}. A script is a list of turns such as "
            '{"text": "...", "calls": [{"tool": "...", "arguments": {}}]}'
        ) from error
    if not turns:
        raise ConfigurationError(f"{where}: the list holds no turn")
    steps = [Step(turn) if isinstance(turn, str) else turn.step() for turn in turns]

    def play(transcript: Transcript, _: ModelRequest) -> Item:
        said = sum(message.role == "assistant" for message in transcript)
        if said < len(steps):
            return steps[said]
        return ModelRejected(
            f"the script is over: {len(steps)} turns, and this is request {said + 1}", usage=Usage()
        )

    return ScriptedModel(play, name=where)
