"""What `@tool` and `Tool.from_schema` make of a function, and what they refuse to."""

import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_type

import pytest
from pydantic import BaseModel, ConfigDict, Field

from remit.errors import ConfigurationError
from remit.schedule import Footprint
from remit.testing import run_virtual
from remit.tools import Arguments, Call, Computed, Effect, Tool, tool

if TYPE_CHECKING:
    from fractions import Fraction


def make_call(deps: Any = None) -> Call[Any]:
    return Call(
        key="r:1:t:0:0",
        run_id="r",
        step=1,
        deadline=10.0,
        deps=deps,
        clock=lambda: 4.0,
        on_progress=lambda message, fraction: None,
        on_charge=lambda usd, tokens: None,
        on_ask=lambda schema, question: None,
    )


def values(probe: Tool[..., Any], text: str) -> dict[str, Any]:
    arguments = probe.read_arguments(text)
    assert isinstance(arguments, Arguments), arguments
    return arguments.values


def bound(probe: Tool[..., Any], text: str = "{}", call: Call[Any] | None = None) -> Any:
    return probe.bind(values(probe, text), {}, call)()


def properties(probe: Tool[..., Any]) -> dict[str, Any]:
    return probe.parameters["properties"]


# --- the effect ----------------------------------------------------------------------------------


def test_a_tool_without_an_effect_is_refused_and_told_the_three_choices() -> None:
    """E1: what running twice would do is nobody's to guess."""

    def refund() -> None: ...

    for define in (
        lambda: tool()(refund),
        lambda: tool(refund),
        lambda: Tool.from_schema(name="refund", description="", parameters={}, handler=print),
    ):
        with pytest.raises(ConfigurationError, match="refund") as caught:
            define()
        assert all(f'"{effect}"' in str(caught.value) for effect in Effect)


def test_an_effect_may_be_written_as_text_and_no_other_is_known() -> None:
    """E1: three effects, and no fourth."""

    def probe() -> None: ...

    assert [tool(effect=each)(probe).effect for each in ("read", "idempotent", "confirm")] == [
        Effect.READ,
        Effect.IDEMPOTENT,
        Effect.CONFIRM,
    ]
    with pytest.raises(ConfigurationError, match="'write'"):
        tool(effect="write")(probe)  # pyright: ignore[reportArgumentType] - the mistake that is tested


# --- options -------------------------------------------------------------------------------------


def test_options_have_the_documented_defaults() -> None:
    @tool(effect="confirm")
    def probe() -> None: ...

    assert (probe.timeout, probe.retries, probe.deterministic, probe.polling) == (
        60,
        0,
        False,
        False,
    )
    assert (probe.eager, probe.max_result_tokens, probe.usd, probe.tokens) == (True, 2_000, 0, 0)
    assert (probe.expires, probe.hidden_errors) == (86_400, False)


