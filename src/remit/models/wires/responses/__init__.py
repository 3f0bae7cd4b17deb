"""The wire of OpenAI Responses (`POST /v1/responses`), and of servers that speak it.

    codec.py       the endpoint: its headers, its encoder, what stands where
    encoding.py    a request, and what is left out of the next one where it was refused
    settings.py    its other fields: tools and their choice, effort, the form of an answer
    inputs.py      one message as items of the input: said.py the user's, turns.py the assistant's
    state.py       what the server has already, where it keeps the conversation
    decoding.py    a reply, from a stream or whole
    items.py       items of a reply as blocks, and what stands beside a block
    endings.py     how a response ended, what it used, errors inside of it
    faults.py      responses that are no reply
    parsing.py     a request body, read back
    replying.py    a reply as the provider would write it

A conversation is a flat list of items: messages, calls, outputs, reasoning and what the provider's own tools
did. By default nothing is kept by the server (`store: false`) and every request holds the whole list;
`ResponsesCodec(state="server")` sends what is new since a response that the server keeps.

Source: the provider's API reference and SDK 3.57, and recorded exchanges.
"""

from remit.models.wires.responses.codec import ResponsesCodec

__all__ = ["ResponsesCodec"]
