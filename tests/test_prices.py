"""What models cost: the list, prices of one's own, tiers, and reservations that hold whatever is billed."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import Any, cast

import genai_prices
import pytest
from genai_prices.data import providers
from hypothesis import assume, given
from hypothesis import strategies as st

from loop_rig import desk
from remit import (
    ConfigurationError,
    Limits,
    ModelProfile,
    ModelRequest,
    Price,
    Reason,
    Transcript,
    Usage,
    model,
    tool,
)
from remit.budget import Left
from remit.models.prices import Ttl, price_of
from remit.models.profiles import OWN, profile_of
from remit.models.scripted import ScriptedModel, Step
from remit.models.wires.anthropic import AnthropicCodec
from remit.models.wires.dialects import DIALECTS
from remit.quote import Quote, quote, worst_case
from remit.testing import run_virtual

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
NOW = datetime.now(UTC)
TTLS: tuple[Ttl, ...] = ("5m", "1h")


def price(of: str, *, base_url: str | None = None, ttl: Ttl = "5m", at: datetime = AT) -> Price:
    provider, _, name = of.partition(":")
    found = price_of(provider, name, base_url=base_url, ttl=ttl, at=at)
    assert found is not None
    return found


# --- the list ------------------------------------------------------------------------------------


@given(
    st.sampled_from([(p.id, m.id) for p in providers for m in p.models]),
    st.tuples(*[st.integers(0, 400_000)] * 4),
)
def test_a_listed_price_bills_what_the_list_itself_would(
    listed: tuple[str, str], counts: tuple[int, int, int, int]
) -> None:
    """L2: fresh, cached, written and output tokens cost what the keeper of the list makes of them."""
    provider, model = listed
    found = price_of(provider, model, at=AT)
    fresh, read, written, output = counts
    assume(found is not None and not model.endswith("sonar-deep-research"))
    assert found is not None
    theirs = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=fresh + read + written,
            cache_read_tokens=read,
            cache_write_tokens=written,
            output_tokens=output,
        ),
        model,
        provider_id=provider,
        genai_request_timestamp=AT,
    ).total_price
    usage = Usage(input=fresh, cache_read=read, cache_write=written, output=output)
    if _by_the_hour(provider, model):
        assert found.cost(usage) >= theirs
    else:
        assert found.cost(usage) == theirs


def _by_the_hour(provider: str, model: str) -> bool:
    models = next(each.models for each in providers if each.id == provider)
    prices = next(each for each in models if each.is_match(model)).prices
    return isinstance(prices, list) and any(hasattr(p.constraint, "start_time") for p in prices)


def test_a_price_that_depends_on_the_hour_is_the_dearest_of_the_day() -> None:
    """L2: a run may last into the dear hours, so the cheap ones reserve for them."""
    cheap, dear = datetime(2026, 11, 1, 20, tzinfo=UTC), datetime(2026, 11, 1, 2, tzinfo=UTC)
    assert price("deepseek:deepseek-v4-pro", at=cheap) == price("deepseek:deepseek-v4-pro", at=dear)
    assert price("deepseek:deepseek-v4-pro", at=cheap).input == Decimal("1.32")


def test_a_price_is_that_of_its_day() -> None:
    """L2: lists have dates, and a price that begins later is not charged before."""
    before = price("openai:gpt-5.6-luna", at=datetime(2026, 7, 29, tzinfo=UTC))
    after = price("openai:gpt-5.6-luna", at=datetime(2026, 7, 30, tzinfo=UTC))
    assert (before.input, after.input) == (Decimal(1), Decimal("0.2"))


def test_what_is_kept_for_an_hour_costs_more_to_write() -> None:
    """L2: a longer cache has its own price."""
    short, long = (price("anthropic:claude-opus-5-5", ttl=ttl) for ttl in ("5m", "1h"))
    assert (short.cache_write, long.cache_write) == (Decimal(5), Decimal(8))
    assert (short.input, short.output) == (long.input, long.output)


@pytest.mark.parametrize(
    ("provider", "model", "base_url"),
    [
        ("anthropic", "claude-unheard-of", None),
        ("vllm", "gpt-4o", None),
        ("ollama", "llama3.3", None),
        ("openai-chat", "gpt-4o", "http://127.0.0.1:8000/v1"),
        ("perplexity", "sonar", None),  # a request costs something too
        ("openai", "whisper-1", None),  # billed by the hour
        ("nobody", "nothing", None),
        ("openai", "", None),
        ("", "\0", "((not an address"),
    ],
)
def test_a_price_that_nobody_lists_is_unknown_and_not_guessed(
    provider: str, model: str, base_url: str | None
) -> None:
    """L2: what one runs oneself, what is billed otherwise, and names that nobody knows."""
    assert price_of(provider, model, base_url=base_url) is None


def test_an_address_says_whose_prices_hold() -> None:
    """L2: a name that anybody may serve is priced by who serves it; a gateway has the prices behind it."""
    deepseek = price("openai-chat:deepseek-chat", base_url="https://api.deepseek.com/v1")
    assert deepseek == price("deepseek:deepseek-chat")
    behind = price("anthropic:claude-sonnet-5-5", base_url="https://gateway.example/anthropic")
    assert behind == price("anthropic:claude-sonnet-5-5")


def test_the_list_is_loaded_when_a_price_is_asked_for_and_never_fetched() -> None:
    """Neither `import remit` nor a price of a server of one's own loads it; no thread or socket is begun."""
    code = """
import sys, threading
import remit
from remit.models.profiles import OWN, profile_of
profile_of("vllm", "x")
assert "genai_prices" not in sys.modules
import socket
socket.socket.connect = socket.create_connection = None
profile_of("anthropic", "claude-sonnet-5-5")
assert "genai_prices" in sys.modules and threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- tiers ---------------------------------------------------------------------------------------

LONG = Price(input=Decimal(6), output=Decimal("22.5"), cache_read=Decimal("0.6"))
TIERED = Price(
    input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), above=((200_000, LONG),)
)


def test_a_prompt_above_a_tier_costs_more_for_everything() -> None:
    """L2: the whole prompt counts, cached or not, and the output is dearer too."""
    at, over = Usage(input=100_000, cache_read=100_000), Usage(input=100_001, cache_read=100_000)
    assert TIERED.cost(at) == Decimal("0.33")
    assert TIERED.cost(over) == Decimal("0.660006")
    assert TIERED.cost(Usage(input=200_001, output=1_000)) == LONG.cost(
        Usage(input=200_001, output=1_000)
    )


def test_costs_are_exact_whatever_the_decimal_context() -> None:
    """L2: a tool that sets a context of two digits changes no bill."""
    usage = Usage(input=123_456, cache_read=654_321, output=7_891)
    exact = TIERED.cost(usage)
    with localcontext(prec=2):
        assert TIERED.cost(usage) == exact


@pytest.mark.parametrize(
    "above",
    [
        ((200_000, TIERED),),
        ((200_000, LONG), (100_000, LONG)),
        ((0, LONG),),
        ((200_000, Decimal(6)),),
        (200_000,),
        {200_000: LONG},
        LONG,
    ],
)
def test_what_are_no_tiers_is_refused(above: object) -> None:
    """Wrong configuration is told at once."""
    with pytest.raises(ConfigurationError, match="above="):
        Price(input=Decimal(1), output=Decimal(1), above=cast("Any", above))


# --- reservations --------------------------------------------------------------------------------

rates = st.decimals(0, 100, places=3)
plain = st.builds(
    Price,
    input=rates,
    output=rates,
    cache_read=st.none() | rates,
    cache_write=st.none() | rates,
)


@st.composite
def prices(draw: st.DrawFn) -> Price:
    base = draw(plain)
    starts = sorted(draw(st.sets(st.integers(1, 3_000), max_size=3)))
    above = tuple([(start, draw(plain)) for start in starts])
    return Price(
        input=base.input,
        output=base.output,
        cache_read=base.cache_read,
        cache_write=base.cache_write,
        above=above,
    )


counts = st.integers(0, 4_000)


@given(prices(), counts, counts, st.data())
def test_no_usage_within_what_is_reserved_costs_more_than_is_reserved(
    price: Price, prompt: int, output: int, data: st.DataObject
) -> None:
    """L2: however the prompt is billed, read, written or fresh, in whatever tier it falls."""
    parts = sorted(data.draw(st.integers(0, prompt)) for _ in range(3))
    usage = Usage(
        input=parts[0],
        cache_read=parts[1] - parts[0],
        cache_write=parts[2] - parts[1],
        output=data.draw(st.integers(0, output)),
    )
    reserved = worst_case(ModelProfile(price=price), prompt=prompt, output=output, steps=1)
    assert price.cost(usage) <= reserved.usd


@given(prices(), counts, st.integers(1, 4_000), st.decimals(0, 1, places=4), st.booleans())
def test_what_is_quoted_can_be_paid_and_no_token_more_could(
    price: Price, prompt: int, cap: int, usd: Decimal, echoed: bool
) -> None:
    """L2: the output cap is as high as what is left pays for, with the hand-back's copy of it where there is one."""
    profile = ModelProfile(price=price)
    left = Left(steps=1, calls=None, tokens=10**9, usd=usd)
    found = quote(profile, prompt=prompt, cap=cap, floor=1, left=left, steps=1, echoed=echoed)
    if isinstance(found, Quote):
        assert found.amount.usd <= usd
        if echoed:
            assert _with_its_copy(profile, prompt, cap, found.max_output) <= usd
    if not echoed:
        output = found.max_output + 1 if isinstance(found, Quote) else 1
        more = worst_case(profile, prompt=prompt, output=output, steps=1)
        assert output > cap or more.usd > usd


