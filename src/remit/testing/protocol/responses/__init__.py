"""OpenAI Responses, as a judge of requests.

    judge.py      reading a body;  wordings.py  its rules, in the provider's words

Calls and outputs are paired by `call_id`, both ways, over the input and what `previous_response_id` holds on the
server. Reasoning is compared with what was issued and must be followed by the item that followed it; items
already known to the server may not be sent again.

Source: the provider's reference, recorded exchanges, and errors as public reports quote them. `dialect="deepseek"`
is its compatible endpoint, which wants the outputs of a group of calls right behind it.
"""

from remit.testing.protocol.responses.judge import ResponsesJudge

__all__ = ["ResponsesJudge"]
