"""Chat Completions, as a judge of requests: OpenAI's own, and where compatible servers differ.

    judge.py      reading a body;  wordings.py  its rules, in the servers' words;  servers.py  what differs

Every assistant message with calls is followed by one tool message for each, before any other role. What differs
between servers is a value, `Server`: which ids they take, what they want back, whether they look at fields they
do not know.

Source: the provider's reference, recorded exchanges, and errors as public reports quote them.
"""

from remit.testing.protocol.chat.judge import ChatJudge

__all__ = ["ChatJudge"]