def test_options_are_kept_as_given() -> None:
    @tool(
        effect="read",
        timeout=1.5,
        retries=2,
        deterministic=True,
        polling=True,
        eager=False,
        max_result_tokens=50,
        usd=0.1,
        tokens=7,
        errors="hidden",
        name="other",
        description="Something else.",
    )
    def probe() -> None: ...

    assert (probe.timeout, probe.retries, probe.deterministic, probe.polling) == (
        1.5,
        2,
        True,
        True,
    )
    assert (probe.eager, probe.max_result_tokens, probe.tokens) == (False, 50, 7)
    assert (probe.usd, probe.hidden_errors) == (Decimal("0.1"), True)
    assert (probe.name, probe.description) == ("other", "Something else.")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"effect": "confirm", "retries": 1}, "retries"),
        ({"effect": "idempotent", "deterministic": True}, "deterministic"),
        ({"max_result_tokens": 10}, "max_result_tokens"),
        ({"usd": -1}, "usd"),
        ({"usd": "much"}, "usd"),
        ({"usd": float("nan")}, "usd"),
        ({"tokens": -1}, "tokens"),
        ({"expires": 60}, "expires"),
        ({"effect": "confirm", "expires": 0}, "expires"),
        ({"errors": "quiet"}, "errors"),
        ({"name": "get\norder"}, "get_order"),
        ({"name": " get_order"}, "get_order"),
        ({"name": ""}, "my_tool"),
        ({"name": "x" * 129}, "128"),
        ({"name": "get\ud800order"}, "get_order"),
        ({"resource": "order:{order}"}, "order"),
        ({"resource": "order:{}"}, "placeholder"),
        ({"resource": "order:{sku!r}"}, "placeholder"),
        ({"resource": "order:{sku:>5}"}, "placeholder"),
        ({"resource": "order:{sku.x}"}, "placeholder"),
        ({"resource": "order:{"}, "template"),
        ({"resource": "order:{maybe}"}, "default"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(options: dict[str, Any], word: str) -> None:
    def probe(sku: str, maybe: Annotated[list[int], Field(default_factory=list)]) -> None: ...

    define: Callable[..., Any] = tool
    with pytest.raises(ConfigurationError, match=word):
        define(**{"effect": "read", **options})(probe)


@pytest.mark.parametrize(
    "name", ["shop.search", "shop/search", "get order", "größe", "a:b:c", "x" * 128]
)
def test_a_tool_may_be_called_by_any_printable_line(name: str) -> None:
    """case 22: the letters of wires are a matter of wires."""

    def act() -> None:
        """Do it."""

    assert tool(effect="read", name=name)(act).name == name


def test_a_lambda_needs_a_name_that_models_accept() -> None:
    with pytest.raises(ConfigurationError, match="name='lambda'"):
        tool(effect="read")(lambda: None)


# --- the schema ----------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    """One line."""

    sku: str = Field(title="The SKU")
    title: str = "none"
    price: Decimal = Decimal("1.50")


def test_parameters_come_from_the_signature_and_the_docstring() -> None:
    """C2: closed at every depth, without titles, and a Decimal is a number."""

    @tool(effect="read")
    def probe(
        order_id: str,
        amount: Annotated[Decimal, Field(gt=0)],
        lines: list[Line],
        kind: Literal["a", "b"] = "a",
        colour: Colour = Colour.RED,
        limit: Annotated[int | None, Field(le=10, description="How many.")] = None,
        note: str = Field("none", max_length=5),
    ) -> None:
        """Do something.

        More about it.

        Args:
            order_id: The order,
                as printed.
            limit: Not this one.

        Returns:
            Nothing.
        """

    assert probe.description == "Do something.\n\nMore about it."
    assert probe.spec.parameters is probe.parameters
    assert probe.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "order_id": {"type": "string", "description": "The order,\nas printed."},
            "amount": {"type": "number", "exclusiveMinimum": 0.0},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "limit": {
                "anyOf": [{"type": "integer", "maximum": 10}, {"type": "null"}],
                "default": None,
                "description": "How many.",
            },
            "note": {"type": "string", "maxLength": 5, "default": "none"},
        },
        "required": ["order_id", "amount", "lines"],
        "$defs": {
            "Colour": {"type": "string", "enum": ["red"]},
            "Line": {
                "type": "object",
                "additionalProperties": False,
                "description": "One line.",
                "properties": {
                    "sku": {"type": "string"},
                    "title": {"type": "string", "default": "none"},
                    "price": {"type": "number", "default": 1.5},
                },
                "required": ["sku"],
            },
        },
    }
    given = '{"order_id": "1", "amount": 1, "lines": []}'
    assert values(probe, given)["note"] == "none"
    assert values(probe, given)["colour"] is Colour.RED


@pytest.mark.parametrize(
    "text",
    [
        "Find it.\n\nArgs:\n    query: What to find.\n",
        "Find it.\n\nParameters\n----------\nquery : str\n    What to find.\n",
        "Find it.\n\n:param query: What to find.\n:returns: it\n",
    ],
)
def test_every_dialect_of_docstrings_describes_parameters(text: str) -> None:
    def find(query: str) -> None: ...

    find.__doc__ = text
    probe = tool(effect="read")(find)
    assert probe.description == "Find it."
    assert properties(probe)["query"]["description"] == "What to find."


