"""A model's plain text, read as thoughts, actions and an answer while it comes.

    Thought: ...              any number of lines
    Action: the name of a tool
    Action Input: {...}       one JSON object
    End Action                or the next label, or the end of the reply once the object has ended
    Final Answer: ...         everything from here on

Pure. A label counts at the beginning of a line only, and not inside of a JSON object; `Action:` counts where an input
or the end of the action follows. An action is complete with what closes it, and is handed on at once; one that the end
of the text cuts is handed on as far as it came, as the last block. What the model writes as an observation of its own,
and everything after it, is dropped. Text without labels is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Final

from remit.messages import Opaque, Text, ToolUse
from remit.models.base import BlockDone, Chunk, TextDelta

__all__ = ["NO_INPUT", "THOUGHT_ISSUER", "ReActParser"]

THOUGHT_ISSUER: Final = "remit.react"
"""Tags thoughts: they are no part of an answer, and go back to a model that is asked in this form."""

NO_INPUT: Final = "(no input)"
"""Stands for an input that may have been cut: nothing would pass for no arguments."""

_LABEL = re.compile(
    r"[ \t*#]*(?P<label>Thought|Action Input|Action|Final Answer)[ \t]*\*{0,2}:\*{0,2}[ \t]*(?P<rest>.*)\Z",
    re.DOTALL,
)
_END = re.compile(r"[ \t*#]*End Action[ \t*.]*\Z")
_OBSERVATION = re.compile(r"[ \t*#]*Observation\b[^:\n]{0,200}:")
_FENCED = re.compile(r"```\w*\s*(.*?)\s*```\Z", re.DOTALL)
_LONGEST_LABEL: Final = 300
"""Characters: a longer line is none, whatever it begins with."""
_WORDS: Final = ("Thought", "Action", "Final Answer", "End Action", "Observation")


_SPEAKING = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
"""What says where strings and objects begin and end; a backslash with what it escapes."""


class _In(Enum):
    TEXT = "text"
    THOUGHT = "thought"
    ANSWER = "answer"
    INPUT = "input"
    NOTHING = "nothing"
    """After an observation that the model made up."""


class ReActParser:
    """Reads one reply."""

    def __init__(self, tools: Collection[str], new_id: Callable[[], str]) -> None:
        """`tools` are the names that are offered; `new_id` makes an id for each action."""
        self._tools = tools
        self._new_id = new_id
        self._in = _In.TEXT
        self._line = ""
        """What has come of a line and may still be a label."""
        self._is_mid_line = False
        """Whether the beginning of the line has been handed on."""
        self._text: list[str] = []
        """The text block that is being written, without white space at its end."""
        self._space = ""
        """White space that goes out if something follows it."""
        self._thought: list[str] = []
        self._action: tuple[str, str] | None = None
        """A name whose input has not come yet, and the lines that would be text without one."""
        self._name = ""
        self._input = _Input()
        self._blocks = 0
        self._actions = 0

    @property
    def is_cut(self) -> bool:
        """Whether the model went on to observations of its own: what follows is not read."""
        return self._in is _In.NOTHING

    @property
    def is_inside_input(self) -> bool:
        """Whether the input of an action is being written."""
        return self._in is _In.INPUT

    def feed(self, text: str) -> Iterator[Chunk]:
        """Take a piece of the reply, cut anywhere."""
        *lines, last = text.split("\n")
        for line in lines:
            yield from self._take(self._line + line, "\n")
            self._line, self._is_mid_line = "", False
        if self._is_mid_line or self._input.is_open:
            yield from self._go_on(last)
            self._is_mid_line = True
        elif last:
            self._line += last
            yield from self._begin_line()

    def end(self, *, whole: bool, stopped: bool = False) -> Iterator[Chunk]:
        """The reply is over; `whole` where the model ended it by itself, `stopped` where it was at a label.

        Without a label behind it an action counts if its object has ended; one without input has none.
        """
        line, self._line = self._line, ""
        yield from self._take(line, "")
        if self._action is not None:
            name, lines = self._action
            if whole and name in self._tools:
                yield from self._begin(name)
            else:
                self._action = None
                yield from self._say(lines)
        if self._in is _In.INPUT:
            if whole and not stopped and not self._input.text.strip():
                self._input.add(NO_INPUT)
            yield from self._complete(whole=whole)
        thought = "".join(self._thought).strip()
        if thought and not (self._blocks or self._text):  # it is what the model had to say
            self._thought = []
            yield self._done(Text(thought))
        yield from self._close()

    # -- lines

    def _begin_line(self) -> Iterator[Chunk]:
        """Look at what is there of a line; hand it on once it can be no label any more."""
        line = self._line
        found = _LABEL.match(line)
        if self._in in (_In.ANSWER, _In.NOTHING) or not (found or _may_be_label(line)):
            held = self._action is not None
        else:
            held = found is None or found["label"] == "Action" or not found["rest"].strip("* \t")
        if held:
            return
        self._line, self._is_mid_line = "", True
        yield from self._take(line, "", is_new=True)

    def _go_on(self, part: str) -> Iterator[Chunk]:
        """More of a line whose beginning was handed on."""
        if self._in is _In.INPUT:
            self._input.add(part)
        elif self._in is not _In.NOTHING:
            yield from self._say(part)

    def _take(self, line: str, newline: str, *, is_new: bool = False) -> Iterator[Chunk]:
        """A line, or the rest of one."""
        if self._in is _In.NOTHING:
            return
        if self._in is _In.ANSWER or self._input.is_open or (self._is_mid_line and not is_new):
            yield from self._go_on(line + newline)
        else:
            yield from self._labelled(line, newline)

    def _labelled(self, line: str, newline: str) -> Iterator[Chunk]:
        found = _LABEL.match(line)
        label, rest = (found["label"], found["rest"]) if found else (None, line)
        is_acting = self._action is not None or self._in is _In.INPUT
        if _OBSERVATION.match(line) and (is_acting or self._actions):
            yield from self._finish()
            yield from self._close()
            self._in = _In.NOTHING
        elif _END.match(line) and is_acting:
            yield from self._finish()
        elif label == "Action Input" and self._action is not None:
            yield from self._begin(self._action[0])
            self._input.add(rest + newline)
        elif label is None or label == "Action Input":
            yield from self._unlabelled(line + newline)
        else:
            yield from self._leave()
            yield from self._enter(label, rest, line + newline, newline)

    def _enter(self, label: str, rest: str, line: str, newline: str) -> Iterator[Chunk]:
        if label == "Action":
            self._action = (rest.strip().strip("`*").strip(), line)
        elif label == "Thought":
            yield from self._close_text()
            self._in = _In.THOUGHT
            self._thought.append(rest + newline)
        else:
            yield from self._close()
            self._in = _In.ANSWER
            yield from self._say(rest + newline)

    def _unlabelled(self, line: str) -> Iterator[Chunk]:
        if self._in is _In.INPUT:
            self._input.add(line)
        elif self._action is None:
            yield from self._say(line)
        elif line.strip():  # no input followed: it was no action
            lines, self._action = self._action[1], None
            yield from self._say(lines + line)
        else:
            self._action = (self._action[0], self._action[1] + line)

    def _leave(self) -> Iterator[Chunk]:
        """Another label begins: an input is over, and an action without one was none."""
        if self._in is _In.INPUT:
            yield from self._complete(whole=True)
        elif self._action is not None:
            lines, self._action = self._action[1], None
            yield from self._say(lines)

    # -- actions

    def _begin(self, name: str) -> Iterator[Chunk]:
        self._action = None
        yield from self._close()
        self._in, self._name, self._input = _In.INPUT, name, _Input()

    def _finish(self) -> Iterator[Chunk]:
        """An action is over, be it one without input."""
        if self._action is not None:
            yield from self._begin(self._action[0])
        if self._in is _In.INPUT:
            yield from self._complete(whole=True)

    def _complete(self, *, whole: bool) -> Iterator[Chunk]:
        arguments = self._input.arguments if whole else self._input.text.strip()
        self._in, self._input = _In.TEXT, _Input()
        self._actions += 1
        yield self._done(ToolUse(self._new_id(), self._name, arguments))

    # -- text

    def _say(self, text: str) -> Iterator[Chunk]:
        if self._in is _In.THOUGHT:
            self._thought.append(text)
            return
        if not self._text:
            text = text.lstrip()
        kept = text.rstrip()
        if not kept:
            self._space += text
            return
        said = self._space + kept
        self._space = text[len(kept) :]
        self._text.append(said)
        yield TextDelta(said)

    def _close(self) -> Iterator[Chunk]:
        """Text and thought are over."""
        yield from self._close_text()
        thought, self._thought = "".join(self._thought).strip(), []
        if self._in is _In.THOUGHT:
            self._in = _In.TEXT
        if thought:
            yield self._done(Opaque(THOUGHT_ISSUER, thought.encode("utf-8", "replace")))

    def _close_text(self) -> Iterator[Chunk]:
        text, self._text, self._space = "".join(self._text), [], ""
        if text:
            yield self._done(Text(text))

    def _done(self, block: Text | ToolUse | Opaque) -> BlockDone:
        self._blocks += 1
        return BlockDone(block)


def _may_be_label(line: str) -> bool:
    begun = line.lstrip(" \t*#")
    return len(line) <= _LONGEST_LABEL and any(
        word.startswith(begun) or begun.startswith(word) for word in _WORDS
    )


class _Input:
    """The input of an action, and where its JSON object ends."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def is_open(self) -> bool:
        """Whether an object has begun and has not ended: nothing in it is a label."""
        return self._depth > 0

    @property
    def arguments(self) -> str:
        """The input without what people write around JSON. Whether it is any is for dispatch to say."""
        text = self.text.strip()
        fenced = _FENCED.match(text)
        return fenced[1] if fenced else text

    def add(self, text: str) -> None:
        self._parts.append(text)
        if self._escaped and text:
            text, self._escaped = text[1:], False
        for token in _SPEAKING.findall(text):
            self._see(token)

    def _see(self, character: str) -> None:
        if self._in_string:
            self._escaped = (
                character == "\\"
            )  # the one that ends a piece: what it escapes is still to come
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = self._depth > 0
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth = max(self._depth - 1, 0)
