"""A request of one run: what is the same in all of them is encoded once, and each message when it first goes out.

    {"model", "max_tokens", ...settings, "tools", "system", "messages"}

Above: `codec.py`. Below: `writing.py` writes a message and `pieces.py` keeps it, `prefix.py` has tools and system
text, `markers.py` says where the prompt cache is told to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from remit.errors import ConfigurationError
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.wires.anthropic.decoding import AnthropicDecoder
from remit.models.wires.anthropic.foreign import encoded, is_table
from remit.models.wires.anthropic.markers import MOST_MARKERS, marked, marker
from remit.models.wires.anthropic.prefix import Prefix
from remit.models.wires.anthropic.writing import Writer
from remit.models.wires.codec import Wired
from remit.models.wires.in_words import with_schema
from remit.models.wires.lowering import CannotLower, Dialect, lower
from remit.models.wires.pieces import Pieces
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Transcript

__all__ = ["AnthropicEncoder"]

_TOOLS: Final = Dialect(bare_arrays=True)
_OUTPUT: Final = Dialect(target="anthropic-strict", keys=None)

_LEAST_THINKING: Final = 1_024
"""Tokens. Source: the provider's guide to extended thinking."""

_OURS: Final = frozenset({"messages", "stream"})
"""What `Settings.extra` may not replace: the reply could not be read, or would be to something else."""

_IN_PREFIX: Final = frozenset({"system", "tools"})


