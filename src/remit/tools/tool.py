"""A tool: a described function, and what the loop may do with it.

`@tool` and `Tool.from_schema` check everything that can be checked before a run. A `Tool` reads
arguments, says what a call touches and binds arguments to its function; it never calls the function
for the loop. Only the dispatcher, above, enters a body. Options are read in `options`, signatures in
`signature`, arguments in `arguments`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

from remit.canonical import arguments_hash
from remit.errors import ConfigurationError
from remit.models.base import ToolSpec
from remit.preview import MASK
from remit.schedule import Footprint
from remit.tools.arguments import (
    Arguments,
    ArgumentsReader,
    BadArguments,
    cut,
)
from remit.tools.call import Call
from remit.tools.computed import ComputedParameter
from remit.tools.functions import (
    collected,
    is_async,
    is_method,
    named_parameters,
    names_around,
    required_parameters,
)
from remit.tools.options import (
    EFFECT_MISSING,
    Effect,
    EffectName,
    Options,
    check_description,
    check_function,
    check_tool_name,
    name_of,
    read_options,
)
from remit.tools.resource_names import resource_names
from remit.tools.schema import own_schema, published

__all__ = ["Reconciler", "Tool", "handing_in", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
Self_ = TypeVar("Self_")
Summary = TypeVar("Summary", bound=Callable[..., str])
Reconcile = TypeVar("Reconcile", bound=Callable[..., Any])

_MAX_SUMMARY_CHARS = 1_000
_MAX_VALUE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Asks the world what became of a call whose outcome is unknown."""

    fn: Callable[..., Any]
    is_async: bool
    takes_key: bool

    def bind(self, key: str) -> Callable[[], Any]:
        """What to call for this key: gives the result, None where nobody knows, or a coroutine."""
        return functools.partial(self.fn, key) if self.takes_key else self.fn


