"""Tools for a model that only writes text, such as a small one on a machine of your own.

    python examples/recipes/plain_text_model.py

`ReActModel` tells the model of the tools in words and reads its actions from what it writes. With a real one it stands
around whatever speaks to it; `stop_field` names the setting by which that server ends a reply before an observation.
"""

from __future__ import annotations

import asyncio

import remit
from remit import Limits, ReActModel, Remit
from remit.testing import ScriptedModel

ACTS = """\
Thought: I have to look both up.
Action: price
Action Input: {"article": "lamp"}
End Action
Action: price
Action Input: {"article": "desk"}
End Action
"""
ANSWERS = """\
Thought: 39 and 240.
Final Answer: The lamp and the desk are 279 together.
"""
WRITES = ScriptedModel([ACTS, ANSWERS], record=True)


@remit.tool(effect="read")
def price(article: str) -> int:
    """What an article costs."""
    return {"lamp": 39, "desk": 240}[article]


async def main() -> None:
    """Ask, and show what the model was told of its actions."""
    shop = Remit(
        name="shop",
        model=ReActModel(WRITES, stop_field="stop"),
        limits=Limits(steps=4, tokens=20_000, seconds=10),
        tools=[price],
    )
    outcome = await shop.run("What do a lamp and a desk cost?")
    print(WRITES.requests[-1].messages[-1].text)
    print(outcome.text)


if __name__ == "__main__":
    asyncio.run(main())
