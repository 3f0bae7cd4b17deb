"""One message as items of the input: what a `Piece` is made of.

Both sides are written elsewhere, `said.py` and `turns.py`; here is which, and how.
"""

from __future__ import annotations

from remit.messages import Message
from remit.models.wires.pieces import Piece
from remit.models.wires.responses.items import read
from remit.models.wires.responses.said import said
from remit.models.wires.responses.turns import Turn, Way, is_strippable
from remit.models.wires.toolbox import Toolbox

__all__ = ["can_strip", "pieced"]


def pieced(
    way: Way,
    toolbox: Toolbox,
    index: int,
    message: Message,
    before: Message | None,
    *,
    held: bool = False,
) -> Piece:
    """The items of a message. `before` is the message before it, whose calls it answers.

    `held`: the server has those calls, under its own ids.
    """
    if message.role == "assistant":
        items = Turn(way, toolbox, index, message).items()
    else:
        items = said(way.issuer, message, before, held=held, with_caller=index > way.bare)
    return Piece(b",".join(items))


def can_strip(way: Way, message: Message) -> bool:
    """Whether less of the message would go out once it is bare."""
    if message.role != "assistant":
        return False
    read_blocks = [read(block, way.issuer) for block in message.content]
    return any(fields is not None and is_strippable(fields) for fields in read_blocks)
