"""A support desk in one file: parallel calls, a failure, an approval, and an account at the end.

    python examples/support_desk.py

No key and no network: the model is scripted, it plays a fixed part. The loop, the tools, the
database and the limits are real. On a terminal you are asked whether the refund may be paid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import textwrap
import threading
from decimal import Decimal
from typing import Any

import remit
from remit import Call, Decision, Event, Limits, Outcome, Pending, Remit, Status, Transcript
from remit.testing import ScriptedModel

QUESTION = "Where is order 1042? If it is late, please refund the shipping."

SHOP = """
create table orders (id text primary key, status text, promised text, expected text);
create table payments (order_id text, what text, amount text);
create table refunds (key text primary key, order_id text, amount text);
insert into orders values ('1042', 'in transit', 'Monday', 'Thursday');
insert into payments values ('1042', 'goods', '59.00'), ('1042', 'shipping', '4.90');
"""


class Shop:
    """A small database made here, and a carrier that does not answer the first time."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.row_factory = sqlite3.Row
        self.database.executescript(SHOP)
        self.carrier_answers = False

    def close(self) -> None:
        self.database.close()

    def rows(self, query: str, *values: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.database.execute(query, values)]


# The tools. `effect` says what running one twice would do; `Call` is filled in by the loop.


@remit.tool(effect="read", resource="order:{order_id}")
async def get_order_status(order_id: str, call: Call[Shop]) -> dict[str, Any]:
    """Where an order is. Not for payments: use get_payment_history."""
    await asyncio.sleep(0.6)  # the carrier is slow
    if not call.deps.carrier_answers:
        call.deps.carrier_answers = True
        raise ConnectionError("the carrier did not answer")
    return call.deps.rows("select * from orders where id = ?", order_id)[0]


@remit.tool(effect="read", resource="order:{order_id}")
async def get_payment_history(order_id: str, call: Call[Shop]) -> list[dict[str, Any]]:
    """What was paid for an order, item by item."""
    await asyncio.sleep(0.2)
    return call.deps.rows("select what, amount from payments where order_id = ?", order_id)


@remit.tool(effect="confirm", resource="order:{order_id}")
async def refund(order_id: str, amount: Decimal, call: Call[Shop]) -> dict[str, str]:
    """Refund part of an order. A person approves it first."""
    database = call.deps.database
    with database:  # one key, one row: the same call can never pay twice
        database.execute("insert into refunds values (?, ?, ?)", (call.key, order_id, str(amount)))
    return {"refunded": str(amount)}


@refund.summary
def _(order_id: str, amount: Decimal) -> str:
    return f"Refund {amount} EUR on order {order_id}"


# The model. A real one is named instead, and decides for itself.


def farewell(transcript: Transcript) -> str:
    """The last answer, by what became of the refund."""
    paid = transcript[-1].tool_results[0].status is Status.OK
    return "Order 1042 is in transit. It was promised for Monday and comes on Thursday. " + (
        "I have refunded the shipping, 4.90 EUR."
        if paid
        else "A refund of the shipping was not approved."
    )


MODEL = ScriptedModel(
    [
        [
            "I look at the order and at what was paid for it.",
            ("get_order_status", {"order_id": "1042"}),
            ("get_payment_history", {"order_id": "1042"}),
        ],
        ["The carrier did not answer. I ask again.", ("get_order_status", {"order_id": "1042"})],
        [
            "It is late. I propose to refund the shipping.",
            ("refund", {"order_id": "1042", "amount": "4.90"}),
        ],
        farewell,
    ],
    latency=0.15,
)


# What you see.

PLAIN = not sys.stdout.isatty() or "NO_COLOR" in os.environ


def label(who: str) -> str:
    """The left column."""
    return f"{who:>10}  " if PLAIN else f"\x1b[1m{who:>10}\x1b[0m  "


def say(who: str, text: str) -> None:
    """One entry: who, and what, wrapped."""
    first, *others = textwrap.wrap(text, 72)
    print(label(who) + first)
    for line in others:
        print(" " * 12 + line)


class Log:
    """Prints the events that are for people."""

    def __init__(self) -> None:
        self.began = asyncio.get_running_loop().time()
        self.text = ""

    def tell(self, event: Event) -> None:
        """Text comes in pieces, and is printed whole before whatever follows it."""
        if event.kind == "text":
            self.text += event.fields["text"]
            return
        if self.text:
            say("model", self.text)
            self.text = ""
        seconds = f"{event.at - self.began:.2f} s"
        match event.kind:
            case "call_started":
                say(seconds, f"{event.fields['tool']} begins")
            case "call_settled":
                say(seconds, f"{event.fields['tool']} ends: {event.fields['status']}")
            case _:
                pass


async def approve(pending: Pending) -> Decision:
    """Ask whoever sits there; where nobody does, approve and say so."""
    if not sys.stdin.isatty():
        say("approval", f"{pending.summary}? No terminal to ask on: this script approves it.")
        return Decision(approve=True, by="script")
    answer = await ask(f"{label('approval')}{pending.summary}? [y/N] ")
    return Decision(approve=answer.strip().lower() in {"y", "yes"}, by="you")


async def ask(question: str) -> str:
    """Read a line without holding up the loop; a thread that dies with the program waits for it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        try:
            line = input(question)
        except EOFError:
            print()
            line = ""
        loop.call_soon_threadsafe(answer.set_result, line)

    threading.Thread(target=read, daemon=True).start()
    return await answer


def account(outcome: Outcome[str]) -> None:
    """The table at the end."""
    spent = outcome.spend.tree
    rows = {
        "reason": outcome.reason.value,
        "steps": f"{spent.steps}",
        "calls": f"{spent.calls}",
        "tokens": f"{spent.tokens:,}",
        "money": f"{spent.usd:.4f} USD, at 3 and 15 USD for a million tokens in and out",
        "time": f"{spent.seconds:.2f} s",
    }
    print()
    for name, value in rows.items():
        say(name, value)


def told(transcript: Transcript) -> None:
    """What the model was told of its first two calls: in call order, whoever was first."""
    uses, results = transcript[1].tool_uses, transcript[2].tool_results
    print("\nWhat the model was told of its first turn, in call order:\n")
    for use, result in zip(uses, results, strict=True):
        say(result.status.value, f"{use.name}: {result.text}")


async def main() -> None:
    """One customer, one run."""
    desk: Remit[Shop] = Remit(
        name="support",
        model=MODEL,
        instructions="You help the customers of a small shop.",
        tools=[get_order_status, get_payment_history, refund],
        limits=Limits(steps=8, tokens=20_000, seconds=60, usd=0.25),
        confirm=approve,
    )
    print("A support desk. The model is scripted: it plays a fixed part, nothing is asked of a")
    print("provider. The loop, the tools, the database and the limits are real.\n")
    say("customer", QUESTION)
    log = Log()
    with contextlib.closing(Shop()) as shop:
        async with desk.stream(QUESTION, deps=shop) as live:
            async for event in live:
                log.tell(event)
    told(live.outcome.transcript)
    account(live.outcome)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: the run was cancelled and closed; nothing was refunded unasked.")