def _with_its_copy(profile: ModelProfile, prompt: int, cap: int, output: int) -> Decimal:
    """What a reply and the hand-back after it cost, less what is held back for the latter."""
    short = min(cap, 1_024)
    held = worst_case(profile, prompt=prompt + short, output=short, steps=0)
    after = worst_case(profile, prompt=prompt + output, output=short, steps=0)
    return worst_case(profile, prompt=prompt, output=output, steps=1).usd + after.usd - held.usd


def test_a_reply_that_would_lift_the_hand_back_into_a_dear_tier_is_kept_short() -> None:
    """L2, L5: where the dearer prompt cannot be paid for, the output ends where the tier does."""
    dear = Price(input=Decimal(10), output=Decimal(1))
    price = Price(input=Decimal(1), output=Decimal(1), above=((3_000, dear),))
    profile, left = ModelProfile(price=price), Left(1, None, 10**9, Decimal("0.0095"))
    found = quote(profile, prompt=1_500, cap=4_000, floor=1, left=left, steps=1, echoed=True)
    assert isinstance(found, Quote)
    assert found.max_output == 1_500
    rich = Left(1, None, 10**9, Decimal(1))
    found = quote(profile, prompt=1_500, cap=4_000, floor=1, left=rich, steps=1, echoed=True)
    assert isinstance(found, Quote)
    assert found.max_output == 4_000


