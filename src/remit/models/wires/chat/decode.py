"""Replies of Chat Completions, from a stream or whole.

A stream has no event that says of a block that it is complete: text is when a call begins or the reply ends, a
call when its arguments are a whole object (`calls.py`). Its end is `[DONE]`. A server that closes without it is
believed if it had given a finish reason, which says what `[DONE]` says: the model is done. Without a finish
reason the attempt has failed, `[DONE]` or not.

What lies beyond text and calls and has to come back (`ChatDialect.reasoning`, `.of_calls`) becomes opaque: that
of a call directly behind it, that of the message behind the last block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

from remit.errors import ModelProtocolError, ModelUnavailable
from remit.messages import Block, Message, Opaque, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, TextDelta
from remit.models.wires.chat.calls import Call, CallAssembly, CallPiece, FunctionPiece
from remit.models.wires.chat.extras import Extras, beside
from remit.models.wires.chat.faults import Reported, bounded, generated, report_of, reported
from remit.models.wires.chat.halves import joined, open_end, standing_in
from remit.models.wires.chat.usage import cost_of, usage_of
from remit.models.wires.dialects import ChatDialect
from remit.models.wires.sse import ServerEvent
from remit.models.wires.toolbox import Toolbox

__all__ = ["ChatDecoder", "MessagePiece"]

_DONE: Final = b"[DONE]"

_LENGTH: Final = frozenset(
    {"length", "model_length", "max_tokens", "max_output_tokens", "max_length", "token_limit"}
)
_FILTER: Final = frozenset({"content_filter", "safety", "recitation", "blocked", "guardrail"})
_CALLS: Final = frozenset({"tool_calls", "function_call", "tool_call", "tool_use", "tool-calls"})
_END: Final = frozenset({"", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"})
_FAILED: Final = frozenset(
    {"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "timeout"}
)
"""Finish reasons, in lower case. OpenAI has stop, length, tool_calls, content_filter and function_call; Mistral adds
model_length and error, DeepSeek insufficient_system_resource, vLLM abort; Snowflake gives an empty one."""


_CUT: Final = frozenset({StopReason.LENGTH, StopReason.FILTER, StopReason.UNKNOWN})
"""Stops at which a call may have been cut off: none runs."""


class MessagePiece(msgspec.Struct, gc=False):
    """A message, or what a chunk adds to one."""

    content: Any = None
    refusal: Any = None
    tool_calls: list[CallPiece] | None = None
    function_call: FunctionPiece | None = None
    """What calls were before there were several."""
    reasoning_content: msgspec.Raw = msgspec.Raw()
    reasoning: msgspec.Raw = msgspec.Raw()
    reasoning_details: msgspec.Raw = msgspec.Raw()
    extra_content: msgspec.Raw = msgspec.Raw()
    thought_signature: msgspec.Raw = msgspec.Raw()

    @property
    def has_extras(self) -> bool:
        """Whether one of the last five is there. Most pieces of a stream have none."""
        return bool(
            self.reasoning_content
            or self.reasoning
            or self.reasoning_details
            or self.extra_content
            or self.thought_signature
        )


class _Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: MessagePiece | None = None
    message: MessagePiece | None = None
    finish_reason: Any = None
    error: Any = None
    """Where OpenRouter tells what became of the server behind it."""


class _Groq(msgspec.Struct, gc=False):
    usage: Any = None
    error: Any = None


class _Body(msgspec.Struct, gc=False):
    """A chunk, or a whole response."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    message: Any = None
    x_groq: _Groq | None = None


_READ = msgspec.json.Decoder(_Body)