def test_equal_definitions_have_schemas_of_equal_bytes() -> None:
    """A prompt cache lives on it."""

    def define() -> str:
        @tool(effect="read")
        def probe(b: int, a: set[str], c: Literal["x", "y"] = "x") -> None: ...

        return json.dumps(probe.parameters)

    assert define() == define()
    assert list(json.loads(define())["properties"]) == ["b", "a", "c"]


def test_any_name_is_free_for_a_parameter() -> None:
    @tool(effect="read")
    def probe(schema: str, model_config: int, self_: int, copy: int, _private: int) -> object:
        return (schema, model_config, self_, copy, _private)

    text = '{"schema": "s", "model_config": 1, "self_": 2, "copy": 3, "_private": 4}'
    assert bound(probe, text) == ("s", 1, 2, 3, 4)


def test_a_mutable_default_is_fresh_for_every_call() -> None:
    @tool(effect="read")
    def probe(tags: list[str] = []) -> list[str]:  # noqa: B006 - the mistake that is tested
        tags.append("x")
        return tags

    assert bound(probe) == ["x"]
    assert bound(probe) == ["x"]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int = 1


def _variadic(*names: str) -> None: ...


def _keywords(**names: str) -> None: ...


def _positional(name: str, /) -> None: ...


def _untyped(name) -> None: ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType] - the mistake that is tested


def _unresolved(name: "Fraction") -> None: ...


def _nested(name: "list[Fraction]") -> None: ...


def _uncheckable(name: Iterator[int]) -> None: ...


def _unwritable(name: Callable[[int], int]) -> None: ...


def _ambiguous(name: list[Decimal | str]) -> None: ...


def _open(name: Open) -> None: ...


def _aliased(name: Annotated[str, Field(alias="other")]) -> None: ...


def _two_calls(call: Call[Any], name: Call[Any]) -> None: ...


def _bad_computed(name: Annotated[int, Computed(lambda a, b: 1)]) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        _variadic,
        _keywords,
        _positional,
        _untyped,
        _unresolved,
        _nested,
        _uncheckable,
        _unwritable,
        _ambiguous,
        _open,
        _aliased,
        _two_calls,
        _bad_computed,
    ],
)
def test_a_parameter_that_no_model_can_fill_is_refused_at_the_definition(
    function: Callable[..., Any],
) -> None:
    """C2: the text names the tool and, where it is one, the parameter."""
    with pytest.raises(ConfigurationError, match="name") as caught:
        tool(effect="read", name="probe")(function)
    assert "'probe'" in str(caught.value)


def test_a_function_without_a_readable_signature_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="signature"):
        tool(effect="read")(dict.fromkeys.__self__)


# --- kinds of functions --------------------------------------------------------------------------


def test_a_tool_stays_callable_as_its_function() -> None:
    @tool(effect="read")
    def double(x: int, *, loud: bool = False) -> str:
        """Twice."""
        return str(2 * x) + "!" * loud

    assert_type(double(2), str)
    assert double(2, loud=True) == "4!"
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert not double.is_async


def test_an_async_function_is_known_as_such_through_partials_and_wrappers() -> None:
    """C6: what would block belongs in a worker, what would not does not."""

    async def fetch(url: str, depth: int) -> str:
        return url * depth

    @functools.wraps(fetch)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return fetch(*args, **kwargs)

    def plain(url: str) -> str:
        return url

    class Fetcher:
        async def __call__(self, url: str) -> str:
            return url

    assert tool(effect="read")(fetch).is_async
    assert tool(effect="read")(logged).is_async
    assert tool(effect="read")(functools.partial(fetch, depth=2)).is_async
    assert tool(effect="read", name="it")(Fetcher()).is_async
    assert not tool(effect="read")(plain).is_async


