"""The history of a conversation, valid at every boundary.

The promise: every tool use is answered exactly once, directly after its turn, in call order,
whatever happens. It is kept by the shape of the data, not by the discipline of whoever writes: the
only way to answer is `Transcript.answering()`, which hands out one `Slot` per owed tool use; however
that block ends, every slot is settled and one message is appended. Nothing broken can get in, so
nothing needs repair. The one door for histories from outside is `Transcript.load`, which mends what
it can mend without guessing and reports what it did; `Transcript.parse` leads there from what a provider
was sent.

Not here: running tools, rendering what they returned, the bytes on a wire, the journal, and which
old results give way (`elide`).
Above: the loop and the codecs. Below: `messages.py`, whose values are stored as they are.

What follows from the messages (ids, tokens, doubts) is kept while they are appended, so that a step
costs what is new in it, however long the history.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast, overload

import msgspec

from remit.canonical import tool_in_key
from remit.errors import ConfigurationError, TranscriptError
from remit.mending import Mended, Mender, read_message
from remit.messages import (
    Block,
    Media,
    Message,
    Status,
    Text,
    ToolResult,
    ToolUse,
    Value,
)
from remit.rules import (
    HOLDS,
    first_fault,
    fresh_ids,
    is_blank,
    presentable,
    replied,
    validate,
    well_formed,
    with_fresh_id,
)
from remit.slots import Answering, Slot, Words, as_settled, slots_for, truth

__all__ = [
    "MEDIA_TOKENS",
    "Break",
    "Stub",
    "Transcript",
    "tokens_of",
]

_ARGUMENTS_HASH = re.compile(r"[0-9a-f]{16}")

_REPLIES = HOLDS["assistant"]
_MESSAGE_TOKENS = 4
MEDIA_TOKENS = 1_000


class Break(msgspec.Struct, frozen=True, gc=False):
    """A change of what had been sent. Opaque blocks that bind to what stood before them have lost it."""

    first: int
    """Index of the first message that was changed; -1 where messages before the first were taken away."""
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
        "_named",
        "_origin",
        "_owed",
        "_pending_keys",
        "_report",
        "_sent",
        "_slots",
        "_tokens",
    )

    def __init__(self, messages: Iterable[Message] = (), breaks: Iterable[Break] = ()) -> None:
        """`breaks` are those that these messages have behind them."""
        given = tuple(messages)
        validate(given)
        self._messages: list[Message] = []
        self._ids: set[str] = set()
        self._owed: tuple[ToolUse, ...] = ()
        self._slots: tuple[Slot, ...] = ()
        """Of what is owed, once somebody asked for them."""
        self._answering: weakref.ref[Answering] | None = None
        """Who has them. It knows this transcript; the other way round too, no count would ever free the two."""
        self._tokens = 0
        self._doubts: dict[str, tuple[str, ...]] = {}
        self._pending_keys: list[str] = []
        self._named: dict[str, None] = {}
        self._report: tuple[Mended, ...] = ()
        self._breaks = tuple(breaks)
        self._origin: object = None
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
        return tuple(self._named)

    @property
    def breaks(self) -> tuple[Break, ...]:
        """Where what had been sent was changed, oldest first. Not part of `to_json`."""
        return self._breaks

    @property
    def report(self) -> tuple[Mended, ...]:
        """What `load` had to mend, in order of position; empty for a history that was sound."""
        return self._report

    @property
    def origin(self) -> object:
        """Whoever keeps what its handles name, if that is known; opaque here. Not part of `to_json`."""
        return self._origin

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """All but its origin, since what keeps artifacts belongs to this process, and those who answer it here."""
        kept = {name: getattr(self, name) for name in self.__slots__}
        return None, {**kept, "_origin": None, "_answering": None}

    # Writing

    def keep_origin(self, origin: object) -> None:
        """Know from here on, in copies too, who keeps what its handles name."""
        self._origin = origin

    def say(self, *content: Text | Media) -> None:
        """Add what the user says: to the last message if it is the user's and not sent, else anew.

        Blank text blocks are left out.
        Errors: `TranscriptError` while results are owed (T5: the caller queues), for content of
        another kind, and where nothing is left to say.
        """
        self._refuse_while_owed("say something")
        said = presentable(content)
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
            results = [each for message in self._messages for each in message.tool_results]
            self._named = dict.fromkeys([name for each in results for name in each.artifacts])
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
        given: set[str] = set()
        content: list[Block] = []
        same = True
        for block in message.content:
            if isinstance(block, ToolUse):
                kept = with_fresh_id(block, self._ids, given)
            elif is_blank(block):
                same = False
                continue
            else:
                kept = replied(block)
                if not isinstance(kept, _REPLIES):
                    raise TranscriptError("a reply holds text, calls and opaque blocks only")
            same = same and kept is block
            content.append(kept)
        if not content:
            raise TranscriptError("the reply is empty")
        stored = message if same else Message("assistant", tuple(content))
        self._append(stored)
        return stored

    def fresh_ids(self, uses: Sequence[ToolUse]) -> tuple[ToolUse, ...]:
        """The tool uses of the next reply as `add_reply` will store them (T3).

        Shape: `fresh_ids(uses[:k]) == fresh_ids(uses)[:k]`, so a reply may be asked about while it
        still streams. Nothing is changed, and the same messages and uses give the same ids: a new
        one is `call_n` with n counting the tool uses of the transcript, moved on past ids in use.
        """
        return fresh_ids(uses, self._ids)

    def answering(self) -> Answering:
        """The slots for what is owed; the same object until it is closed.

        Errors: `TranscriptError` when nothing is owed.
        """
        answering = None if self._answering is None else self._answering()
        if answering is None:
            if not self._owed:
                raise TranscriptError("nothing is owed: the last message asks for no tool")
            self._slots = self._slots or slots_for(self._owed)
            answering = Answering(self._slots, self._answer)
            self._answering = weakref.ref(answering)
        return answering

    def _answer(self, results: tuple[ToolResult, ...]) -> Message:
        message = Message("user", results)
        self._answering, self._slots = None, ()
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
            elif isinstance(block, ToolResult):
                if block.key is not None:
                    self._remember(block.key, block.status)
                if block.artifacts:
                    self._named.update(dict.fromkeys(block.artifacts))
        self._tokens += tokens
        self._owed = tuple(owed)

    def _remember(self, key: str, status: Status) -> None:
        if status is Status.OK and not self._doubts:
            return  # nothing that it could put an end to
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
        made._named = self._named.copy()
        made._report = self._report
        made._breaks = self._breaks
        made._origin = self._origin
        made._sent = self._sent
        return made

    def closed(self, words: Words | None = None) -> Transcript:
        """A copy without debts: settled slots as they are, open ones with `words` or the truth."""
        made: Transcript = self.copy()
        if self._owed:
            # Slots of this transcript are read, never written: its own results may still come.
            slots = self._slots or slots_for(self._owed)
            made._answer(tuple([as_settled(slot, words or truth) for slot in slots]))
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
        made._breaks = (Break(-1, len(made)),) if start else self._breaks
        made._origin = self._origin
        made._sent = max(self._sent - start, 0)
        return made

    def before(self, step: int) -> Transcript:
        """The history as it was sent for the `step`-th reply, counted from 1; elided results stay so.

        Errors: `ConfigurationError` where there is no such reply.
        """
        replies = [at for at, message in enumerate(self._messages) if message.role == "assistant"]
        if not 1 <= step <= len(replies):
            raise ConfigurationError(f"before({step}): the transcript has {len(replies)} replies")
        end = replies[step - 1]
        made = Transcript(
            (), [Break(each.first, min(each.end, end)) for each in self._breaks if each.first < end]
        )
        made._extend(self._messages[:end])
        made._origin = self._origin
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
        given = [read_message(position, entry) for position, entry in enumerate(entries)]
        if first_fault(given) is None:
            made = Transcript()
            made._extend(given)
            return made
        mender = Mender()
        made = Transcript(mender.mend(given))
        made._report = tuple(sorted(mender.report, key=lambda mended: mended.position))
        return made

    @staticmethod
    def parse(messages: object, *, wire: str) -> Transcript:
        """Read the history in a request to a provider: its messages as they stand there, or the whole body.

        Shape: `wire` is `anthropic`, `openai` (Responses: the input items) or `openai-chat`. Messages may be, or hold,
        objects of the providers' own SDKs. What the
        provider has issued and demands back as it was comes as `Opaque`.
        Errors: `ConfigurationError` for another wire; `TranscriptError` for what is no request of it.
        """
        # The wires stand above and are made of transcripts. The one that is named is found when it is
        # asked for, so nothing here depends on them.
        return import_module("remit.models.wires").parse(messages, wire).transcript


def _opens(message: Message) -> bool:
    """Whether a history may begin here: a user message that needs nothing before it."""
    return message.role == "user" and not isinstance(message.content[0], ToolResult)


def _stubbed(result: ToolResult, stubs: Sequence[Stub]) -> ToolResult:
    content, artifacts = list(result.content), result.artifacts
    for stub in stubs:
        if not 0 <= stub.at < len(content) or is_blank(Text(stub.note)):
            raise TranscriptError(f"part {stub.at} of result {result.tool_use_id!r} has no note")
        content[stub.at] = Text(well_formed(stub.note))
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
        if len(block.content) == 1:
            return tokens_of(block.content[0])
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
    return f"{tool_in_key(tool)}:{digits}"