class ChatDecoder:
    """Reads one reply."""

    def __init__(self, dialect: ChatDialect, tools: Toolbox | None = None) -> None:
        """Without tools, names and arguments stay as they stand."""
        self.content = self.unshown = 0
        self._dialect = dialect
        self._tools = tools
        self._known: Collection[str] = () if tools is None else tools.wire_names
        self._usage: Usage | None = None
        self._usd: Decimal | None = None
        self._reason: str | None = None
        self._texts: list[str] = []
        """Of the block of text that is being written."""
        self._rest = ""
        """Half a character that the text ended with."""
        self._halved = False
        """Some character came in halves."""
        self._refusal: list[str] = []
        self._calls = CallAssembly()
        self._extras = Extras(dialect)
        self._blocks: list[Block] = []
        """Those that were given out."""

    @property
    def usage(self) -> Usage | None:
        return self._usage

    # --- a stream

    def feed(self, event: ServerEvent) -> Sequence[Chunk]:
        data = event.data.strip()
        try:
            return self._end() if data == _DONE else self._take(self._read(data))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            if event.event not in {"", "message", "error"}:
                return ()  # an event of the server's own, such as a ping
            raise self._unread("the stream holds what is no chunk", data, error) from None
        except ModelProtocolError as error:
            error.usage = error.usage or self._usage
            raise

    def end(self) -> Sequence[Chunk]:
        if not self._reason:
            raise ModelProtocolError("the stream broke off before its end", usage=self._usage)
        try:
            return self._end()
        except ModelProtocolError as error:
            error.usage = error.usage or self._usage
            raise

    def _read(self, data: bytes) -> _Body:
        """Errors: those of msgspec."""
        try:
            return _READ.decode(data)
        except msgspec.DecodeError:
            if b"\\u" not in data:
                raise
            body = _READ.decode(standing_in(data))
            self._halved = True
            return body

    def _take(self, body: _Body) -> list[Chunk]:
        chunks: list[Chunk] = []
        if body.usage is not None or body.x_groq is not None:
            self._account(body)
        reply = self._failure(body)
        if reply is not None:
            return [*[BlockDone(block) for block in reply.message.content], reply]
        for choice in body.choices or ():
            if not _is_first(choice):
                continue  # another one of several that `n` asked for
            if choice.delta is not None:
                self._say(choice.delta, chunks)
                self._call(choice.delta, chunks)
            elif choice.message is not None and not self.content:
                # Whole, as the one chunk of a stream; behind others it would only say all of it again.
                self._say(choice.message, chunks)
                self._calls.add(_entries(choice.message))
            reason = choice.finish_reason
            if isinstance(reason, str) and (reason or self._reason is None):
                self._reason = reason
        return chunks

    def _say(self, piece: MessagePiece, chunks: list[Chunk]) -> None:
        """What a piece brings beside calls."""
        if piece.content:
            for given in self._extras.text_of(piece.content):
                text = self._mended(given) if self._halved else given
                if text:
                    self._texts.append(text)
                    chunks.append(TextDelta(text))
            self.content += 1
        if isinstance(piece.refusal, str) and piece.refusal:
            self._refusal.append(piece.refusal)
            self.content += 1
            self.unshown += len(piece.refusal)
        if piece.has_extras:
            self.content += self._extras.take(piece)
            self.unshown += _thought(piece)

    def _mended(self, text: str) -> str:
        """Text whose characters are whole; half of one waits for the other."""
        text = self._rest + text
        end = open_end(text)
        text, self._rest = text[:end], text[end:]
        return joined(text)

    def _call(self, piece: MessagePiece, chunks: list[Chunk]) -> None:
        """What a piece brings of calls."""
        entries = _entries(piece)
        if not entries:
            return
        self.content += 1
        self.unshown += sum([_length(each.function.arguments) for each in entries if each.function])
        self._calls.take(entries)
        ready = self._calls.ready()
        if self._calls.calls and not self._blocks:
            self._give(self._text(), chunks)
        for call in ready:
            self._give(self._said(call), chunks)

    def _end(self) -> list[Chunk]:
        """The reply, with what was not given out before it."""
        if self._reason is None:
            raise ModelProtocolError("the stream has no finish reason")
        chunks: list[Chunk] = []
        self._give(self._close(self._calls.rest()), chunks)
        chunks.append(self._reply())
        return chunks

    def _give(self, blocks: Iterator[Block], chunks: list[Chunk]) -> None:
        for block in blocks:
            self._blocks.append(block)
            chunks.append(BlockDone(block))

    # --- a whole body

    def whole(self, body: bytes) -> Reply:
        try:
            return self._whole(self._read(body))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._unread("the response is no completion", body, error) from None
        except ModelProtocolError as error:
            error.usage = error.usage or self._usage
            raise

    def _whole(self, body: _Body) -> Reply:
        self._account(body)
        reply = self._failure(body)
        if reply is not None:
            return reply
        first = next((c for c in body.choices or () if _is_first(c)), None)
        message = None if first is None else (first.message or first.delta)
        if first is not None and first.finish_reason == "content_filter":
            message = message or MessagePiece()  # what was filtered is not there at all
        if first is None or message is None:
            raise ModelProtocolError("the response holds no message: check the base URL")
        self._reason = first.finish_reason if isinstance(first.finish_reason, str) else ""
        self._say(message, [])
        self._calls.add(_entries(message))
        self._give(self._close(self._calls.rest()), [])
        return self._reply()

    # --- what both have in common

    def _account(self, body: _Body) -> None:
        """Usage is cumulative: the last one counts."""
        groq = body.x_groq
        said = body.usage if body.usage is not None or groq is None else groq.usage
        usage = usage_of(said)
        if usage is not None:
            self._usage = usage
            self._usd = cost_of(said) if self._dialect.cost else None

    def _failure(self, body: _Body) -> Reply | None:
        """A failure that the body reports. What the model wrote is a reply, if the server tells it exactly.

        Errors: `ModelError` for any other failure.
        """
        error = body.error or (None if body.x_groq is None else body.x_groq.error)
        for choice in body.choices or ():
            error = error or (choice.error if _is_first(choice) else None)
        if not error and body.object == "error":
            error = {"message": body.message}
        if not error:
            return None
        wrote = (
            cast("dict[str, Any]", error).get("failed_generation")
            if isinstance(error, dict)
            else None
        )
        again = generated(wrote) if isinstance(wrote, str) and not self._blocks else None
        if again is not None:
            reply = ChatDecoder(self._dialect, self._tools).whole(again)
            return msgspec.structs.replace(reply, usage=self._usage, usd=self._usd)
        raise reported(self._dialect, error, self._usage)

    def _close(self, calls: Sequence[Call]) -> Iterator[Block]:
        """The blocks that are left, now that nothing more comes.

        A call that the end cut off comes last, behind what belongs to the message (C3); of several, the last.
        """
        cut: list[Call] = []
        if _stop(self._reason) in _CUT:
            cut = [call for call in calls if not call.whole]
        if self._rest:
            self._texts.append(joined(self._rest))
        if not self._blocks:
            yield from self._text()
        for call in calls:
            if call not in cut:
                yield from self._said(call)
        yield from self._text()
        refusal = joined("".join(self._refusal)) if self._halved else "".join(self._refusal)
        if refusal and not refusal.isspace():
            yield Text(refusal)
        for block in self._extras.blocks():
            yield _mended(block) if self._halved else block
        if cut:
            yield self._use(cut[-1])

    def _text(self) -> Iterator[Block]:
        text, self._texts = "".join(self._texts), []
        if text and not text.isspace():
            yield Text(text)

    def _said(self, call: Call) -> Iterator[Block]:
        yield self._use(call)
        if call.extra and self._dialect.of_calls:
            yield beside(self._dialect, call.extra)

    def _use(self, call: Call) -> ToolUse:
        name, arguments = call.named(self._known), call.arguments
        if self._halved:
            name, arguments = joined(name), joined(arguments)
        if self._tools is not None:
            name = self._tools.own_name(name)
            arguments = self._tools.own_arguments(name, arguments)
        return ToolUse(call.id or "", name, arguments)

    def _reply(self) -> Reply:
        message = Message("assistant", tuple(self._blocks))
        return Reply(message, self._stop_reason(message), self._usage, self._usd)

    def _stop_reason(self, message: Message) -> StopReason:
        """Calls count, unless the word says that the reply was cut or failed, or is one that nobody knows."""
        if any(text and not text.isspace() for text in self._refusal):
            return StopReason.REFUSAL
        word = (self._reason or "").lower()
        stop = _stop(word)
        if word in _FAILED:
            raise ModelUnavailable(
                f"{self._dialect.title} ended the reply with {word!r}", usage=self._usage
            )
        if "malformed" in word:
            raise ModelProtocolError(
                f"the model wrote a call that the server could not read ({self._reason})",
                usage=self._usage,
            )
        if stop in _CUT:
            return stop
        if message.tool_uses:
            return StopReason.TOOL_USE
        if stop is StopReason.TOOL_USE:
            raise ModelProtocolError(
                f"the finish reason is {word!r}, but there is no call", usage=self._usage
            )
        return stop

    def _unread(self, what: str, data: bytes, error: Exception) -> ModelProtocolError:
        report = report_of(data) if data[:1] != b"{" else Reported()
        if report.html:
            what = "the answer is an HTML page, not one of an API: check the base URL, and any proxy in between"
        said = (
            f": {bounded(report.text)}" if report.text else ("" if report.html else f" ({error})")
        )
        return ModelProtocolError(f"{what}{said}", usage=self._usage)


