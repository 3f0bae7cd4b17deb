"""Anthropic Messages, as a judge of requests.

    judge.py      the whole;  wordings.py  its rules, in the provider's words
    form.py       fields, roles, blocks in their places
    offers.py     tools, settings, cache markers
    turns.py      messages as turns;  pairs.py  calls and results
    issued.py     what the provider wants back as it was

Pairing is judged after consecutive messages of one side were merged, as the provider does; messages of role
`system` inside the conversation are transparent to it. An id is unique in its turn; recordings show conversations
that the assistant begins, and ids used again in a later turn, accepted.

Source: the provider's reference, its errors as public reports quote them, and recorded exchanges.
"""

from remit.testing.protocol.anthropic.judge import AnthropicJudge

__all__ = ["AnthropicJudge"]
