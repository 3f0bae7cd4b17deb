"""The history of a conversation, valid at every boundary.

The promise: every tool use is answered exactly once, directly after its turn, in call order,
whatever happens. It is kept by the shape of the data, not by the discipline of whoever writes: the
only way to answer is `Transcript.answering()`, which hands out one `Slot` per owed tool use; however
that block ends, every slot is settled and one message is appended. Nothing broken can get in, so
nothing needs repair. The one door for histories from outside is `Transcript.load`, which mends what
it can mend without guessing and reports what it did.

Not here: running tools, rendering what they returned, the bytes on a wire, the journal, and which
old results give way (`elide`).
Above: the loop and the codecs. Below: `messages.py`, whose values are stored as they are.

What follows from the messages (ids, tokens, doubts) is kept while they are appended, so that a step
costs what is new in it, however long the history.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeAlias, cast, overload

import msgspec

from remit.errors import ConfigurationError, TranscriptError
from remit.messages import (
    Block,
    Media,
    Message,
    Opaque,
    ResultContent,
    Status,
    Text,
    ToolResult,
    ToolUse,
    Value,
)

__all__ = [
    "MEDIA_TOKENS",
    "Answering",
    "Break",
    "Mended",
    "Slot",
    "Stub",
    "Transcript",
    "Words",
    "is_blank",
    "tokens_of",
    "validate",
]

_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the narrowest rule among the providers
_ARGUMENTS_HASH = re.compile(r"[0-9a-f]{16}")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_NAMELESS = "unnamed"
"""Stands where a call names no tool: providers refuse a call without a name."""

_MESSAGE_TOKENS = 4
MEDIA_TOKENS = 1_000


class Slot:
    """The place of one result: it knows its tool use, and the first result wins (T4)."""

    __slots__ = ("_result", "_started", "index", "key", "use")

    def __init__(self, use: ToolUse, index: int) -> None:
        self.use: Final = use
        """The tool use that is answered here."""
        self.index: Final = index
        """Position in call order, from 0."""
        self.key: str | None = None
        """The key of the call once it has one. It goes into the result, whoever settles it."""
        self._started = False
        self._result: ToolResult | None = None

    @property
    def result(self) -> ToolResult | None:
        """What became of the call; None while the slot is open."""
        return self._result

    @property
    def started(self) -> bool:
        """A body was entered: without a result the call may have taken effect."""
        return self._started

    def begin(self) -> None:
        """Say that a body is about to be entered."""
        self._started = True

    def settle(
        self,
        content: tuple[ResultContent, ...],
        *,
        is_error: bool = False,
        status: Status = Status.OK,
        key: str | None = None,
        artifacts: tuple[str, ...] = (),
    ) -> bool:
        """Write the result, under the slot's own id.

        Shape: True if this is the result; False, with nothing changed, if there was one already.
        Errors: `TranscriptError` where nothing but blank text is left of the content.
        """
        if self._result is not None:
            return False
        shown = _presentable(content)
        if not shown:
            raise TranscriptError(f"the result of {self.use.name!r} is blank: say so in words")
        self._result = ToolResult(
            self.use.id, shown, is_error, status, self.key if key is None else key, artifacts
        )
        return True

    def shorten(self, content: tuple[ResultContent, ...], artifacts: tuple[str, ...]) -> None:
        """Show less of the result that is here: the turn is not closed yet, so no model has seen it.

        Errors: `TranscriptError` where there is no result, or nothing is left of it.
        """
        shown = _presentable(content)
        if self._result is None or not shown:
            raise TranscriptError(f"the result of {self.use.name!r} cannot be shown shorter")
        self._result = msgspec.structs.replace(self._result, content=shown, artifacts=artifacts)

    def __repr__(self) -> str:
        state = "started" if self._started else "open"
        return (
            f"<Slot {self.index} {self.use.id}: {self._result.status if self._result else state}>"
        )


Words: TypeAlias = Callable[[Slot], tuple[str, Status]]
"""What an open slot is settled with: the text for the model, and what it means."""


def _truth(slot: Slot) -> tuple[str, Status]:
    if slot.started:
        return "Interrupted: it may have taken effect.", Status.UNKNOWN
    return "Not started: the run stopped before this call.", Status.NOT_STARTED


def _settled(slot: Slot, words: Words) -> ToolResult:
    if slot.result is not None:
        return slot.result
    text, status = words(slot)
    shown = _presentable((Text(text),))
    if not shown:
        raise TranscriptError(f"the words for {slot.use.name!r} are blank")
    return ToolResult(slot.use.id, shown, status is not Status.OK, status, slot.key)


def _slots(uses: tuple[ToolUse, ...]) -> tuple[Slot, ...]:
    return tuple([Slot(use, index) for index, use in enumerate(uses)])


class Answering:
    """The slots of one turn, open until `close`; as a context manager it closes on every exit."""

    __slots__ = ("_answered", "_append", "slots")

    def __init__(
        self, uses: tuple[ToolUse, ...], append: Callable[[tuple[ToolResult, ...]], Message]
    ) -> None:
        self.slots: Final = _slots(uses)
        """One slot per tool use, in call order."""
        self._append = append
        self._answered: Message | None = None

    @property
    def open(self) -> tuple[Slot, ...]:
        """The slots without a result, in call order."""
        return tuple([slot for slot in self.slots if slot.result is None])

    def close(self) -> Message:
        """Settle what is open with the truth and append all results, in call order, as one message.

        Shape: the message as appended; closing again returns it and changes nothing.
        """
        if self._answered is None:
            for slot in self.slots:
                if slot.result is None:
                    text, status = _truth(slot)
                    slot.settle((Text(text),), is_error=True, status=status)
            results = [slot.result for slot in self.slots if slot.result is not None]
            self._answered = self._append(tuple(results))
        return self._answered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Mended:
    """Something that `Transcript.load` had to put right."""

    position: int
    """Index of the message in what was loaded."""
    what: str
    """What was found and what was done, as a sentence for people."""


class Break(msgspec.Struct, frozen=True, gc=False):
    """A change of what had been sent. Opaque blocks that bind to what stood before them have lost it."""

    first: int
    """Index of the first message that was changed."""
    end: int
    """How many messages there were then: those after `first` and before this were said in view of the old."""


class Stub(Value, frozen=True, gc=False):
    """What stands in place of a part of an old result."""

    tool_use_id: str
    at: int
    """Index of the part in the content of the result."""
    note: str
    """What the model reads there."""
    handle: str
    """Where the whole is kept."""
    total: int
    """Characters of the text that stood there, or bytes of the media."""


class _Messages(Sequence[Message]):
    """A transcript's messages, read-only and live."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        found = self._messages[index]
        return tuple(found) if isinstance(found, list) else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._messages == list(other)  # pyright: ignore[reportUnknownArgumentType] - any items compare

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes, so it is no key

    def __repr__(self) -> str:
        return repr(tuple(self._messages))


