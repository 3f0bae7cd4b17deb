"""A tool: a described function, and what the loop may do with it.

`@tool` and `Tool.from_schema` check everything that can be checked before a run. A `Tool` reads
arguments, says what a call touches and binds arguments to its function; it never calls the function
for the loop. Only the dispatcher, above, enters a body. Signatures are read in `signature`,
arguments in `arguments`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
import string
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from enum import Enum, StrEnum
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

from remit.canonical import arguments_hash, canonical
from remit.errors import ConfigurationError
from remit.excerpt import MIN_RESULT_TOKENS
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
from remit.tools.schema import own_schema, published

__all__ = ["Effect", "EffectName", "Reconciler", "Tool", "handing_in", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
Self_ = TypeVar("Self_")
Summary = TypeVar("Summary", bound=Callable[..., str])
Reconcile = TypeVar("Reconcile", bound=Callable[..., Any])

DEFAULT_EXPIRES = 86_400.0
"""Seconds for which an approval is waited for: a day."""
_CENTURY = 36_525 * 86_400.0
"""Seconds; the calendar ends not far beyond."""
_MAX_NAME_CHARS = 128
_MAX_SUMMARY_CHARS = 1_000
_MAX_VALUE_CHARS = 200


class Effect(StrEnum):
    """What running a tool twice would do."""

    READ = "read"
    """Nothing: it may run again freely."""
    IDEMPOTENT = "idempotent"
    """Nothing more than running it once, as long as the key is the same."""
    CONFIRM = "confirm"
    """Harm: it runs once, after a recorded approval."""


EffectName: TypeAlias = Effect | Literal["read", "idempotent", "confirm"]


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Asks the world what became of a call whose outcome is unknown."""

    fn: Callable[..., Any]
    is_async: bool
    takes_key: bool

    def bind(self, key: str) -> Callable[[], Any]:
        """What to call for this key: gives the result, None where nobody knows, or a coroutine."""
        return functools.partial(self.fn, key) if self.takes_key else self.fn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What an author declares, checked; the fields are documented on `Tool`."""

    effect: Effect
    timeout: float
    retries: int
    resource: tuple[str, ...] | None
    deterministic: bool
    polling: bool
    eager: bool
    ends_run: bool
    max_result_tokens: int
    usd: Decimal
    tokens: int
    expires: float
    hidden_errors: bool
    elsewhere: bool = False


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
        options: _Options,
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
        self._resources = _resources(name, options.resource, parameters)
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
        _check_name(name)
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

    def running(self, remit: str) -> Tool[P, R]:
        """As the tool that a remit of this name is: a call is a run of it."""
        return self._changed(remit=remit)

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
        _check_name(name)
        _check_description(name, description)
        _check_function(f"the handler of tool {name!r}", handler)
        from remit.tools.own_schema import OwnSchemaReader
        from remit.tools.signature import read_handler

        schema = own_schema(parameters)
        return Tool(
            handler,
            name=name,
            description=description,
            options=_options(
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
        _check_name(name)
        _check_description(name, description)
        from remit.tools.own_schema import OwnSchemaReader

        def not_here(**_: Any) -> Any:
            raise ConfigurationError(f"tool {name!r} is executed elsewhere: nothing is called here")

        schema = own_schema(parameters)
        return Tool(
            not_here,
            name=name,
            description=description,
            options=_options(
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
        _check_function(f"the summary of tool {self.name!r}", function)
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
        _check_function(f"the reconcile function of tool {self.name!r}", function)
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
        raise ConfigurationError(_EFFECT_MISSING.format(getattr(function, "__name__", "a tool")))
    local_names = names_around(inspect.currentframe())

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        tool_name = _name_of(function) if name is None else name
        _check_name(tool_name)
        _check_description(tool_name, description)
        if isinstance(function, classmethod):
            raise ConfigurationError(
                f"tool {tool_name!r} is a classmethod; make a tool of the bound method: "
                f"remit.tool(effect=...)(TheClass.{tool_name})"
            )
        options = _options(
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

    options = _options(
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


# --- checks --------------------------------------------------------------------------------------

_EFFECT_MISSING = (
    "{} needs an effect: what would running it twice do? Write @remit.tool(effect=...) with\n"
    '  "read"        it changes nothing, and may run again freely\n'
    '  "idempotent"  running it again with the same call.key does nothing more than running it once\n'
    '  "confirm"     running it twice does harm: it runs once, after somebody has approved the call'
)


def _options(
    name: str,
    *,
    effect: EffectName | None,
    timeout: float,
    retries: int,
    resource: str | Sequence[str] | None,
    deterministic: bool,
    polling: bool,
    eager: bool,
    ends_run: bool,
    max_result_tokens: int,
    usd: Decimal | float | str,
    tokens: int,
    expires: float | None,
    errors: Literal["shown", "hidden"],
    elsewhere: bool = False,
) -> _Options:
    """Read the options. Errors: `ConfigurationError` for the first that cannot be."""
    if effect is None:
        raise ConfigurationError(_EFFECT_MISSING.format(f"tool {name!r}"))

    def refuse_unless(good: bool, text: str) -> None:
        if not good:
            raise ConfigurationError(f"tool {name!r}: {text}")

    refuse_unless(
        effect in tuple(Effect),
        f"effect={effect!r} is none of " + ", ".join(repr(each.value) for each in Effect),
    )
    kind = Effect(effect)
    refuse_unless(_is_duration(timeout), f"timeout={timeout!r} is no positive number of seconds")
    refuse_unless(_is_count(retries), f"retries={retries!r} is no whole number from 0 on")
    refuse_unless(
        retries == 0 or kind is not Effect.CONFIRM,
        'retries are for effect="read" and "idempotent"; a "confirm" tool runs once per approval',
    )
    refuse_unless(
        not deterministic or kind is Effect.READ, 'deterministic=True is for effect="read" only'
    )
    refuse_unless(
        _is_count(max_result_tokens) and max_result_tokens >= MIN_RESULT_TOKENS,
        f"max_result_tokens={max_result_tokens!r} shows nothing useful; give at least "
        f"{MIN_RESULT_TOKENS}",
    )
    refuse_unless(_is_count(tokens), f"tokens={tokens!r} is no whole number from 0 on")
    refuse_unless(
        expires is None or elsewhere or kind is Effect.CONFIRM,
        'expires is for effect="confirm": nothing else waits for an approval',
    )
    lifetime = DEFAULT_EXPIRES if expires is None else expires
    refuse_unless(
        _is_duration(lifetime),
        f"expires={expires!r} is no positive number of seconds, at most a century",
    )
    refuse_unless(
        errors in ("shown", "hidden"), f'errors={errors!r} is neither "shown" nor "hidden"'
    )
    try:
        price = Decimal(str(usd))
    except InvalidOperation:
        price = Decimal("NaN")
    refuse_unless(price.is_finite() and price >= 0, f"usd={usd} is no amount of US dollars")
    return _Options(
        effect=kind,
        timeout=float(timeout),
        retries=retries,
        resource=_templates(name, resource),
        deterministic=deterministic,
        polling=polling,
        eager=eager,
        ends_run=ends_run,
        max_result_tokens=max_result_tokens,
        usd=price,
        tokens=tokens,
        expires=float(lifetime),
        hidden_errors=errors == "hidden",
        elsewhere=elsewhere,
    )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_duration(value: object) -> bool:
    """Whether it is a number of seconds that the clock and the calendar can hold."""
    return type(value) in (int, float) and 0 < cast("float", value) <= _CENTURY


def _name_of(function: Callable[..., Any]) -> str:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not hasattr(inner, "__name__"):
        raise ConfigurationError(
            f"{function!r} has no name of its own; write @remit.tool(name=...)"
        )
    return inner.__name__


def _check_name(name: object) -> None:
    """What a wire has no letters for gets an alias there; what people cannot read is refused here."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _MAX_NAME_CHARS
        or not name.isprintable()
        or name != name.strip()
        or name == "<lambda>"
    ):
        suggestion = re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")[:64] or "my_tool"
        raise ConfigurationError(
            f"{name!r} is no name for a tool: it is 1 to {_MAX_NAME_CHARS} characters of one printable line. "
            f"Write name={suggestion!r}"
        )