def test_a_run_that_writes_its_cache_in_a_dear_tier_keeps_to_its_limit() -> None:
    """L2: all of each prompt is billed as written and above the tier; the sum stays below the limit."""
    dear = Price(input=Decimal(6), output=Decimal(30), cache_write=Decimal(12))
    profile = ModelProfile(
        price=Price(input=Decimal(3), output=Decimal(15), above=((1_000, dear),)),
        max_output=1_024,
    )

    @tool(effect="read")
    def look(at: int) -> str:
        """Look."""
        return f"{at} " + "x" * 4_000

    def bills(transcript: Transcript, request: ModelRequest) -> Step:
        usage = Usage(cache_write=transcript.tokens, output=request.max_output)
        return Step(("look", {"at": len(transcript)}), usage=usage)

    async def main() -> None:
        usd = Decimal("0.50")
        limits = Limits(steps=99, tokens=10**6, seconds=60, usd=usd)
        model = ScriptedModel(bills, profile=profile)
        outcome = await desk(model, [look], limits=limits).run("Go.")
        assert outcome.reason is Reason.COST_BUDGET
        assert Decimal("0.3") < outcome.spend.tree.usd <= usd
        assert outcome.spend.overshoot.usd == 0
        assert outcome.spend.tree.usage.cache_write > 5_000

    run_virtual(main())


@given(prices(), st.decimals("0.001", "0.5", places=4), st.data())
def test_a_run_never_costs_more_than_its_limit_however_its_prompts_are_billed(
    price: Price, usd: Decimal, data: st.DataObject
) -> None:
    """L2, L5: whole runs with tiers, hand-backs and growing prompts; nothing is overshot."""

    @tool(effect="read")
    def look(at: int) -> str:
        """Look."""
        return f"{at} " + "x" * data.draw(st.integers(0, 3_000))

    def bills(transcript: Transcript, request: ModelRequest) -> Step:
        prompt = transcript.tokens
        read = data.draw(st.integers(0, prompt))
        written = data.draw(st.integers(0, prompt - read))
        # A reply is billed as at least what it adds to the next prompt.
        output = data.draw(st.integers(16, request.max_output))
        usage = Usage(
            input=prompt - read - written, cache_read=read, cache_write=written, output=output
        )
        return Step(("look", {"at": len(transcript)}), usage=usage)

    async def main() -> None:
        limits = Limits(steps=6, tokens=10**6, seconds=60, usd=usd)
        model = ScriptedModel(bills, profile=ModelProfile(price=price, max_output=2_048))
        outcome = await desk(model, [look], limits=limits).run("Go.")
        assert outcome.spend.tree.usd <= usd
        assert outcome.spend.overshoot.usd == 0

    run_virtual(main())