class Tool(Generic[P, R]):
    """A described function. It stays callable as that function."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of what the model fills, root `type: object`. Not to be changed."""
    spec: ToolSpec
    effect: Effect
    timeout: float
    """Ceiling of one call in seconds, from when it was asked or approved."""
    retries: int
    """How often a call that raised is run again, under the same key; never after a `ToolError`."""
    deterministic: bool
    """The result is a function of the arguments: equal calls of a run share one execution."""
    polling: bool
    """Asking again and again is its purpose; such calls do not count as stalling."""
    eager: bool
    """A `read` may begin while the reply is still streamed."""
    ends_run: bool
    """A result of it that is no error ends the run as completed, once the whole turn is answered."""
    max_result_tokens: int
    usd: Decimal
    """US dollars reserved before a call."""
    tokens: int
    """Tokens reserved before a call."""
    expires: float
    """Seconds after which a proposal can no longer be approved, nor a question answered or a result supplied."""
    is_elsewhere: bool
    """It has no function here: a call is handed out, and whoever executes it supplies the result."""
    hidden_errors: bool
    """The model is told that the call failed, and not how."""
    remit: str
    """The name of the remit that it is (`Remit.as_tool`); empty for every other tool."""
    inside: Mapping[str, Tool[..., Any]]
    """The tools of that remit."""
    is_async: bool
    """Calling the function makes a coroutine; else it blocks and belongs in a worker."""
    wants_call: bool
    computed: tuple[ComputedParameter, ...]
    """What the host fills, in the order of the signature."""
    reconciler: Reconciler | None
    needs_instance: bool
    """A method that is not bound yet: pass `shop.cancel`, not `Shop.cancel`."""
    wrappers: tuple[Callable[..., Any], ...]
    """What stands around the function, outermost first; see `remit.wrap_tools`."""
    conditions: tuple[Callable[[], object], ...]
    """All of them are True where the tool is available; see `remit.filter`."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        description: str,
        options: Options,
        parameters: dict[str, Any],
        reader: ArgumentsReader,
        computed: tuple[ComputedParameter, ...],
        call_parameter: str | None,
        takes_dict: bool,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", name)
        self.name = name
        self.description = description
        self.parameters = parameters
        self.spec = ToolSpec(name, description, parameters)
        self.effect = options.effect
        self.timeout = options.timeout
        self.retries = options.retries
        self.deterministic = options.deterministic
        self.polling = options.polling
        self.eager = options.eager
        self.ends_run = options.ends_run
        self.max_result_tokens = options.max_result_tokens
        self.usd = options.usd
        self.tokens = options.tokens
        self.expires = options.expires
        self.is_elsewhere = options.elsewhere
        self.hidden_errors = options.hidden_errors
        self.remit = ""
        self.inside = {}
        self.is_async = is_async(function)
        self.wants_call = call_parameter is not None
        self.computed = computed
        self.reconciler = None
        self.needs_instance = not takes_dict and is_method(function)
        self.wrappers = ()
        self.conditions = ()
        self._function = function
        self._body = collected(function)
        self._reader = reader
        self._call_parameter = call_parameter
        self._takes_dict = takes_dict
        self._summary: Callable[..., str] | None = None
        self._summary_parameters: tuple[str, ...] = ()
        self._computes_async = any(each.is_async for each in computed)
        self._resources = resource_names(name, options.resource, parameters)
        writes = options.effect is not Effect.READ
        self._footprint = Footprint(writes, options.resource)

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, effect={self.effect.value!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no policy, no record. For your own code."""
        return self._function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R]: ...
    @overload
    def __get__(
        self: Tool[Concatenate[Self_, Q], R], instance: Self_, owner: type | None = None
    ) -> Tool[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """Bind a method to its instance, as functions do."""
        if instance is None or not self.needs_instance:
            return self
        function = _bound(self._function, instance)
        summary, reconciler = self._summary, self.reconciler
        return self._changed(
            __wrapped__=function,
            _function=function,
            _body=collected(function),
            _summary=summary and _bound(summary, instance),
            reconciler=reconciler and replace(reconciler, fn=_bound(reconciler.fn, instance)),
            needs_instance=False,
        )

    # --- copies that differ in one thing; `derived.py` makes them ---

    def renamed(self, name: str) -> Tool[P, R]:
        """Under another name. Errors: `ConfigurationError` for one that no model takes."""
        check_tool_name(name)
        spec = ToolSpec(name, self.description, self.parameters)
        return self._changed(name=name, spec=spec, _reader=self._reader.named(name))

    def wrapped(self, wrapper: Callable[..., Any]) -> Tool[P, R]:
        """With a wrapper around all that is there already.

        Errors: `ConfigurationError` where there is nothing here to wrap.
        """
        if self.is_elsewhere:
            raise ConfigurationError(
                f"tool {self.name!r} is executed elsewhere: a wrapper has nothing to stand around. Leave it "
                "out of what you wrap"
            )
        return self._changed(wrappers=(wrapper, *self.wrappers))

    def available_if(self, condition: Callable[[], object]) -> Tool[P, R]:
        """Under one condition more."""
        return self._changed(conditions=(*self.conditions, condition))

    def running(self, remit: str, inside: Mapping[str, Tool[..., Any]]) -> Tool[P, R]:
        """As the tool that a remit of this name and with these tools is: a call is a run of it."""
        return self._changed(remit=remit, inside=inside)

    def unclaimed(self) -> Tool[P, R]:
        """Without its resources, which hold nobody back in another process: for tests that play two of them."""
        return self._changed(_resources=(), _footprint=Footprint(self._footprint.writes, None))

    def _changed(self, **changes: Any) -> Tool[P, R]:
        changed = copy.copy(self)
        vars(changed).update(changes)
        return changed

    @staticmethod
    def from_schema(
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        handler: Callable[Q, S],
        effect: EffectName | None = None,
        timeout: float = 60,
        retries: int = 0,
        resource: str | Sequence[str] | None = None,
        deterministic: bool = False,
        polling: bool = False,
        eager: bool = True,
        ends_run: bool = False,
        max_result_tokens: int = 2_000,
        usd: Decimal | float | str = 0,
        tokens: int = 0,
        expires: float | None = None,
        errors: Literal["shown", "hidden"] = "shown",
    ) -> Tool[Q, S]:
        """A tool that brings its own JSON Schema; the options are those of `@tool`.

        `handler` takes the arguments as one dict and, if it has a parameter annotated `Call`, that.
        Shape: in the dict a number is an int where the schema demands one, a float where a double
        holds its digits, else a `Decimal`; defaults in the schema are the handler's business.
        Errors: `ConfigurationError` for a schema that cannot be compiled or points outside of itself.
        """
        check_tool_name(name)
        check_description(name, description)
        check_function(f"the handler of tool {name!r}", handler)
        from remit.tools.own_schema import OwnSchemaReader
        from remit.tools.signature import read_handler

        schema = own_schema(parameters)
        return Tool(
            handler,
            name=name,
            description=description,
            options=read_options(
                name,
                effect=effect,
                timeout=timeout,
                retries=retries,
                resource=resource,
                deterministic=deterministic,
                polling=polling,
                eager=eager,
                ends_run=ends_run,
                max_result_tokens=max_result_tokens,
                usd=usd,
                tokens=tokens,
                expires=expires,
                errors=errors,
            ),
            parameters=schema,
            reader=OwnSchemaReader(name, schema),
            computed=(),
            call_parameter=read_handler(handler, name, names_around(inspect.currentframe())),
            takes_dict=True,
        )

    @staticmethod
    def elsewhere(
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        effect: EffectName | None = None,
        expires: float | None = None,
        timeout: float = 60,
        resource: str | Sequence[str] | None = None,
        polling: bool = False,
        ends_run: bool = False,
        max_result_tokens: int = 2_000,
        usd: Decimal | float | str = 0,
        tokens: int = 0,
    ) -> Tool[..., Any]:
        """A tool that is executed elsewhere: on another machine, in a browser, by a person.

        A call goes the whole way of any call (validation, policy, approval, budget) and is then handed out: the
        run waits with a `Pending` of kind `result` that holds the exact arguments and the key, and goes on with
        what `supply` brings. It is handed out once, also over crashes; whoever executes it does so once for a
        key. After `expires` seconds, a day by default, nothing more is waited for. `timeout` is the ceiling of
        the way to there. The other options are those of `@tool`.
        Errors: `ConfigurationError`, as `from_schema`.
        """
        check_tool_name(name)
        check_description(name, description)
        from remit.tools.own_schema import OwnSchemaReader

        def not_here(**_: Any) -> Any:
            raise ConfigurationError(f"tool {name!r} is executed elsewhere: nothing is called here")

        schema = own_schema(parameters)
        return Tool(
            not_here,
            name=name,
            description=description,
            options=read_options(
                name,
                effect=effect,
                timeout=timeout,
                retries=0,
                resource=resource,
                deterministic=False,
                polling=polling,
                eager=False,
                ends_run=ends_run,
                max_result_tokens=max_result_tokens,
                usd=usd,
                tokens=tokens,
                expires=expires,
                errors="shown",
                elsewhere=True,
            ),
            parameters=schema,
            reader=OwnSchemaReader(name, schema),
            computed=(),
            call_parameter=None,
            takes_dict=True,
        )

    # --- what an author adds ---

    def summary(self, function: Summary) -> Summary:
        """Decorate what the person who approves is shown.

        The function takes any of the tool's parameters that the model fills, by name, and returns text.
        """
        check_function(f"the summary of tool {self.name!r}", function)
        parameters = tuple(named_parameters(function))
        unknown = [each for each in parameters if each not in self.parameters["properties"]]
        if unknown:
            raise ConfigurationError(
                f"the summary of tool {self.name!r} takes {', '.join(unknown)}, which the model does "
                f"not fill; it may take {', '.join(self.parameters['properties']) or 'nothing'}"
            )
        if is_async(function):
            raise ConfigurationError(
                f"the summary of tool {self.name!r} is async; it describes arguments: make it a `def`"
            )
        self._summary = function
        self._summary_parameters = parameters
        return function

    def reconcile(self, function: Reconcile) -> Reconcile:
        """Decorate what is asked when the outcome of a `confirm` call is unknown.

        The function, sync or async, takes the call's key or nothing; it returns the result that the
        call had, or None where that cannot be known.
        """
        if self.effect is not Effect.CONFIRM:
            raise ConfigurationError(
                f"tool {self.name!r} has effect {self.effect.value!r}: in doubt it is run again, so "
                'nothing asks its reconcile function. That is for effect="confirm"'
            )
        check_function(f"the reconcile function of tool {self.name!r}", function)
        if len(required_parameters(function)) > 1:
            raise ConfigurationError(
                f"the reconcile function of tool {self.name!r} takes the key of the call or nothing"
            )
        takes_key = bool(named_parameters(function))
        self.reconciler = Reconciler(function, is_async(function), takes_key)
        return function

    # --- what the dispatcher does ---

    def read_arguments(self, text: str) -> Arguments | BadArguments:
        """Read what the model wrote. Errors: none; what does not fit is a `BadArguments`."""
        return self._reader.read(text)

    def evaluate_computed(
        self, call: Call[Any]
    ) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
        """What the host fills, in the form of the journal; secrets as they are, not to be journaled.

        Shape: a dict, or a coroutine of one if any of the functions is async.
        Errors: whatever the author's functions raise, `ValueError` for a value of the wrong type.
        """
        if self._computes_async:
            return self._evaluate_async(call)
        return {each.name: each.to_json(_evaluate(each, call)) for each in self.computed}

    async def _evaluate_async(self, call: Call[Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for each in self.computed:
            value = _evaluate(each, call)
            values[each.name] = each.to_json(await value if each.is_async else value)
        return values

    def bind(
        self, values: Mapping[str, Any], computed: Mapping[str, Any], call: Call[Any] | None
    ) -> Callable[[], Any]:
        """What to call to enter the body: gives the result, or a coroutine if `is_async`.

        `values` are those of `Arguments`, `computed` what `evaluate_computed` gave. The function may
        change what it gets: for another attempt, read the arguments again.
        """
        host: dict[str, Any] = {
            each.name: each.from_json(computed[each.name]) for each in self.computed
        }
        if self._call_parameter is not None:
            host[self._call_parameter] = call
        if self._takes_dict:
            return functools.partial(self._body, values, **host)
        return functools.partial(self._body, **values, **host)

    def footprint(self, arguments: Mapping[str, Any]) -> Footprint:
        """What a call with these arguments touches.

        Give it `Arguments.values`: two spellings of one value then name one resource. It also takes
        `Arguments.given`.
        """
        if not self._resources:
            return self._footprint
        return Footprint(
            self._footprint.writes, tuple([each.fill(arguments) for each in self._resources])
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """Short for its schema, its effect and the remit that it is: another one where any of them is another."""
        whose = [self.remit] if self.remit else []
        return arguments_hash([self.parameters, self.effect.value, *whose])[:12]

    @property
    def has_secrets(self) -> bool:
        """Something in its arguments may be a `Secret`."""
        return self._reader.has_secrets

    def masked(self, given: dict[str, Any]) -> Any:
        """`Arguments.given` as people may see it."""
        return self._reader.masked(given)[0] if self.has_secrets else given

    def shown(self, arguments: Arguments) -> Mapping[str, Any]:
        """The values for `summarise`: a secret is `"***"`, and what holds one inside is JSON with that masked."""
        if not self.has_secrets:
            return arguments.values
        # What was left out has its default, and that is no JSON: enough to know whether it is a secret.
        given = {**dict.fromkeys(arguments.values), **arguments.given}
        masked: Any = self.masked(given)
        if not isinstance(masked, dict):
            return dict.fromkeys(arguments.values, MASK)
        shown = cast("dict[str, Any]", masked)
        return {
            name: value if shown[name] == given[name] else shown[name]
            for name, value in arguments.values.items()
        }

    def secrets(self, given: dict[str, Any]) -> tuple[str, ...]:
        """The secrets among the arguments, as texts that are not to be shown; short ones may stand for anything."""
        if not self.has_secrets:
            return ()
        return tuple(text for text in _texts(self._reader.masked(given)[1]) if len(text) >= 4)

    def summarise(self, values: Mapping[str, Any]) -> str:
        """One call in words, for the person who approves, at most 1,000 characters.

        Errors: whatever the author's function raises.
        """
        if self._summary is None:
            shown = ", ".join(f"{name}={_shown(value)}" for name, value in values.items())
            return cut(f"{self.name}({shown})", _MAX_SUMMARY_CHARS)
        chosen = {name: values[name] for name in self._summary_parameters if name in values}
        return cut(self._summary(**chosen), _MAX_SUMMARY_CHARS)


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: EffectName | None = None,
    timeout: float = 60,
    retries: int = 0,
    resource: str | Sequence[str] | None = None,
    deterministic: bool = False,
    polling: bool = False,
    eager: bool = True,
    ends_run: bool = False,
    max_result_tokens: int = 2_000,
    usd: Decimal | float | str = 0,
    tokens: int = 0,
    expires: float | None = None,
    errors: Literal["shown", "hidden"] = "shown",
    name: str | None = None,
    description: str | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function, method or partial a tool. `effect` has no default, and must be given.

    - `effect`: "read", "idempotent" or "confirm"; see `Effect`.
    - `timeout`: seconds, counted from when the call was asked, or approved.
    - `retries`: how often a call that raised runs again; not for `confirm`.
    - `resource`: what a call shares with others, such as `"order:{order_id}"`, or several; None is
      undeclared, `()` touches nothing shared. Placeholders are parameters.
    - `deterministic`: (read) equal calls of a run share one execution.
    - `polling`: repeating equal calls is its purpose.
    - `eager`: (read) may begin before the reply has ended.
    - `ends_run`: a result that is no error ends the run as completed, once its siblings are answered.
    - `max_result_tokens`: what the model gets of a result; the whole stays available.
    - `usd`, `tokens`: what a call costs, reserved before it runs; see `Call.charge`.
    - `expires`: (confirm) seconds until a proposal can no longer be approved, a day by default.
    - `errors`: "hidden" keeps the text of exceptions from the model.
    - `name`, `description`: default to the function's name and docstring, without its sections on
      parameters and results; the former describes the parameters.

    The model fills the parameters, strictly typed; not those annotated `Call` or marked `Computed`,
    nor those a partial has fixed. A generator is run to its end, its items are the result. Decorated
    in a class, the tool is bound by access through an instance.
    Errors: `ConfigurationError`, saying what to change.
    """
    if function is not None:
        raise ConfigurationError(EFFECT_MISSING.format(getattr(function, "__name__", "a tool")))
    local_names = names_around(inspect.currentframe())

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        tool_name = name_of(function) if name is None else name
        check_tool_name(tool_name)
        check_description(tool_name, description)
        if isinstance(function, classmethod):
            raise ConfigurationError(
                f"tool {tool_name!r} is a classmethod; make a tool of the bound method: "
                f"remit.tool(effect=...)(TheClass.{tool_name})"
            )
        options = read_options(
            tool_name,
            effect=effect,
            timeout=timeout,
            retries=retries,
            resource=resource,
            deterministic=deterministic,
            polling=polling,
            eager=eager,
            ends_run=ends_run,
            max_result_tokens=max_result_tokens,
            usd=usd,
            tokens=tokens,
            expires=expires,
            errors=errors,
        )
        from remit.tools.signature import SignatureReader, read_signature

        signature = read_signature(function, tool_name, local_names)
        parameters = published(signature.schema)
        return Tool(
            function,
            name=tool_name,
            description=signature.description if description is None else description,
            options=options,
            parameters=parameters,
            reader=SignatureReader(tool_name, signature.schema, parameters, signature.adapter),
            computed=signature.computed,
            call_parameter=signature.call_parameter,
            takes_dict=False,
        )

    return decorate


def handing_in(
    name: str, description: str, parameters: dict[str, Any], reader: ArgumentsReader
) -> Tool[..., Any]:
    """A tool whose arguments are all there is to it: they are read, and nothing is entered."""

    def entered(_: dict[str, Any]) -> None:
        raise RuntimeError(f"{name} is read, and never entered")

    options = read_options(
        name,
        effect=Effect.READ,
        timeout=60,
        retries=0,
        resource=(),
        deterministic=False,
        polling=False,
        eager=False,
        ends_run=True,
        max_result_tokens=2_000,
        usd=0,
        tokens=0,
        expires=None,
        errors="shown",
    )
    return Tool[..., Any](
        entered,
        name=name,
        description=description,
        options=options,
        parameters=parameters,
        reader=reader,
        computed=(),
        call_parameter=None,
        takes_dict=True,
    )


def _bound(function: Callable[..., Any], instance: object) -> Callable[..., Any]:
    """A method with its instance; any other function as it is."""
    if inspect.isfunction(function) and is_method(function):
        return function.__get__(instance)
    return function


def _evaluate(parameter: ComputedParameter, call: Call[Any]) -> Any:
    return parameter.fn(call) if parameter.takes_call else parameter.fn()


def _texts(value: Any) -> Iterator[str]:
    """Every text and number in it: as it is, as JSON writes it, and as Python quotes it in an error."""
    match value:
        case str():
            as_json = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
            yield from {value, *as_json, repr(value)[1:-1], ascii(value)[1:-1]}
        case dict():
            yield from _texts(list(cast("dict[str, Any]", value).values()))
        case list():
            for item in cast("list[Any]", value):
                yield from _texts(item)
        case bool() | None:
            pass
        case _:
            yield str(value)


def _shown(value: Any) -> str:
    """A value for a person: as JSON, the digits of a Decimal as they are."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str):
        return cut(json.dumps(value, ensure_ascii=False), _MAX_VALUE_CHARS)
    from pydantic_core import to_json

    return cut(to_json(value, serialize_unknown=True).decode(), _MAX_VALUE_CHARS)
