"""The 16 retail tools: a `Shop` behind a ledger of effects, with planned trouble on the way.

    Effects   a service that honours idempotency keys, as a payment provider does
    Trouble   what goes wrong, once, with the next call of one action
    Desk      the tools of one conversation, and the evidence of what happened to them

Names, descriptions and schemas are the published ones, read from the data. Whoever moves money asks
first (`confirm`); writing the same address twice does no harm (`idempotent`); the rest reads.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from remit import Call, Tool
from retail_domain import Json, Shop

__all__ = ["EFFECTS", "TIMEOUT", "Desk", "Effects", "Fault", "Trouble", "Unavailable", "action_id"]

TIMEOUT = 10.0
"""Seconds that each tool is given."""

EffectName: TypeAlias = Literal["read", "idempotent", "confirm"]

EFFECTS: Mapping[str, EffectName] = {
    "cancel_pending_order": "confirm",
    "exchange_delivered_order_items": "confirm",
    "modify_pending_order_address": "idempotent",
    "modify_pending_order_items": "confirm",
    "modify_pending_order_payment": "confirm",
    "modify_user_address": "idempotent",
    "return_delivered_order_items": "confirm",
}
"""What the tools that write do; every other tool reads."""


def action_id(name: str, arguments: Mapping[str, object]) -> str:
    """One text for one action, whatever the order of its arguments."""
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


class Unavailable(ConnectionError):
    """The planned failure of a tool: nothing was done, and the next attempt works."""


class Fault(StrEnum):
    """What a run is made to suffer."""

    FAILURE = "tool failure"
    TIMEOUT = "timeout"
    UNKNOWN = "outcome unknown, then repeated"
    ORDER = "out-of-order completion"
    CANCELLATION = "cancelled, then continued"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens, once, to the next call of an action."""

    fault: Fault | None
    """What it counts as; None for no trouble at all."""
    before: float = 0.0
    """Seconds that pass before anything is done."""
    after: float = 0.0
    """Seconds that pass between the deed and the answer."""


CALM = Trouble(None)


@dataclass(slots=True)
class Effects:
    """The ledger of a service that honours idempotency keys: one key, one effect.

    A refusal is no effect and leaves no entry.
    """

    outcomes: dict[str, object] = field(default_factory=dict[str, object])
    """What each key did."""
    applied: Counter[str] = field(default_factory=Counter[str])
    """How often each action took effect or tried to again under another key, by `action_id`."""
    repeats: Counter[str] = field(default_factory=Counter[str])
    """How often a key that had taken effect came back, by key."""

    def apply(self, key: str, action: str, change: Callable[[], object]) -> object:
        """Make the change, or give back what was done under this key."""
        if key in self.outcomes:
            self.repeats[key] += 1
            return self.outcomes[key]
        if again := action in self.applied:
            self.applied[action] += 1  # counts even where a rule of the shop now stands against it
        self.outcomes[key] = change()
        if not again:
            self.applied[action] = 1
        return self.outcomes[key]

    def outcome(self, key: str) -> object | None:
        """What was done under this key; None for a key that never took effect."""
        if key in self.outcomes:
            self.repeats[key] += 1
        return self.outcomes.get(key)


class Desk:
    """The tools of one conversation with the shop."""

    def __init__(self, shop: Shop, troubles: Mapping[str, Trouble]) -> None:
        self.shop = shop
        self.effects = Effects()
        self.met: Counter[Fault] = Counter()
        """The faults that happened, seen from where they happen."""
        self.confirmed = 0
        """Bodies entered that need an approval each."""
        self.doubled = 0
        """Those of them that came with a key that had taken effect already: never."""
        self.interruptible = asyncio.Event()
        """Set once a body has come to where the conversation is to be cancelled."""
        self._troubles = dict(troubles)
        self._entered = 0
        self._last_finished = 0

    def tools(self, published: Iterable[Json]) -> list[Tool[..., Any]]:
        """The tools as the model sees them, from their published schemas."""
        return [self._tool(schema) for schema in published]

    def _tool(self, schema: Json) -> Tool[..., Any]:
        name: str = schema["name"]
        effect: EffectName = EFFECTS.get(name, "read")

        async def handler(arguments: Json, call: Call[None]) -> object:
            return await self._serve(name, arguments, call.key)

        tool = Tool[..., Any].from_schema(
            name=name,
            description=schema["description"],
            parameters=schema["input_schema"],
            handler=handler,
            effect=effect,
            resource=_resource(schema) if effect != "read" else (),
            timeout=TIMEOUT,
        )
        if effect == "confirm":
            tool.reconcile(self._reconcile)
        return tool

    async def _reconcile(self, key: str) -> object | None:
        return self.effects.outcome(key)

    async def _serve(self, name: str, arguments: Json, key: str) -> object:
        self._entered += 1
        entered = self._entered
        action = action_id(name, arguments)
        if EFFECTS.get(name) == "confirm":
            self.confirmed += 1
            self.doubled += key in self.effects.outcomes
        trouble = self._troubles.pop(action, CALM)
        if trouble.fault is Fault.FAILURE:
            self.met[Fault.FAILURE] += 1
            raise Unavailable(f"{name} is not available just now")
        await self._wait(trouble, trouble.before)
        try:
            return self._do(name, arguments, key, action)
        finally:  # a refusal is an answer too, and may be as late
            await self._wait(trouble, trouble.after)
            self.met[Fault.ORDER] += self._last_finished > entered
            self._last_finished = max(self._last_finished, entered)

    async def _wait(self, trouble: Trouble, seconds: float) -> None:
        """Let time pass. To be cut short is the evidence of a timeout."""
        if not seconds:
            return
        if trouble.fault is Fault.CANCELLATION:
            self.interruptible.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            # else it was the conversation that was cancelled
            if trouble.fault and not self.interruptible.is_set():
                self.met[trouble.fault] += 1
            raise

    def _do(self, name: str, arguments: Json, key: str, action: str) -> object:
        act = self.shop.actions[name]
        if name not in EFFECTS:
            return act(**arguments)
        return self.effects.apply(key, action, lambda: act(**arguments))


def _resource(schema: Json) -> str:
    """What a tool that writes touches: one order, else one user."""
    subject = "order" if "order_id" in schema["input_schema"]["properties"] else "user"
    return f"{subject}:{{{subject}_id}}"