# --- names ---------------------------------------------------------------------------------------


def test_a_limit_in_dollars_is_refused_where_the_price_of_a_name_is_unknown() -> None:
    """L2: before anything is asked, for a model known by its name alone."""
    limits = Limits(steps=2, tokens=10_000, seconds=60, usd=1)

    async def main() -> None:
        unknown = ScriptedModel(["never"], profile=profile_of("vllm", "mine"))
        with pytest.raises(ConfigurationError, match="price"):
            await desk(unknown, limits=limits).run("Go.")
        assert not unknown.asked
        known = ScriptedModel(
            [Step("done", usage=Usage(input=1_000, output=100))],
            profile=profile_of("anthropic", "claude-sonnet-5-5"),
        )
        outcome = await desk(known, limits=limits).run("Go.")
        listed = price_of("anthropic", "claude-sonnet-5-5")
        assert listed is not None
        assert outcome.spend.own.usd == listed.cost(Usage(input=1_000, output=100)) > 0
        assert outcome.reason is Reason.COMPLETED

    run_virtual(main())


def test_a_codec_that_writes_for_longer_brings_the_price_and_the_time_of_that() -> None:
    """L2, X4: what is asked of the cache is what is reserved for and expected of it."""
    models = [
        model("anthropic:claude-opus-5-5", api_key="k", codec=AnthropicCodec(cache_ttl=ttl)).profile
        for ttl in (*TTLS, None)
    ]
    writes = [price("anthropic:claude-opus-5-5", ttl=ttl, at=NOW).cache_write for ttl in TTLS]
    assert [profile.price and profile.price.cache_write for profile in models[:2]] == writes
    assert [profile.cache_seconds for profile in models[:2]] == [300, 3_600]
    assert [profile.cache_tokens is None for profile in models] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "window", "output", "cache", "seconds"),
    [
        ("anthropic:claude-haiku-4-5-20251001", 200_000, 64_000, 4_096, 300),
        ("anthropic:claude-opus-4-7", 1_000_000, 128_000, 2_048, 300),
        ("anthropic:claude-opus-5", 1_000_000, 128_000, 512, 300),
        ("anthropic:claude-3-5-haiku-latest", 200_000, 8_192, 2_048, 300),
        ("openai:gpt-4o-mini", 128_000, 16_384, 1_024, 300),
        ("openai:gpt-5.6-sol", 1_050_000, 128_000, 1_024, 1_800),
        ("openai:gpt-4", 8_192, 4_096, None, 300),
        ("deepseek:deepseek-chat", 64_000, 8_192, None, 300),
        ("vllm:mine", 32_768, 8_192, None, 300),
    ],
)
def test_a_name_says_what_its_model_can_do(
    name: str, window: int, output: int, cache: int | None, seconds: int
) -> None:
    """L2: windows, output caps and caches as the providers publish them."""
    profile = profile_of(*name.split(":"))
    assert (profile.context_window, profile.max_output) == (window, output)
    assert (profile.cache_tokens, profile.cache_seconds) == (cache, seconds)


def test_media_are_read_where_the_wire_brings_them_along() -> None:
    """X3: by wire, and by family where a model reads none."""
    reads = {
        name: tuple(
            profile_of(*name.split(":")).reads(kind) for kind in ("image/png", "application/pdf")
        )
        for name in (
            "anthropic:claude-sonnet-5-5",
            "anthropic:claude-3-opus-latest",
            "openai:gpt-5.6-sol",
            "openai:o3-mini",
            "openai-chat:gpt-4o",
            "azure:gpt-4o",
            "mistral:mistral-large-4",
        )
    }
    assert list(reads.values()) == [
        (True, True),
        (True, False),
        (True, True),
        (False, False),
        (True, True),
        (True, False),
        (False, False),
    ]


def test_servers_that_people_run_themselves_are_the_same_everywhere() -> None:
    """Nobody lists a price for them, and their window is the one they were started with."""
    assert {name for name, dialect in DIALECTS.items() if dialect.local} == OWN


@given(st.text(max_size=40), st.text(max_size=60), st.none() | st.text(max_size=40))
def test_any_name_has_a_profile(provider: str, model: str, base_url: str | None) -> None:
    """Whatever people type, there is an answer and no error."""
    profile = profile_of(provider, model, base_url=base_url)
    assert profile.max_output <= profile.context_window
