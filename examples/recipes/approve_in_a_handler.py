"""Approvals in a web application: one handler starts a run, another one takes the decision, minutes or days later.

    python examples/recipes/approve_in_a_handler.py

The handlers stand here without a web framework. Nothing is held in memory between them: the run waits in its store,
and the one who decides needs the token from the first answer, once. With a store on disk both survive a restart.
"""

from __future__ import annotations

import asyncio
from typing import Any

import remit
from remit import Call, DecisionError, Limits, Outcome, Reason, Remit
from remit.testing import ScriptedModel


@remit.tool(effect="confirm", expires=3_600)
async def refund(order_id: str, amount: int, call: Call) -> str:
    """Refund a part of an order."""
    return f"refunded {amount} on {order_id} under {call.key[:5]}"


DESK = Remit(
    name="desk",
    model=ScriptedModel([[("refund", {"order_id": "1042", "amount": 5})], "It is refunded."]),
    limits=Limits(steps=3, tokens=5_000, seconds=10),
    tools=[refund],
)


def answer(outcome: Outcome[str]) -> dict[str, Any]:
    """What a handler sends: the text, or what there is to decide."""
    if outcome.reason is not Reason.WAITING:
        return {"status": 200, "text": outcome.text}
    waits = [{"token": each.token, "summary": each.summary} for each in outcome.pending]
    return {"status": 202, "run": outcome.run_id, "waits": waits}


async def post_question(body: dict[str, str]) -> dict[str, Any]:
    """POST /runs. The id comes from the client: sent twice, the request starts one run."""
    return answer(await DESK.run(body["prompt"], run_id=body["id"]))


async def post_decision(body: dict[str, Any]) -> dict[str, Any]:
    """POST /decisions. A token counts once; deciding and going on are idempotent beyond that."""
    try:
        run_id = await DESK.decide(body["token"], approve=body["approve"], by=body["user"])
    except DecisionError as error:
        return {"status": 409, "why": error.why}
    return answer(await DESK.resume(run_id))


async def main() -> None:
    """A customer asks, a colleague approves, and a second click changes nothing."""
    asked = await post_question({"id": "req-77", "prompt": "My parcel is late."})
    print(asked["status"], asked["waits"][0]["summary"])
    decision = {"token": asked["waits"][0]["token"], "approve": True, "user": "dana"}
    print(await post_decision(decision))
    print(await post_decision(decision))


if __name__ == "__main__":
    asyncio.run(main())
