"""Servers that speak Chat Completions, and how each differs from the others.

A profile is a value and says only what is not the default; the codec asks it and knows no server by name. What
stands here was read in the servers' documents and errors (`docs/dialects.md` has the same as a table).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from remit.models.wires.aliases import IdRule
from remit.models.wires.lowering import Dialect

__all__ = ["COMPATIBLE", "DIALECTS", "ChatDialect", "compatible_at"]

COMPATIBLE: Final = "compatible"
"""Any other server, at the base URL that is given."""


class ChatDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one server takes, and what it gives. The defaults are what most of them have in common."""

    name: str
    """Prefix of its models, and the issuer of its opaque blocks."""
    title: str
    """How people call it."""
    base_url: str = ""
    """Where it is, unless told; empty where it has to be told."""
    url_variable: str
    """The variable that tells where it is."""
    key_variable: str
    """The variable that holds the key."""
    key_header: str = "authorization"
    """`authorization` takes the key as a bearer token, any other header as it stands."""
    local: bool = False
    """It runs on a machine of one's own, and may have to load the model before its first word."""
    tools: Dialect = Dialect(target="inlined")
    """What it takes of tools. References are written out where a server may not follow them."""
    ids: IdRule | None = IdRule()
    """Ids of tool uses that it takes; None: none are sent, and results are known by their order."""
    cap: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The field of the output cap."""
    stream_options: bool = True
    """It reports usage in a stream when it is asked to."""
    text_parts: bool = False
    """Text may be a list of parts; else several texts are joined by an empty line."""
    reads_arguments: bool = True
    """It reads the arguments of past calls, and refuses those that are no JSON object."""
    user_after_results: bool = True
    """A user's message may stand directly behind results; else an assistant's `OK.` stands between."""
    empty_content: str | None = None
    """`content` of an assistant's message that only calls."""
    reasoning: tuple[str, ...] = ()
    """Fields of a message that go back to it as they came."""
    of_calls: tuple[str, ...] = ()
    """Fields of a call that go back to it as they came."""
    parts: tuple[str, ...] = ()
    """Kinds of parts of a message's content, beside text, that go back to it."""
    bound: tuple[str, ...] = ()
    """Those of them that it refuses once something that was said before them has changed (X5)."""
    thinking: Literal["reasoning_effort", "reasoning"] | None = None
    """How it is told how much to think; None: it has no such field, and is not told."""
    native_output: bool = False
    """It holds a final text to a schema, beside tools and in a stream."""
    cache_control: bool = False
    """It takes cache markers, for the models that need them."""
    cache_key: bool = False
    """It takes `prompt_cache_key`, which sends a conversation where its beginning is cached."""
    cost: bool = False
    """`usage.cost` is what the reply costs, in US dollars."""
    media: tuple[str, ...] = ("image/*",)
    """What a message of the user can hold: media types or patterns."""
    hint: str = ""
    """What people should look at where a request is refused for no reason that is known here."""


_OPENAI_MEDIA = ("image/*", "audio/wav", "audio/mpeg", "application/pdf")

_OPEN = Dialect(target="open")

_PROFILES = (
    ChatDialect(
        name="openai-chat",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        tools=_OPEN,
        ids=IdRule(longest=40),
        cap="max_completion_tokens",
        text_parts=True,
        reads_arguments=False,
        thinking="reasoning_effort",
        native_output=True,
        cache_key=True,
        media=_OPENAI_MEDIA,
    ),
    ChatDialect(
        name="azure",
        title="Azure OpenAI",
        url_variable="AZURE_OPENAI_ENDPOINT",
        key_variable="AZURE_OPENAI_API_KEY",
        key_header="api-key",
        tools=_OPEN,
        ids=IdRule(longest=40),
        cap="max_completion_tokens",
        text_parts=True,
        reads_arguments=False,
        thinking="reasoning_effort",
        native_output=True,
        hint="the model is the name of your deployment, and the base URL is https://NAME.openai.azure.com",
    ),
    ChatDialect(
        name="ollama",
        title="Ollama",
        base_url="http://localhost:11434/v1",
        url_variable="OLLAMA_BASE_URL",
        key_variable="OLLAMA_API_KEY",
        local=True,
        empty_content="",
        reasoning=("reasoning",),
        hint="is the model pulled (`ollama pull NAME`), and does it support tools (`ollama show NAME`)?",
    ),
    ChatDialect(
        name="vllm",
        title="vLLM",
        base_url="http://localhost:8000/v1",
        url_variable="VLLM_BASE_URL",
        key_variable="VLLM_API_KEY",
        local=True,
        tools=_OPEN,
        empty_content="",
        reasoning=("reasoning_content", "reasoning"),
        hint="tools need `vllm serve --enable-auto-tool-choice --tool-call-parser NAME`",
    ),
    ChatDialect(
        name="llamacpp",
        title="llama.cpp",
        base_url="http://localhost:8080/v1",
        url_variable="LLAMACPP_BASE_URL",
        key_variable="LLAMA_API_KEY",
        local=True,
        tools=_OPEN,
        empty_content="",
        reasoning=("reasoning_content",),
        hint="tools need `llama-server --jinja`",
    ),
    ChatDialect(
        name="groq",
        title="Groq",
        base_url="https://api.groq.com/openai/v1",
        url_variable="GROQ_BASE_URL",
        key_variable="GROQ_API_KEY",
        tools=_OPEN,
        cap="max_completion_tokens",
        thinking="reasoning_effort",
    ),
    ChatDialect(
        name="deepseek",
        title="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        url_variable="DEEPSEEK_BASE_URL",
        key_variable="DEEPSEEK_API_KEY",
        reasoning=("reasoning_content",),
        media=(),
    ),
    ChatDialect(
        name="openrouter",
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        url_variable="OPENROUTER_BASE_URL",
        key_variable="OPENROUTER_API_KEY",
        cap="max_completion_tokens",
        ids=IdRule(longest=40),
        text_parts=True,
        reasoning=("reasoning_details",),
        bound=("reasoning_details",),
        thinking="reasoning",
        cache_control=True,
        cost=True,
        media=_OPENAI_MEDIA,
    ),
    ChatDialect(
        name="mistral",
        title="Mistral",
        base_url="https://api.mistral.ai/v1",
        url_variable="MISTRAL_BASE_URL",
        key_variable="MISTRAL_API_KEY",
        tools=_OPEN,
        ids=IdRule(letters="A-Za-z0-9", length=9, longest=9),
        stream_options=False,
        text_parts=True,
        user_after_results=False,
        empty_content="",
        parts=("thinking",),
    ),
    ChatDialect(
        name=COMPATIBLE,
        title="the server",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        ids=IdRule(longest=40),
        reasoning=(
            "reasoning_content",
            "reasoning_details",
            "extra_content",
            "thought_signature",
        ),
        of_calls=("extra_content",),
        parts=("thinking",),
        bound=("reasoning_details",),
    ),
)

DIALECTS: Final[Mapping[str, ChatDialect]] = MappingProxyType(
    {each.name: each for each in _PROFILES}
)
"""By name."""


def compatible_at(base_url: str) -> ChatDialect:
    """A server that nobody knows. What it issues goes back to this place and to no other (T7)."""
    place = urlsplit(base_url).netloc.rpartition("@")[2]
    return msgspec.structs.replace(
        DIALECTS[COMPATIBLE], name=f"{COMPATIBLE}:{place}", title=place or "the server"
    )
