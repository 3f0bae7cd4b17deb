"""A provider of tests: plays the scripts of `ScriptedModel` as Anthropic, OpenAI and their like write them.

    from remit.testing.serve import Cut, Refused, serve

    async def test_the_desk_bears_a_busy_provider():
        script = [Refused("overloaded"), Cut(("look_up", {"order": 7})), ("look_up", {"order": 7}), "Done."]
        async with serve(script, "anthropic") as server:
            outcome = await desk(model=server.model()).run("Where is order 7?")
        assert outcome.text == "Done."
        assert server.refusals == []  # no request broke the protocol

It streams or answers whole, as it is asked; judges every request by the provider's rules and refuses it in its
words (`remit.testing.protocol`); keeps the requests; counts a prompt cache. Faults are items of the script.

    server.py      sockets: `serve`, which listens on this machine alone; connection.py speaks HTTP
    memory.py      no sockets: a transport, for virtual time
    provider.py    a request in, a response out
    faults.py      what goes wrong
    turn.py        what is said, and what a wire has to be able to do
    anthropic.py  responses.py  chat.py    the wires; openai.py what two of them share
    cache.py       the prompt caches
    written.py     a response as a value
"""

from remit.testing.serve.faults import (
    HTML_PAGE,
    Answer,
    Cut,
    Doubled,
    Dripped,
    Fails,
    Garbled,
    Gzipped,
    Mislabelled,
    Raw,
    Refused,
    Spoils,
    Stalled,
    Whole,
)
from remit.testing.serve.memory import MemoryTransport
from remit.testing.serve.provider import TEST_KEY, Act, Play, Received, ScriptedProvider
from remit.testing.serve.server import Server, serve
from remit.testing.serve.turn import ErrorKind

__all__ = [
    "HTML_PAGE",
    "TEST_KEY",
    "Act",
    "Answer",
    "Cut",
    "Doubled",
    "Dripped",
    "ErrorKind",
    "Fails",
    "Garbled",
    "Gzipped",
    "MemoryTransport",
    "Mislabelled",
    "Play",
    "Raw",
    "Received",
    "Refused",
    "ScriptedProvider",
    "Server",
    "Spoils",
    "Stalled",
    "Whole",
    "serve",
]