def _mended(block: Opaque) -> Opaque:
    return Opaque(block.issuer, joined(block.data.decode()).encode())


def _is_first(choice: _Choice) -> bool:
    return choice.index is None or choice.index == 0


def _stop(reason: str | None) -> StopReason:
    word = (reason or "").lower()
    if word in _LENGTH:
        return StopReason.LENGTH
    if word in _FILTER:
        return StopReason.FILTER
    if word in _CALLS:
        return StopReason.TOOL_USE
    return StopReason.END_TURN if word in _END else StopReason.UNKNOWN


def _entries(piece: MessagePiece) -> Sequence[CallPiece]:
    if piece.tool_calls:
        return [_function_of(entry) for entry in piece.tool_calls]
    return (
        () if piece.function_call is None else (CallPiece(index=0, function=piece.function_call),)
    )


def _thought(piece: MessagePiece) -> int:
    """Characters of reasoning in a piece. Some servers say it in two fields at once."""
    plain = max(_length(piece.reasoning_content), _length(piece.reasoning))
    return plain or _length(piece.reasoning_details)


def _length(raw: msgspec.Raw) -> int:
    """Characters of a text as it stands on the wire, without its quotes."""
    return max(len(raw) - 2, 0)


def _function_of(entry: CallPiece) -> CallPiece:
    """A custom tool's call as one of a function, its input as the arguments: the loop says what it is not."""
    given: Any = entry.custom
    if entry.function is None and isinstance(given, dict):
        custom = cast("Mapping[str, Any]", given)
        raw = msgspec.Raw(msgspec.json.encode(custom.get("input") or ""))
        entry.function = FunctionPiece(custom.get("name"), raw)
    return entry