def test_what_a_partial_has_fixed_is_not_the_models_to_fill() -> None:
    """C2: naming it is refused."""

    def search(index: str, query: str, limit: int = 3) -> tuple[str, str, int]:
        """Search."""
        return index, query, limit

    fixed = tool(effect="read")(functools.partial(search, "orders", limit=5))
    assert (fixed.name, fixed.description) == ("search", "Search.")
    assert list(properties(fixed)) == ["query"]
    assert bound(fixed, '{"query": "q"}') == ("orders", "q", 5)
    assert not isinstance(fixed.read_arguments('{"query": "q", "limit": 9}'), Arguments)


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool(effect="confirm")
    def cancel(self, order_id: str, call: Call[Any]) -> str:
        """Cancel."""
        return f"{self.name} {order_id} {call.key}"

    @cancel.summary
    def _(self, order_id: str) -> str:
        return f"{self.name}: {order_id}"

    @cancel.reconcile
    def _(self, key: str) -> str:
        return f"{self.name} {key}"

    @staticmethod
    @tool(effect="read")
    def ping(x: int) -> int:
        return x

    @tool(effect="read")
    @staticmethod
    def pong(x: int) -> int:
        return x

    def plain(self, x: int) -> str:
        return self.name * x


def test_a_decorated_method_is_a_tool_of_the_instance_it_is_taken_from() -> None:
    left, right = Shop("left"), Shop("right")
    assert_type(left.cancel("1", make_call()), str)
    assert left.cancel("1", make_call()) == "left 1 r:1:t:0:0"
    assert list(properties(right.cancel)) == ["order_id"]
    assert bound(right.cancel, '{"order_id": "2"}', make_call()) == "right 2 r:1:t:0:0"
    assert right.cancel.summarise({"order_id": "2"}) == "right: 2"
    assert right.cancel.reconciler is not None
    assert right.cancel.reconciler.bind("k")() == "right k"
    assert Shop.cancel.needs_instance
    assert not left.cancel.needs_instance


def test_static_and_bound_methods_are_tools_as_they_are() -> None:
    assert bound(Shop.ping, '{"x": 1}') == bound(Shop.pong, '{"x": 1}') == 1
    assert bound(tool(effect="read")(Shop("s").plain), '{"x": 2}') == "ss"


def test_a_classmethod_is_refused_and_told_how() -> None:
    with pytest.raises(ConfigurationError, match="bound method"):

        class Maker:  # pyright: ignore[reportUnusedClass] - only its definition is tested
            @tool(effect="read")
            @classmethod
            def make(cls, x: int) -> int:
                return x


