"""From flags and settings to a remit: either the one that is named, or one put together from parts.

What a remit says of itself holds, until its profile or a flag says otherwise; the defaults of [run] are for
runs that are put together here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from remit.cli.content import read_bounded
from remit.cli.options import Limit, Who
from remit.cli.settings import LIMITS, Profile, Setting, Settings, checked
from remit.cli.targets import AnyRemit, AnyTool, remit_of, tools_of
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.messages import Usage
from remit.models.base import Model, Price
from remit.models.names import model, named
from remit.models.opening import check_ready
from remit.remit import Remit

__all__ = ["flagged", "model_of", "named_remit", "remit_for"]

_SCRIPTED = "scripted:"
_AS_IT_IS = ("model", "instructions")
"""Flags whose values are read where they are used, with words of their own for what is wrong."""


def remit_for(
    who: Who, limit: Limit, settings: Settings, directory: Path, *, output: Path | None = None
) -> AnyRemit:
    """The remit of a run. `output` is the file of a JSON Schema.

    Errors: `ConfigurationError` for what is wrong or contradicts itself, and for a model without its key.
    """
    remit = _remit_for(who, limit, settings, directory, output)
    check_ready(named(remit.model))
    return remit


def _remit_for(
    who: Who, limit: Limit, settings: Settings, directory: Path, output: Path | None
) -> AnyRemit:
    flags = flagged(who, limit)
    if who.remit is None:
        schema = None if output is None else _schema(output)
        return _put_together(who, {**settings.run, **flags}, settings, directory, schema)
    for flag, given in (
        ("--tools", who.tools),
        ("--instructions", who.instructions),
        ("--output", output),
    ):
        if given:
            raise ConfigurationError(
                f"{flag} and --remit: a remit brings its own; leave one of them out"
            )
    remit, profile = named_remit(who.remit, settings, directory)
    return _changed(remit, {**({} if profile is None else profile.run), **flags}, settings)


def named_remit(name: str, settings: Settings, directory: Path) -> tuple[AnyRemit, Profile | None]:
    """The remit of that target, or of the profile of that name. Errors: `ConfigurationError`."""
    profile = settings.profiles.get(name)
    if profile is None:
        try:
            return remit_of(name, directory), None
        except ConfigurationError as error:
            raise _no_profile(name, settings, error) from error
    try:
        return remit_of(profile.target.value, profile.target.base or directory), profile
    except ConfigurationError as error:
        raise ConfigurationError(f"{profile.target.origin}: remits.{name}: {error}") from error


def model_of(run: Mapping[str, Setting], prices: Mapping[str, Setting]) -> Model:
    """The model that is named there, at its address and price; a script is looked for beside the file that names it."""
    setting, address = run["model"], _address(run)
    name, price = setting.value, prices.get(setting.value)
    if setting.base is not None and name.startswith(_SCRIPTED):
        name = f"{_SCRIPTED}{setting.base / name.removeprefix(_SCRIPTED)}"
    where = None if address is None else address.value
    try:
        made = listed = model(name, base_url=where)
        if price is not None:
            made = model(name, base_url=where, price=price.value)
    except ConfigurationError as error:
        told = "" if setting.origin == "--model" else f"{setting.origin}: "
        raise ConfigurationError(f"{told}{error}") from error
    if price is not None and price.of_project and _cheaper(price.value, listed.profile.price):
        raise ConfigurationError(
            f"{price.origin}: the price of {name} is below the listed one, and a file of a project may not make "
            "a limit in dollars weaker: say it in ~/.config/remit/config.toml"
        )
    return made


def _cheaper(price: Price, listed: Price | None) -> bool:
    """Whether anything costs less than it is listed with."""
    if listed is None:
        return False
    sizes = [1, *[tokens + n for of in (price, listed) for tokens, _ in of.above for n in (0, 1)]]
    usages = [
        usage
        for size in sizes
        for usage in (
            Usage(input=size),
            Usage(cache_read=size),
            Usage(cache_write=size),
            Usage(input=size, output=10**9),
        )
    ]
    return any(price.cost(usage) < listed.cost(usage) for usage in usages)


def _address(run: Mapping[str, Setting]) -> Setting | None:
    """Where the model is reached. One that stands in a file is that of the model beside it, and of no other."""
    named, address = run["model"], run.get("base_url")
    if address is not None and address.base is not None and address.origin != named.origin:
        return None
    return address


def flagged(who: Who, limit: Limit) -> dict[str, Setting]:
    """What the flags set, under the keys of [run]."""
    given = {key: getattr(limit, key) for key in LIMITS}
    given |= {"base_url": who.base_url, "model": who.model}
    given |= {"instructions": who.instructions and _text(who.instructions)}
    return {
        key: Setting(value if key in _AS_IT_IS else checked(key, value, flag), flag)
        for key, value in given.items()
        for flag in (f"--{key.replace('_', '-')}",)
        if value is not None
    }


def _put_together(
    who: Who,
    run: Mapping[str, Setting],
    settings: Settings,
    directory: Path,
    output: Mapping[str, Any] | None,
) -> AnyRemit:
    if "model" not in run:
        raise ConfigurationError(
            "no model is named: give --model, such as anthropic:claude-sonnet-5-5, or demo:support which needs no "
            "key; or set model in [run] of remit.toml. `remit doctor` shows what is there"
        )
    tools: list[AnyTool] = []
    for target in who.tools:
        tools += [tool for tool in tools_of(target, directory) if tool not in tools]
    return Remit(
        name="run",
        model=model_of(run, settings.prices),
        instructions=run["instructions"].value if "instructions" in run else "",
        tools=tools,
        limits=Limits(**{key: run[key].value for key in LIMITS if key in run}),
        output=cast("type[Any] | None", output),  # whose value is plain JSON, which no type says
    )


def _changed(remit: AnyRemit, run: Mapping[str, Setting], settings: Settings) -> AnyRemit:
    """A remit with what its profile and the flags say instead."""
    changes: dict[str, Any] = {}
    limits = {key: run[key].value for key in LIMITS if key in run}
    if limits:
        changes["limits"] = _limits(remit.limits, limits)
    if "model" in run:
        changes["model"] = model_of(run, settings.prices)
    elif "base_url" in run:
        raise ConfigurationError(
            f"{run['base_url'].origin}: base_url: a remit brings its model with it; name the one to ask there too, "
            "with --model"
        )
    if "instructions" in run:
        changes["instructions"] = run["instructions"].value
    return remit.replace(**changes) if changes else remit


def _limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    kept = {key: getattr(limits, key) for key in (*LIMITS, "deadline")}
    return Limits(**{**kept, **changes})


def _text(instructions: str) -> str:
    """What --instructions says, read from a file where it names one."""
    if not instructions.startswith("@"):
        return instructions
    try:
        return read_bounded(Path(instructions[1:]), f"--instructions {instructions}").decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--instructions {instructions}: no UTF-8 text") from error


def _schema(path: Path) -> Mapping[str, Any]:
    """A JSON Schema from a file."""
    try:
        schema = msgspec.json.decode(read_bounded(path, f"--output {path}"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--output {path}: no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigurationError(f"--output {path}: a JSON Schema is an object here")
    return cast("dict[str, Any]", schema)


def _no_profile(name: str, settings: Settings, error: ConfigurationError) -> ConfigurationError:
    """What is no target may be a profile that is misspelt."""
    from difflib import get_close_matches

    close = get_close_matches(name, settings.profiles, n=1)
    if not close:
        return error
    return ConfigurationError(
        f"there is no profile {name} (did you mean {close[0]}?), and as a target: {error}"
    )
