"""The wire of Anthropic Messages (`POST /v1/messages`).

    codec.py      the endpoint: its headers, its encoder, what its errors mean
    encoding.py   a request: settings, and what the others write
    prefix.py     tools and system text;  writing.py  messages
    markers.py    where in a request the prompt cache is told to look
    decoding.py   a reply, from a stream or whole
    blocks.py     blocks of content, there and back; what they say that remit has no words for
    counting.py   usage and stop reasons
    faults.py     responses that are no reply
    parsing.py    a request body, read back

Source: the provider's API reference as of 2023-06-01 and 2026-10-21, and recorded exchanges.
"""

from remit.models.wires.anthropic.codec import AnthropicCodec

__all__ = ["AnthropicCodec"]