class AnthropicEncoder:
    """The requests of one run, one after another."""

    def __init__(self, model: str, issuer: str, ttl: Literal["5m", "1h"] | None) -> None:
        self._model = model
        self._issuer = issuer
        self._marker = None if ttl is None else marker(ttl)
        self._tools: tuple[ToolSpec, ...] = ()
        self._writer = Writer(issuer, Toolbox((), _TOOLS))
        self._pieces = Pieces(self._writer.write)
        self._prefix: tuple[str, Mapping[str, Any], Prefix] | None = None
        """With the instructions and the extra settings that it was made of."""
        self._schema: tuple[Mapping[str, Any], dict[str, Any] | str] | None = None
        """A schema of the output, and how it goes out or why it cannot."""
        self._thinks: Literal["enabled", "adaptive"] | None = "enabled"
        """How thinking is asked for; None where it is not any more."""
        self._container: str | None = None
        """The one that was named last."""
        self._containers_from = 0
        """Containers of earlier messages are gone."""
        self._told_why_not = False
        """It was told that the schema of the output cannot go out as such."""
        self._repaired: str | None = None
        """What a repair changed, until it is told."""

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        """The body of a request."""
        extra = request.settings.extra
        if not _OURS.isdisjoint(extra):
            named = ", ".join(sorted(_OURS & extra.keys()))
            raise ConfigurationError(f"Settings(extra=...) cannot hold {named}: remit writes that")
        self._take_tools(request.tools)
        writer, transcript = self._writer, request.transcript
        writer.messages, writer.breaks, writer.left_out = transcript.messages, transcript.breaks, 0
        self._close_turn(transcript)
        self._pieces.take(transcript)
        fields, why_not = self._fields(request)
        if stream:
            fields["stream"] = True
        instructions = request.instructions
        if why_not is not None and request.output_schema is not None:
            instructions = with_schema(instructions, request.output_schema)
        prefix = self._prefix_of(instructions, extra)
        inserts: list[tuple[int, bytes]] = []
        if self._marker is not None and "cache_control" not in extra:
            ends = marked(transcript.messages, MOST_MARKERS - prefix.markers)
            places = [self._pieces.mark_of(at) for at in ends]
            inserts = [(at, self._marker) for at in places if at is not None]
        body = self._pieces.joined(
            encoded(fields, "a setting")[:-1] + prefix.data + b',"messages":[',
            b"]}",
            inserts=inserts,
        )
        decoder = AnthropicDecoder(self._issuer, writer.toolbox)
        return Wired(body, {}, decoder, writer.toolbox.set_aside, self._cut_back(why_not))

    def repair(self, what: str) -> bool:
        """The last body was refused for this. True where the next one will differ in a way that may help."""
        writer, sent = self._writer, len(self._pieces)
        if what == "opaque" and writer.bound:
            writer.bare, writer.bound = sent, False
            self._repaired = "all thinking so far is left out: the provider refused it"
            self._pieces.forget(0)
        elif what == "adaptive" and self._thinks == "enabled":
            self._thinks = "adaptive"
            self._repaired = "how long it thinks is left to the model: this one takes no number"
        elif what == "thinking" and self._thinks is not None:
            self._thinks = None
            self._repaired = "thinking is switched off: the last turn has none to go on from"
        elif what == "container" and self._container is not None:
            self._containers_from = sent
            self._repaired = "the container of the provider's code is gone: it gets a new one"
        elif what == "cache" and self._marker is not None:
            self._marker = self._prefix = None
            self._repaired = "no cache markers are set: what is there does not know them"
        elif what == "whitespace" and writer.trimmed < sent - 1:
            writer.trimmed = sent - 1
            self._repaired = "white space at the end of the last turn is left out"
            self._pieces.forget(sent - 1)
        else:
            return False
        return True

    def _close_turn(self, transcript: Transcript) -> None:
        """A turn that was sent as one that goes on, and has come to nothing, is written anew."""
        start = end = min(len(self._pieces), len(transcript))
        while start and transcript[start - 1].role == "assistant":
            start -= 1
        if start == end:
            return
        while end < len(transcript) and transcript[end].role == "assistant":
            end += 1
        if end < len(transcript) and not transcript[end].tool_results:
            self._pieces.forget(start)

    def _take_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        if tools is not self._tools and tools != self._tools:
            self._writer.toolbox = Toolbox(tools, _TOOLS)
            self._prefix = None
            self._pieces.forget(0)  # other tools may have other names for their parameters
        self._tools = tools

    def _prefix_of(self, instructions: str, extra: Mapping[str, Any]) -> Prefix:
        known = self._prefix
        if known is None or known[0] != instructions or known[1] != extra:
            mark = None if "cache_control" in extra else self._marker
            made = Prefix.of(instructions, self._writer.toolbox, extra, mark)
            known = self._prefix = (instructions, extra, made)
        return known[2]

    def _fields(self, request: ModelRequest) -> tuple[dict[str, Any], str | None]:
        """What stands before tools and messages, and what of it cannot be said."""
        settings, offered = request.settings, self._writer.toolbox.offered
        fields: dict[str, Any] = {"model": self._model, "max_tokens": request.max_output}
        choice = settings.tool_choice if offered else "auto"
        thinking = self._thinking(settings, request.max_output)
        # With a choice that forces a call the provider refuses thinking: the choice is what was asked for now.
        if thinking is not None and choice in ("auto", "none"):
            fields["thinking"] = thinking
        if choice in ("any", "none"):
            fields["tool_choice"] = {"type": choice}
        elif choice != "auto":
            name = self._writer.toolbox.wire_name(choice)
            fields["tool_choice"] = {"type": "tool", "name": name}
        self._container = self._container_of(request.transcript)
        if self._container is not None:
            fields["container"] = self._container
        output = None if request.output_schema is None else self._output(request.output_schema)
        if isinstance(output, dict):
            fields["output_config"] = output
        for name, value in settings.extra.items():
            if name == "output_config" and isinstance(output, dict) and is_table(value):
                fields[name] = {**output, **value}  # effort beside a schema
            elif name not in _IN_PREFIX:
                fields[name] = value
        return fields, output if isinstance(output, str) else None

    def _thinking(self, settings: Settings, max_output: int) -> dict[str, Any] | None:
        """It is a part of the output, so it has to fit into the cap."""
        budget = min(settings.thinking or 0, max_output - 1)
        if self._thinks is None or budget < _LEAST_THINKING:
            return None
        if self._thinks == "adaptive":
            return {"type": "adaptive"}
        return {"type": "enabled", "budget_tokens": budget}

    def _output(self, schema: Mapping[str, Any]) -> dict[str, Any] | str:
        """The format of a final text; where the schema cannot go out, why."""
        known = self._schema
        if known is None or known[0] is not schema:
            try:
                lowered = lower(schema, _OUTPUT).schema
                known = (schema, {"format": {"type": "json_schema", "schema": lowered}})
            except CannotLower as error:
                known = (
                    schema,
                    f"the output is asked for in words, not held to its schema: {error}",
                )
            self._schema = known
        return known[1]

    def _container_of(self, transcript: Transcript) -> str | None:
        """Where the provider's code ran for the last reply: it is gone on with there."""
        containers = self._writer.containers
        if not containers:
            return None
        last = len(transcript) - 1
        while last >= 0 and transcript[last].role != "assistant":
            last -= 1
        return containers.get(last) if last >= self._containers_from else None

    def _cut_back(self, why_not: str | None) -> str | None:
        """What was left out on purpose since the last request, in words."""
        told = [self._repaired] if self._repaired is not None else []
        if why_not is not None and not self._told_why_not:
            self._told_why_not = True  # once for a run
            told.append(why_not)
        left_out = self._writer.left_out
        if left_out:
            blocks = "block" if left_out == 1 else "blocks"
            told.append(f"{left_out} {blocks} of thinking left out: what stood before was changed")
        self._repaired = None
        return "; ".join(told) or None