class Transcript:
    """An append-only history: what was sent is never edited, what is owed is always known.

    It is made of messages that are valid as they stand and may be iterated, measured and indexed
    like a tuple. Everything given to the constructor or to `load` counts as sent. The one exception
    from the rule is declared: `elide` puts notes in place of old results.

    Errors: `TranscriptError` with the position where the messages break a rule of `validate`.
    """

    __slots__ = (
        "_answering",
        "_breaks",
        "_doubts",
        "_ids",
        "_messages",
        "_owed",
        "_pending_keys",
        "_report",
        "_sent",
        "_tokens",
    )

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        given = tuple(messages)
        validate(given)
        self._messages: list[Message] = []
        self._ids: set[str] = set()
        self._owed: tuple[ToolUse, ...] = ()
        self._answering: Answering | None = None
        self._tokens = 0
        self._doubts: dict[str, tuple[str, ...]] = {}
        self._pending_keys: list[str] = []
        self._report: tuple[Mended, ...] = ()
        self._breaks: tuple[Break, ...] = ()
        self._sent = 0
        self._extend(given)

    def _extend(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._append(message)
        self._sent = len(self._messages)

    # Reading

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        found = self._messages[index]
        return tuple(found) if isinstance(found, list) else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript):
            return NotImplemented
        return self._messages == other._messages

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes, so it is no key

    def __repr__(self) -> str:
        owes = f", owes {len(self._owed)}" if self._owed else ""
        return f"<Transcript: {len(self._messages)} messages{owes}>"

    def __str__(self) -> str:
        """A line for each block, bounded; calls with their results."""
        from remit.notebook import transcript_text  # for people, and so for few runs

        return transcript_text(self._messages)

    def _repr_html_(self) -> str:
        """The same in a notebook. Everything in it is escaped and bounded."""
        from remit.notebook import transcript_html  # the same

        return transcript_html(self._messages)

    @property
    def messages(self) -> Sequence[Message]:
        """The messages as a read-only sequence that is live: it grows with the transcript."""
        return _Messages(self._messages)

    @property
    def last(self) -> Message | None:
        """The newest message; None while there is none."""
        return self._messages[-1] if self._messages else None

    @property
    def owed(self) -> tuple[ToolUse, ...]:
        """The tool uses of the last message, until all their results are appended."""
        return self._owed

    @property
    def tokens(self) -> int:
        """Estimated tokens of all messages.

        Source: remit's own rule of thumb - one token for 4 characters, 4 per message, 1,000 for
        each `Media`.
        """
        return self._tokens

    @property
    def doubts(self) -> Mapping[str, tuple[str, ...]]:
        """The keys of calls whose outcome is unknown, oldest first, by what was called (E4).

        Shape: `"tool:hash"`, hash being the first 16 digits of the arguments' hash, to the keys; no
        entry without a key. Live. A doubt ends with a result for the same key that tells what
        happened; a repeat that was refused or not started tells nothing and leaves it.
        """
        return MappingProxyType(self._doubts)

    @property
    def pending_keys(self) -> tuple[str, ...]:
        """The keys of calls that were answered "not started": left pending in a closed view."""
        return tuple(self._pending_keys)

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The handles of everything that the results show in part or only name, oldest first."""
        results = [result for message in self._messages for result in message.tool_results]
        return tuple(dict.fromkeys([handle for result in results for handle in result.artifacts]))

    @property
    def breaks(self) -> tuple[Break, ...]:
        """Where what had been sent was changed, oldest first. Not part of `to_json`."""
        return self._breaks

    @property
    def report(self) -> tuple[Mended, ...]:
        """What `load` had to mend, in order of position; empty for a history that was sound."""
        return self._report

    # Writing

    def say(self, *content: Text | Media) -> None:
        """Add what the user says: to the last message if it is the user's and not sent, else anew.

        Blank text blocks are left out.
        Errors: `TranscriptError` while results are owed (T5: the caller queues), for content of
        another kind, and where nothing is left to say.
        """
        self._refuse_while_owed("say something")
        said = _presentable(content)
        if not said:
            raise TranscriptError("there is nothing to say: the content is empty or blank")
        last = len(self._messages) - 1
        if last >= self._sent and self._messages[last].role == "user":
            self._messages[last] = Message("user", self._messages[last].content + said)
            self._tokens += sum([tokens_of(block) for block in said])
        else:
            self._append(Message("user", said))

    def mark_sent(self) -> None:
        """Freeze what is here: a later `say` opens a new message (X1)."""
        self._sent = len(self._messages)

    def elide(self, stubs: Iterable[Stub]) -> int:
        """Put notes in place of parts of results, and return how many estimated tokens that freed.

        Nothing else changes: calls, ids, order, status, keys, errors and what the user said stay as they are,
        so that no pair can be torn. A part that is a note already stays one.
        Errors: `TranscriptError`, with nothing changed, while results are owed, for a result or a part
        that is not there, and for a blank note.
        """
        self._refuse_while_owed("elide results")
        wanted: dict[str, list[Stub]] = {}
        for stub in stubs:
            wanted.setdefault(stub.tool_use_id, []).append(stub)
        changed: dict[int, Message] = {}
        for position, message in enumerate(self._messages):
            if not wanted:
                break
            content = tuple(
                [
                    _stubbed(block, wanted.pop(block.tool_use_id))
                    if isinstance(block, ToolResult) and block.tool_use_id in wanted
                    else block
                    for block in message.content
                ]
            )
            if content != message.content:
                changed[position] = Message(message.role, content)
        if wanted:
            raise TranscriptError(f"there is no result of {next(iter(wanted))!r} to elide")
        freed = 0
        for position, message in changed.items():
            freed += _size(self._messages[position]) - _size(message)
            self._messages[position] = message
        self._tokens -= freed
        if changed:
            self._breaks = (*self._breaks, Break(min(changed), len(self._messages)))
        return freed

    def add_reply(self, message: Message) -> Message:
        """Add a reply of the model and return it as it is stored.

        Ids that are missing, illegal or already used are renamed as in `fresh_ids`; blank text
        blocks are left out; ill-formed text is replaced; nothing else is touched. What came before
        was sent, and can no longer be extended.
        Errors: `TranscriptError` while results are owed, before the first user message, for a
        message that is not the assistant's, and where nothing is left of its content.
        """
        self._refuse_while_owed("add a reply")
        if message.role != "assistant":
            raise TranscriptError("a reply is a message of the assistant")
        if not self._messages:
            raise TranscriptError("a reply cannot come before the first user message")
        fresh = iter(self.fresh_ids(message.tool_uses))
        content = tuple(
            [
                next(fresh) if isinstance(block, ToolUse) else _replied(block)
                for block in message.content
                if not is_blank(block)
            ]
        )
        if not content:
            raise TranscriptError("the reply is empty")
        if not all(isinstance(block, _HOLDS["assistant"]) for block in content):
            raise TranscriptError("a reply holds text, calls and opaque blocks only")
        stored = message if content == message.content else Message("assistant", content)
        self._append(stored)
        return stored

    def fresh_ids(self, uses: Sequence[ToolUse]) -> tuple[ToolUse, ...]:
        """The tool uses of the next reply as `add_reply` will store them (T3).

        Shape: `fresh_ids(uses[:k]) == fresh_ids(uses)[:k]`, so a reply may be asked about while it
        still streams. Nothing is changed, and the same messages and uses give the same ids: a new
        one is `call_n` with n counting the tool uses of the transcript, moved on past ids in use.
        """
        return _fresh(uses, self._ids)

    def answering(self) -> Answering:
        """The slots for what is owed; the same object until it is closed.

        Errors: `TranscriptError` when nothing is owed.
        """
        if self._answering is None:
            if not self._owed:
                raise TranscriptError("nothing is owed: the last message asks for no tool")
            self._answering = Answering(self._owed, self._answer)
        return self._answering

    def _answer(self, results: tuple[ToolResult, ...]) -> Message:
        message = Message("user", results)
        self._answering = None
        self._append(message)
        return message

    def _refuse_while_owed(self, act: str) -> None:
        if self._owed:
            raise TranscriptError(f"cannot {act} while {len(self._owed)} results are owed")

    def _append(self, message: Message) -> None:
        """The only place where the history grows. The message is valid here."""
        self._messages.append(message)
        tokens = _MESSAGE_TOKENS
        owed: list[ToolUse] = []
        for block in message.content:
            tokens += tokens_of(block)
            if isinstance(block, ToolUse):
                owed.append(block)
                self._ids.add(block.id)
            elif isinstance(block, ToolResult) and block.key is not None:
                self._remember(block.key, block.status)
        self._tokens += tokens
        self._owed = tuple(owed)

    def _remember(self, key: str, status: Status) -> None:
        match status:
            case Status.NOT_STARTED:
                self._pending_keys.append(key)
            case Status.REFUSED:
                pass  # no body was entered: an older doubt about the same key is as open as before
            case Status.UNKNOWN | Status.OK | Status.ERROR:
                called = _identity(key)
                if called is None:
                    return
                keys = self._doubts.get(called, ())
                if status is Status.UNKNOWN:
                    if key not in keys:
                        self._doubts[called] = (*keys, key)
                elif keys == (key,):
                    del self._doubts[called]
                elif key in keys:
                    self._doubts[called] = tuple([other for other in keys if other != key])

    # Deriving: what comes out is another transcript, and this one stays as it is

    def copy(self) -> Transcript:
        """The same history, independent from now on. Slots that are open here are not shared."""
        made = Transcript()
        made._messages = self._messages.copy()
        made._ids = self._ids.copy()
        made._owed = self._owed
        made._tokens = self._tokens
        made._doubts = self._doubts.copy()
        made._pending_keys = self._pending_keys.copy()
        made._report = self._report
        made._breaks = self._breaks
        made._sent = self._sent
        return made

    def closed(self, words: Words | None = None) -> Transcript:
        """A copy without debts: settled slots as they are, open ones with `words` or the truth."""
        made: Transcript = self.copy()
        if self._owed:
            # Slots of this transcript are read, never written: its own results may still come.
            slots = self._answering.slots if self._answering else _slots(self._owed)
            made._answer(tuple([_settled(slot, words or _truth) for slot in slots]))
        return made

    def view(self, last: int) -> Transcript:
        """The newest messages, at most `last` of them, cut only where no pair is torn.

        Shape: it begins with a user message that answers no call; empty where the newest `last`
        messages hold none. Doubts and pending keys stay those of the whole conversation: what may
        have taken effect did not become certain by being cut away.
        Errors: `ConfigurationError` for a negative number.
        """
        if last < 0:
            raise ConfigurationError(f"view(last={last}): pass the number of messages to keep")
        start = max(len(self._messages) - last, 0)
        if start:
            while start < len(self._messages) and not _opens(self._messages[start]):
                start += 1
        made = Transcript()
        made._extend(self._messages[start:])
        made._doubts = self._doubts.copy()
        made._pending_keys = self._pending_keys.copy()
        made._sent = max(self._sent - start, 0)
        return made

    def before(self, step: int) -> Transcript:
        """The history as it was sent for the `step`-th reply, counted from 1; elided results stay so.

        Errors: `ConfigurationError` where there is no such reply.
        """
        replies = [at for at, message in enumerate(self._messages) if message.role == "assistant"]
        if not 1 <= step <= len(replies):
            raise ConfigurationError(f"before({step}): the transcript has {len(replies)} replies")
        made = Transcript()
        made._extend(self._messages[: replies[step - 1]])
        return made

    # Outside

    def to_json(self) -> list[dict[str, Any]]:
        """The messages as JSON values; `load` reads them back."""
        return [message.to_json() for message in self._messages]

    @staticmethod
    def load(obj: object) -> Transcript:
        """Read a history from outside, mend what is broken and say so in `.report` (T6).

        Calls and results are matched by id, each result with the nearest call before it. What is
        missing is answered "outcome unknown"; what belongs to no call is removed; what stands in
        the wrong place is moved; what a provider would refuse is renamed, replaced or left out.
        Only the last message may keep its debts.

        Shape: `obj` is what `to_json` gave, or the like from elsewhere: a list of messages.
        Errors: `TranscriptError` with the position of what cannot be read at all.
        """
        if not isinstance(obj, list | tuple):
            raise TranscriptError(f"a transcript is a list of messages, not {type(obj).__name__}")
        entries = cast("Sequence[object]", obj)
        given = [_read(position, entry) for position, entry in enumerate(entries)]
        if _first_fault(given) is None:
            made = Transcript()
            made._extend(given)
            return made
        mender = _Mender()
        made = Transcript(mender.mend(given))
        made._report = tuple(sorted(mender.report, key=lambda mended: mended.position))
        return made


# The rules


def validate(messages: Iterable[Message]) -> None:
    """Refuse a history that a provider would refuse. The last message may owe results.

    The first message is the user's. No message, result or text is blank, no text ill-formed (lone
    surrogates, NUL). The assistant gives no results, the user calls no tools; what is opaque in a
    user's turn came in with a history that a wire parsed. Each tool use has a legal id (`[A-Za-z0-9_-]{1,64}`) that is unique in the history, and
    exactly one result: in the next message, in call order, before any other content. Two messages
    of one side may follow each other: a paused turn, a later word.

    Errors: `TranscriptError` with the position of the first message that breaks a rule.
    """
    found = _first_fault(messages)
    if found is not None:
        position, fault = found
        raise TranscriptError(f"message {position}: {fault}")


def _first_fault(messages: Iterable[Message]) -> tuple[int, str] | None:
    ids: set[str] = set()
    owed: tuple[ToolUse, ...] = ()
    for position, message in enumerate(messages):
        if position == 0 and message.role != "user":
            return position, "the first message is not the user's"
        fault = _message_fault(message, owed, ids)
        if fault is not None:
            return position, fault
        owed = message.tool_uses
    return None


def _message_fault(message: Message, owed: tuple[ToolUse, ...], ids: set[str]) -> str | None:
    """What is wrong with a message after one that owes `owed`; its own ids are added to `ids`."""
    if not message.content:
        return "it is empty"
    answered = [result.tool_use_id for result in message.tool_results]
    if answered != [use.id for use in owed]:
        return (
            f"{len(owed)} results are owed; the {len(answered)} here are not those, in call order"
        )
    if any(not isinstance(block, ToolResult) for block in message.content[: len(answered)]):
        return "its results do not come before its other content"
    for block in message.content:
        if not isinstance(block, _HOLDS.get(message.role, ())):
            return f"a message of the {message.role} holds no {type(block).__name__}"
        fault = _block_fault(block)
        if fault is not None:
            return fault
        if isinstance(block, ToolUse):
            if not _LEGAL_ID.fullmatch(block.id):
                return f"the id of a call of {block.name[:64]!r} is illegal"
            if block.id in ids:
                return f"the id {block.id!r} is used twice"
            ids.add(block.id)
    return None


_HOLDS: Mapping[str, tuple[type, ...]] = {
    "user": (Text, Media, ToolResult, Opaque),
    "assistant": (Text, ToolUse, Opaque),
}


def _block_fault(block: Block) -> str | None:
    if is_blank(block) or (isinstance(block, ToolUse) and not block.name):
        return f"a {type(block).__name__} is blank"
    match block:
        case Text(text):
            strings = (text,)
        case Media(media_type, _, name):
            strings = (media_type, name or "")
        case ToolUse(_, name, arguments):
            strings = (name, arguments)
        case ToolResult(_, content, key=key):
            if not content:
                return "a result is empty"
            for part in content:
                fault = _block_fault(part)
                if fault is not None:
                    return fault
            strings = (key or "",)
        case Opaque(issuer):
            strings = (issuer,)
    return "a text is ill-formed" if any(_well_formed(s) is not s for s in strings) else None


def _opens(message: Message) -> bool:
    """Whether a history may begin here: a user message that needs nothing before it."""
    return message.role == "user" and not isinstance(message.content[0], ToolResult)


def is_blank(block: Block) -> bool:
    """Whether there is nothing in it, which providers refuse."""
    if isinstance(block, Text):
        return not block.text or block.text.isspace()
    return isinstance(block, Media | Opaque) and not block.data


def _well_formed(text: str) -> str:
    """The same object where it is well-formed; else without lone surrogates and NUL."""
    if text.isascii():  # a flag of the string: no scan
        return text.replace("\0", _REPLACEMENT) if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, so that two halves that stand side by side become their character.
        halves = text.encode("utf-16-le", "surrogatepass")
        text = halves.decode("utf-16-le", "replace")
    return text.replace("\0", _REPLACEMENT) if "\0" in text else text


def _presentable(content: Iterable[Block]) -> tuple[ResultContent, ...]:
    """Text and media without blank blocks and ill-formed text."""
    return tuple([_plain(block) for block in content if not is_blank(block)])


def _plain(block: Block) -> ResultContent:
    if isinstance(block, Text):
        text = _well_formed(block.text)
        return block if text is block.text else Text(text)
    if isinstance(block, Media):
        media_type = _well_formed(block.media_type)
        name = None if block.name is None else _well_formed(block.name)
        if media_type is block.media_type and name is block.name:
            return block
        return msgspec.structs.replace(block, media_type=media_type, name=name)
    raise TranscriptError(f"only text and media can stand here, not {type(block).__name__}")


def _replied(block: Block) -> Block:
    if not isinstance(block, Opaque):
        return _plain(block)
    issuer = _well_formed(block.issuer)
    return block if issuer is block.issuer else Opaque(issuer, block.data)


def _fresh(uses: Iterable[ToolUse], taken: AbstractSet[str]) -> tuple[ToolUse, ...]:
    """Well-formed tool uses whose ids are legal, unique and not taken. See `Transcript.fresh_ids`."""
    given: set[str] = set()
    made: list[ToolUse] = []
    for use in uses:
        free = use.id
        if free in taken or free in given or not _LEGAL_ID.fullmatch(free):
            n = len(taken) + len(given) + 1
            while (free := f"call_{n}") in taken or free in given:
                n += 1
        given.add(free)
        name, arguments = _well_formed(use.name or _NAMELESS), _well_formed(use.arguments)
        same = free is use.id and name is use.name and arguments is use.arguments
        made.append(use if same else ToolUse(free, name, arguments))
    return tuple(made)


def _stubbed(result: ToolResult, stubs: Sequence[Stub]) -> ToolResult:
    content, artifacts = list(result.content), result.artifacts
    for stub in stubs:
        if not 0 <= stub.at < len(content) or is_blank(Text(stub.note)):
            raise TranscriptError(f"part {stub.at} of result {result.tool_use_id!r} has no note")
        content[stub.at] = Text(_well_formed(stub.note))
        if stub.handle not in artifacts:
            artifacts = (*artifacts, stub.handle)
    return msgspec.structs.replace(result, content=tuple(content), artifacts=artifacts)


def _size(message: Message) -> int:
    return sum([tokens_of(block) for block in message.content])


def tokens_of(block: Block) -> int:
    """Estimated tokens of a block; see `Transcript.tokens`."""
    if isinstance(block, Text):
        return (len(block.text) + 3) // 4
    if isinstance(block, ToolResult):
        return sum([tokens_of(part) for part in block.content])
    if isinstance(block, ToolUse):
        return (len(block.name) + len(block.arguments) + 3) // 4
    if isinstance(block, Media):
        return MEDIA_TOKENS
    return (len(block.data) + 3) // 4


def _identity(key: str) -> str | None:
    """What was called, `tool:hash`, from `run_id:step:tool:hash:n`; None for another kind of key.

    The run id may hold colons of its own, so the parts are counted from the right.
    """
    parts = key.rsplit(":", 4)
    if len(parts) != 5:
        return None
    _, step, tool, digits, n = parts
    if not (tool and step.isdecimal() and n.isdecimal() and _ARGUMENTS_HASH.fullmatch(digits)):
        return None
    return f"{tool}:{digits}"


# Mending


def _read(position: int, entry: object) -> Message:
    try:
        message = Message.from_json(entry)  # pyright: ignore[reportArgumentType] - what is no mapping raises
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise TranscriptError(f"message {position} cannot be read: {why}") from error
    for block in message.content:
        if isinstance(block, ToolResult):
            optional = [
                block.key,
                *[part.name for part in block.content if isinstance(part, Media)],
            ]
        else:
            optional = [block.name] if isinstance(block, Media) else []
        if not all(map(_is_optional_string, optional)):
            raise TranscriptError(f"message {position} cannot be read: a name or key is no string")
    return message


def _is_optional_string(value: object) -> bool:
    return value is None or isinstance(value, str)


class _Mender:
    """Turns any messages into valid ones, and says of each change what it was."""

    def __init__(self) -> None:
        self.report: list[Mended] = []
        self._results: dict[tuple[int, int], ToolResult] = {}
        """Results by the message and the index of the tool use that they answer."""

    def mend(self, given: Sequence[Message]) -> list[Message]:
        self._pair(given)
        made: list[Message] = []
        taken: set[str] = set()
        due: tuple[ToolResult, ...] = ()  # results that must stand first in the next message
        for position, message in enumerate(given):
            blocks = self._content(position, message)
            if message.role == "user":
                if due or blocks:
                    made.append(Message("user", (*due, *blocks)))
                    due = ()
                else:
                    self._note(position, "the message was empty: removed")
                continue
            if not blocks:
                self._note(position, "the message was empty: removed")
                continue
            if due:
                made.append(Message("user", due))
            if not made:
                self._note(position, "the conversation began with the assistant: user turn added")
                made.append(Message("user", (Text("(The beginning is not in this history.)"),)))
            uses = self._uses(position, blocks, taken)
            fresh = iter(uses)
            content = [next(fresh) if isinstance(block, ToolUse) else block for block in blocks]
            made.append(Message("assistant", tuple(content)))
            answered = any((position, index) in self._results for index in range(len(uses)))
            may_owe = position == len(given) - 1 and not answered
            due = () if may_owe else self._answers(position, uses)
        if due:
            made.append(Message("user", due))
        return made

    def _note(self, position: int, what: str) -> None:
        self.report.append(Mended(position, what))

    def _pair(self, given: Sequence[Message]) -> None:
        """Give each result to the nearest call of its id before it; note those it cannot place.

        Nearer is safer where an id was used again: a result is given to no call that it could not
        have come from, and a second result for the same call never to an older one.
        """
        calls: dict[str, deque[tuple[int, int]]] = {}  # open calls of the newest turn using the id
        for position, message in enumerate(given):
            if message.role == "assistant":
                turn: dict[str, deque[tuple[int, int]]] = {}
                for index, use in enumerate(message.tool_uses):
                    turn.setdefault(use.id, deque()).append((position, index))
                calls |= turn
            newest = -1
            for at, block in enumerate(message.content):
                if not isinstance(block, ToolResult):
                    continue
                name = repr(block.tool_use_id[:64])
                waiting = calls.get(block.tool_use_id)
                if waiting is None:
                    self._note(position, f"result {name} belongs to no call before it: removed")
                elif not waiting:
                    self._note(position, f"result {name} was there already: removed")
                else:
                    call, index = waiting.popleft()
                    self._results[call, index] = block
                    if message.role == "assistant" or position != call + 1:
                        self._note(position, f"result {name} stood apart from its call: moved")
                    elif index < newest or not all(
                        isinstance(before, ToolResult) for before in message.content[:at]
                    ):
                        self._note(position, f"result {name} was out of order: moved")
                    newest = max(newest, index)

    def _content(self, position: int, message: Message) -> list[Block]:
        """What is left of a message beside its results."""
        kept: list[Block] = []
        for block in message.content:
            if isinstance(block, ToolResult):
                continue
            if not isinstance(block, _HOLDS[message.role]):
                self._note(position, f"{type(block).__name__} in a {message.role} turn: removed")
            elif is_blank(block):
                self._note(position, f"a blank {type(block).__name__.lower()}: removed")
            elif isinstance(block, ToolUse):
                kept.append(block)
            else:
                kept.append(_replied(block))
                if kept[-1] is not block:
                    self._note(position, "ill-formed text: replaced")
        return kept

    def _uses(self, position: int, blocks: Iterable[Block], taken: set[str]) -> tuple[ToolUse, ...]:
        """The calls of a turn under legal and unique ids, which are then taken."""
        uses = [block for block in blocks if isinstance(block, ToolUse)]
        fresh = _fresh(uses, taken)
        for old, new in zip(uses, fresh, strict=True):
            if old.id != new.id:
                self._note(position, f"id {old.id[:64]!r} is illegal or used: now {new.id!r}")
            if (old.name, old.arguments) != (new.name, new.arguments):
                self._note(position, f"no name or ill-formed text in call {new.id!r}: replaced")
        taken.update(use.id for use in fresh)
        return fresh

    def _answers(self, position: int, uses: tuple[ToolUse, ...]) -> tuple[ToolResult, ...]:
        return tuple([self._answered(position, index, use) for index, use in enumerate(uses)])

    def _answered(self, position: int, index: int, use: ToolUse) -> ToolResult:
        found = self._results.get((position, index))
        if found is None:
            self._note(position, f"call {use.id!r} had no result: answered as unknown")
            text = "Outcome unknown: no result in this history; it may have taken effect."
            return ToolResult(use.id, (Text(text),), True, Status.UNKNOWN)
        content = _presentable(found.content)
        if not content:
            content = (Text("(no output)"),)
        key = None if found.key is None else _well_formed(found.key)
        if content != found.content or key != found.key:
            self._note(position, f"blank or ill-formed text in the result of {use.id!r}: replaced")
        return msgspec.structs.replace(found, tool_use_id=use.id, content=content, key=key)
