"""Keep card numbers and addresses away from the model, the journal and whoever watches.

    python examples/recipes/redact_results.py

`redact=` is applied to everything that tools return or raise, before it is recorded or sent. A parameter that is marked
`Secret` is the other direction: the model fills it, and no person is shown it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

import remit
from remit import Limits, Remit, Secret
from remit.testing import ScriptedModel

CARD = re.compile(r"\b(?:\d[ -]?){12,18}\d\b")
MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}")


def redact(text: str) -> str:
    """What may be seen. If it raises, the result is withheld."""
    return MAIL.sub("[mail]", CARD.sub("[card]", text))


@remit.tool(effect="read")
async def customer(number: int) -> dict[str, str]:
    """What we know of a customer."""
    if number != 7:
        raise LookupError(f"no customer {number}; ask ada@example.com")
    return {"name": "Ada", "mail": "ada@example.com", "card": "4111 1111 1111 1111"}


@remit.tool(effect="confirm")
async def charge(number: int, code: Annotated[str, Secret]) -> str:
    """Charge a customer's card, whose security code the customer has given."""
    return f"charged customer {number} by a code of {len(code)} characters"


MODEL = ScriptedModel(
    [
        [("customer", {"number": 7}), ("customer", {"number": 8})],
        [("charge", {"number": 7, "code": "737-4711"})],
    ]
)
LIMITS = Limits(steps=3, tokens=5_000, seconds=10)

if __name__ == "__main__":
    desk = Remit(name="desk", model=MODEL, limits=LIMITS, tools=[customer, charge], redact=redact)
    outcome = asyncio.run(desk.run("Charge customer 7, code 737-4711."))
    for message in outcome.transcript:
        for result in message.tool_results:
            print(result.text)
    print(outcome.pending[0].summary)