def test_what_a_generator_yields_becomes_a_list() -> None:
    """Case 65's generator tool: one body, entered once, like any other."""

    @tool(effect="read")
    def count(n: int) -> Iterator[int]:
        yield from range(n)

    @tool(effect="read")
    async def count_async(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    assert (count.is_async, count_async.is_async) == (False, True)
    assert bound(count, '{"n": 3}') == [0, 1, 2]
    assert run_virtual(bound(count_async, '{"n": 3}')) == [0, 1, 2]


# --- what the host fills -------------------------------------------------------------------------


@dataclass
class Deps:
    tenant: str


def test_the_call_is_injected_by_annotation_under_any_name() -> None:
    @tool(effect="read")
    def generic(x: int, here: Call[Deps]) -> str:
        return here.deps.tenant

    @tool(effect="read")
    def textual(x: int, call: "Call[Deps]") -> str:
        return call.deps.tenant

    @tool(effect="read")
    def optional(x: int, call: Call[Deps] | None = None) -> str:
        return call.deps.tenant if call else "none"

    for probe in (generic, textual, optional):
        assert probe.wants_call
        assert list(properties(probe)) == ["x"]
        assert bound(probe, '{"x": 1}', make_call(Deps("acme"))) == "acme"
    assert not isinstance(generic.read_arguments('{"x": 1, "here": {}}'), Arguments)


def test_a_computed_parameter_is_filled_by_the_host_and_unknown_to_the_model() -> None:
    """C2, E2: it has no place in the schema nor in what was given; naming it is refused."""

    @tool(effect="read")
    def probe(
        x: int,
        today: Annotated[date, Computed(lambda: date(2025, 2, 3))],
        tenant: Annotated[str, Computed(lambda call: call.deps.tenant)],
        handle: Annotated[object, Computed(object, secret=True)],
    ) -> object:
        return (x, today, tenant, handle)

    assert list(properties(probe)) == ["x"]
    assert [(each.name, each.secret) for each in probe.computed] == [
        ("today", False),
        ("tenant", False),
        ("handle", True),
    ]
    assert not isinstance(probe.read_arguments('{"x": 1, "tenant": "other"}'), Arguments)
    computed = probe.evaluate_computed(make_call(Deps("acme")))
    assert isinstance(computed, dict)
    assert (computed["today"], computed["tenant"]) == ("2025-02-03", "acme")
    arrived = probe.bind(values(probe, '{"x": 1}'), computed, None)()
    assert arrived == (1, date(2025, 2, 3), "acme", computed["handle"])


def test_a_computed_value_may_be_awaited() -> None:
    async def tenant(call: Call[Deps]) -> str:
        return call.deps.tenant

    @tool(effect="read")
    def probe(who: Annotated[str, Computed(tenant)], n: Annotated[int, Computed(lambda: 2)]) -> str:
        return who * n

    computed = probe.evaluate_computed(make_call(Deps("acme")))
    assert not isinstance(computed, dict)
    assert run_virtual(computed) == {"who": "acme", "n": 2}


def test_a_computed_value_of_the_wrong_type_is_an_error_of_the_tool() -> None:
    @tool(effect="read")
    def probe(n: Annotated[int, Computed(lambda: "many")]) -> None: ...

    with pytest.raises(ValueError, match="integer"):
        probe.evaluate_computed(make_call())


# --- what a call touches -------------------------------------------------------------------------


def test_a_footprint_is_the_resource_filled_from_the_arguments() -> None:
    """C5: writes unless it is a read; undeclared and nothing are different."""

    @tool(effect="idempotent", resource=["order:{order_id}", "stock:{shelf}:{level}", "till"])
    def move(order_id: str, shelf: Colour = Colour.RED, level: float = 1) -> None: ...

    @tool(effect="read", resource="order:{order_id}")
    def look(order_id: str) -> None: ...

    assert move.footprint(values(move, '{"order_id": "{level}"}')) == Footprint(
        True, ("order:{level}", "stock:red:1", "till")
    )
    assert look.footprint({"order_id": "7"}) == Footprint(False, ("order:7",))
    assert tool(effect="read")(_unbound).footprint({}) == Footprint(False, None)
    assert tool(effect="read", resource=())(_unbound).footprint({}) == Footprint(False, ())
    assert tool(effect="confirm", resource="till")(_unbound).footprint({}) == Footprint(
        True, ("till",)
    )


def _unbound() -> None: ...


def test_two_spellings_of_one_value_name_one_resource() -> None:
    """C5: or both would run at once."""

    @tool(effect="idempotent", resource="n:{n}")
    def probe(n: float | None = None) -> None: ...

    spelt = [probe.footprint(values(probe, text)) for text in ('{"n": 1}', '{"n": 1.00}')]
    assert spelt[0] == spelt[1] == Footprint(True, ("n:1",))
    assert (
        probe.footprint(values(probe, "{}")) == probe.footprint({}) == Footprint(True, ("n:null",))
    )


# --- what people see -----------------------------------------------------------------------------


def test_the_summary_is_the_authors_words_about_the_arguments() -> None:
    @tool(effect="confirm")
    def refund(order_id: str, amount: Decimal, note: str = "none") -> None: ...

    @refund.summary
    def words(amount: Decimal, order_id: str) -> str:
        return f"Refund {amount} on {order_id}"

    assert words(Decimal(1), "x") == "Refund 1 on x"
    assert refund.summarise(values(refund, '{"order_id": "7", "amount": 5.00}')) == (
        "Refund 5.00 on 7"
    )


def test_without_a_summary_the_call_itself_is_shown_and_never_without_end() -> None:
    @tool(effect="confirm")
    def refund(
        order_id: str, amount: Decimal, lines: list[int], day: date | None = None
    ) -> None: ...

    text = '{"order_id": "ü\\"", "amount": 5.00, "lines": [1], "day": "2025-02-03"}'
    assert refund.summarise(values(refund, text)) == (
        'refund(order_id="ü\\"", amount=5.00, lines=[1], day="2025-02-03")'
    )
    long = json.dumps({"order_id": "x" * 9_000, "amount": 1, "lines": list(range(9_000))})
    shown = refund.summarise(values(refund, long))
    assert len(shown) <= 1_000
    assert "(9,002 characters)" in shown


def test_a_summary_of_what_the_model_does_not_fill_is_refused() -> None:
    @tool(effect="confirm")
    def refund(order_id: str, call: Call[Any]) -> None: ...

    with pytest.raises(ConfigurationError, match="amount"):

        @refund.summary
        def _(amount: int) -> str:
            return ""

    async def words(order_id: str) -> str:
        return order_id

    with pytest.raises(ConfigurationError, match="async"):
        refund.summary(words)  # pyright: ignore[reportArgumentType] - the mistake that is tested


def test_reconcile_takes_the_key_or_nothing_and_only_confirm_needs_it() -> None:
    """E3: for the other effects nobody would ask."""

    def define() -> Tool[[], None]:
        @tool(effect="confirm")
        def refund() -> None: ...

        return refund

    by_key, without = define(), define()

    @by_key.reconcile
    async def _(key: str) -> str:
        return key

    @without.reconcile
    def _() -> str:
        return "known"

    assert by_key.reconciler is not None
    assert by_key.reconciler.is_async
    assert run_virtual(by_key.reconciler.bind("k")()) == "k"
    assert without.reconciler is not None
    assert without.reconciler.bind("k")() == "known"
    assert define().reconciler is None
    with pytest.raises(ConfigurationError, match="takes the key"):
        define().reconcile(lambda key, other: None)
    with pytest.raises(ConfigurationError, match="confirm"):
        tool(effect="idempotent")(_unbound).reconcile(lambda: None)


# --- tools that bring their own schema -----------------------------------------------------------


def test_a_tool_from_a_schema_hands_the_arguments_over_as_a_dict() -> None:
    def handle(arguments: dict[str, Any], where: Call[Any]) -> object:
        return arguments, where.run_id

    async def handle_async(arguments: dict[str, Any]) -> object:
        return arguments

    parameters = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}
    probe = Tool.from_schema(
        name="probe",
        description="Probe.",
        parameters=parameters,
        handler=handle,
        effect="idempotent",
        resource="x:{x}",
        timeout=5,
    )
    assert (probe.name, probe.description, probe.timeout) == ("probe", "Probe.", 5)
    assert "type" not in parameters, "the author's dict is copied"
    assert probe.parameters == {"type": "object", "additionalProperties": False, **parameters}
    assert bound(probe, '{"x": 1}', make_call()) == ({"x": 1}, "r")
    assert probe.footprint({"x": 1}) == Footprint(True, ("x:1",))
    other = Tool.from_schema(
        name="other", description="", parameters={}, handler=handle_async, effect="read"
    )
    assert other.is_async
    assert run_virtual(bound(other)) == {}


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "string"},
        {"properties": {"x": {"type": "objekt"}}},
        {"properties": {"x": {"$ref": "https://example.com/x.json"}}},
        {"properties": {"x": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"x": {"$ref": "#/$defs/none"}}},
        {"properties": {"x": {"pattern": "("}}},
        {"properties": []},
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused_at_the_definition(
    parameters: dict[str, Any],
) -> None:
    """C2: and nothing is fetched to find out."""
    with pytest.raises(ConfigurationError, match="parameters"):
        Tool.from_schema(
            name="probe",
            description="",
            parameters=parameters,
            handler=lambda arguments: arguments,
            effect="read",
        )


@pytest.mark.parametrize("handler", [lambda: None, lambda a, b: None])
def test_a_handler_takes_the_arguments_and_nothing_else_but_the_call(
    handler: Callable[..., Any],
) -> None:
    with pytest.raises(ConfigurationError, match="handler"):
        Tool.from_schema(
            name="probe", description="", parameters={}, handler=handler, effect="read"
        )