def _check_description(name: str, description: object) -> None:
    if not isinstance(description, str | None):
        raise ConfigurationError(f"tool {name!r}: description={description!r} is no text")


def _check_function(what: str, function: object) -> None:
    if not callable(function):
        raise ConfigurationError(f"{what} is {function!r}: it takes a function")


# --- resources -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Resource:
    """The name of a resource, with places for arguments."""

    template: str
    defaults: Mapping[str, Any]
    """The parameters that it names, with the default of each; None for those always given."""

    def fill(self, arguments: Mapping[str, Any]) -> str:
        return self.template.format_map(
            {name: _plain(arguments.get(name, default)) for name, default in self.defaults.items()}
        )


def _templates(tool_name: str, resource: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if resource is None:
        return None
    given = (resource,) if isinstance(resource, str) else resource
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(
            f"tool {tool_name!r}: resource={resource!r} is no text and no list of texts"
        )
    return tuple(given)


def _resources(
    tool_name: str, templates: tuple[str, ...] | None, parameters: Mapping[str, Any]
) -> tuple[_Resource, ...]:
    """The templates, or nothing if none of them depends on the arguments."""
    resources = [_resource(tool_name, each, parameters) for each in templates or ()]
    return tuple(resources) if any(each.defaults for each in resources) else ()


def _resource(tool_name: str, template: str, parameters: Mapping[str, Any]) -> _Resource:
    where = f"tool {tool_name!r}: resource {template!r}"
    properties: Mapping[str, Any] = parameters["properties"]
    defaults: dict[str, Any] = {}
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(f"{where} is no template: {error}") from error
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if form or conversion or name not in properties:
            raise ConfigurationError(
                f"{where} names {name!r}: a placeholder is the bare name of a parameter that the "
                f"model fills ({', '.join(properties) or 'there is none'})"
            )
        if name not in parameters.get("required", ()) and "default" not in properties[name]:
            raise ConfigurationError(
                f"{where} names {name!r}, which a call may leave out; make it required or give it a "
                "default"
            )
        defaults[name] = properties[name].get("default")
    return _Resource(template, defaults)


def _plain(value: Any) -> str:
    """A value as a part of a name; equal values give equal text."""
    match value:
        case Enum():
            return _plain(value.value)
        case str():
            return value
        case bool() | int() | float() | Decimal() | None | list() | dict():
            return canonical(value)
        case _:
            return str(value)


# --- small parts ---------------------------------------------------------------------------------


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
