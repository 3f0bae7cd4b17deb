"""Outcomes and transcripts as people see them in a notebook and a shell: readable, bounded, and never active."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop_rig import desk
from remit import (
    Limits,
    Media,
    Message,
    Opaque,
    Outcome,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
    tool,
)
from remit.canonical import well_formed
from remit.notebook import MAX_CHARS, MAX_MESSAGES, transcript_html, transcript_text
from remit.testing import run_virtual

ALLOWED_TAGS = {"div", "pre", "b", "span", "p", "details", "summary"}
ALLOWED_ATTRIBUTES = {"style", "class"}
EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</pre></div><iframe src='javascript:alert(1)'></iframe>",
    '" onmouseover="alert(1)" x="',
    "<!-- --><svg/onload=alert(1)>",
    "[click](javascript:alert(1)) ![](http://e.vil/x.png) **bold** `code`",
    "$$\\href{javascript:alert(1)}{x}$$ \\(x\\)",
    "&lt;script&gt; &#60;script&#62;",
    "<![CDATA[<script>]]><?php ?>",
    "\u202egnp.exe \u2066\u200b\x1b[31m\x00\ud800",
    "<pre><style>*{display:none}</style>",
]


class Reader(HTMLParser):
    """Reads a page back, and refuses everything that is not plain display."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.open: list[str] = []
        self.styles: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED_TAGS, tag
        assert {name for name, _ in attrs} <= ALLOWED_ATTRIBUTES, attrs
        self.styles |= {value or "" for name, value in attrs if name == "style"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)


def read(html: str) -> str:
    """The text of a page that is well-formed and harmless."""
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert not any("url" in style or "import" in style for style in reader.styles)
    html.encode()  # it goes out as UTF-8
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    return reader.text


def conversation(evil: str) -> list[Message]:
    use = ToolUse("call_1", evil.encode("ascii", "replace").decode()[:30] or "x", evil)
    owed = ToolUse("call_2", "pay", '{"amount": 3}')
    result = ToolResult(
        "call_1",
        (Text(evil), Media("image/png", b"<script>" * 300, evil)),
        artifacts=("artifact:" + "ab" * 32,),
    )
    return [
        Message("user", (Text(f"go {evil}"), Media("text/html", b"<script>alert(1)</script>"))),
        Message("assistant", (Text(evil), Opaque(evil[:20] or "x", b"<b>"), use)),
        Message("user", (result, Text(evil))),
        Message("assistant", (owed,)),
    ]


@pytest.mark.parametrize("evil", EVIL)
def test_nothing_that_a_model_or_a_tool_says_becomes_markup(evil: str) -> None:
    """V3: names, arguments, results, errors, issuers, file names and questions alike."""
    messages = conversation(evil)
    text = read(transcript_html(messages))
    assert text.count(evil.split("\u202e", maxsplit=1)[0][:20]) >= 3
    assert "pay" in text
    assert "no result yet" in text
    assert not re.search("[\x1b\u202e\ud800]", transcript_text(messages))

    async def main() -> Outcome[Any]:
        @tool(effect="confirm")
        async def pay(what: str) -> str:
            """Pays."""
            return what

        @pay.summary
        def _(what: str) -> str:
            return what

        said = well_formed(evil).replace("\0", "")
        script = [[said, ("pay", {"what": said})], said]
        return await desk(script, [pay]).run("go")

    outcome = run_virtual(main())
    assert "waits for approval of pay" in read(outcome._repr_html_())
    assert outcome.pending[0].token is not None
    for shown in (outcome._repr_html_(), str(outcome), repr(outcome)):
        assert outcome.pending[0].token not in shown


@given(st.text(max_size=60))
def test_no_text_whatever_becomes_markup(text: str) -> None:
    """V3: what goes in as text comes out as text."""
    messages = [Message("user", (Text(f"go {text}"),))]
    assert "go" in read(transcript_html(messages))
    assert transcript_text(messages).isprintable()


def test_an_outcome_says_how_it_ended_what_it_cost_and_what_was_said() -> None:
    """V3: in HTML, in a few lines, and in one."""

    @tool(effect="read", eager=False)
    async def look(n: int) -> str:
        """Looks."""
        await asyncio.sleep(1)
        if n == 2:
            raise LookupError("nothing there")
        return f"saw {n} " * (10_000 if n == 1 else 1)

    async def main() -> Outcome[Any]:
        calls = [("look", {"n": n}) for n in range(3)]
        return await desk([["Let me see.", *calls], "All **done**."], [look]).run(
            "go", run_id="r-1"
        )

    outcome = run_virtual(main())
    page = read(outcome._repr_html_())
    for words in ("completed", "2 steps", "3 calls", "1.0 s", "run r-1", "All **done**.", "USD"):
        assert words in page
        assert words in str(outcome)
    assert page.index("look") < page.index('{"n":0}') < page.index("saw 0")
    assert page.index('{"n":1}') < page.index("cut, kept as artifact:") < page.index('{"n":2}')
    assert "error" in page
    assert "nothing there" in page
    assert "4 messages" in page
    assert repr(outcome) == "<Outcome r-1 completed: All **done**.>"
    assert str(outcome.transcript).splitlines()[:4] == [
        "user: go",
        "assistant: Let me see.",
        'assistant: look({"n":0})',
        "assistant:   ok: saw 0",
    ]


def test_a_run_that_failed_says_why_and_whose_limit_it_was() -> None:
    """V3: the error, and the account."""

    async def main() -> list[Outcome[Any]]:
        limits = Limits(steps=1, tokens=10**6, seconds=60)
        ended = await desk([[("x", {})], "so far"], limits=limits).run("go")
        return [ended, await desk([ValueError("<broken>")]).run("go")]

    limited, failed = run_virtual(main())
    assert "step_budget of desk" in str(limited)
    assert "step_budgetof desk" in read(limited._repr_html_()).replace(" of", "of", 1)
    assert "<broken>" in read(failed._repr_html_())
    assert "<broken>" in str(failed)
    assert repr(failed).endswith("model_failed>")


def test_a_huge_transcript_makes_a_small_page() -> None:
    """V3: so many messages, so many blocks, so many characters; what is left out is counted."""
    big = "<&>" * 100_000
    turns: list[Message] = [Message("user", (Text(big),))]
    for n in range(400):
        uses = tuple(ToolUse(f"c{n}_{i}", "look", big) for i in range(60))
        results = tuple(ToolResult(use.id, (Text(big),) * 40) for use in uses)
        turns += [Message("assistant", uses), Message("user", results)]
    page = transcript_html(turns)
    assert len(page) < 1_500_000
    text = read(page)
    assert text.count("<&>") * 3 <= MAX_CHARS
    assert f"{len(turns)} messages" in text
    assert f"... {len(turns) - MAX_MESSAGES} messages ..." in text
    assert "and 40 more blocks" in text
    assert "characters more" in text
    assert len(transcript_text(turns)) < 1_000_000


def test_an_empty_transcript_and_a_result_without_its_call_are_shown() -> None:
    """V3: whatever is handed in."""
    assert "0 messages" in read(Transcript()._repr_html_())
    assert str(Transcript()) == ""
    lone = [Message("user", (ToolResult("gone", (Text("left over"),)),))]
    assert "left over" in read(transcript_html(lone))


def test_nothing_of_it_is_loaded_before_it_is_shown() -> None:
    script = (
        "import sys, remit; remit.Outcome, remit.Transcript; "
        "print(*[n for n in ('html', 'remit.notebook') if n in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []
