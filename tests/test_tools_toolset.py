"""From what a caller lists as tools to the table by which calls are looked up."""

import pytest

from remit.errors import ConfigurationError
from remit.testing import run_virtual
from remit.tools import StaticTools, resolve, tool


@tool(effect="read")
def ping() -> None: ...


@tool(effect="read", name="ping")
def other() -> None: ...


class Shop:
    @tool(effect="read")
    def look(self) -> None: ...


def test_tools_are_found_by_name_in_the_order_given() -> None:
    look = Shop().look
    assert resolve([look, ping]) == {"look": look, "ping": ping}
    assert list(resolve([look, ping])) == ["look", "ping"]


def test_two_tools_of_one_name_are_refused_by_the_names_of_both() -> None:
    with pytest.raises(ConfigurationError, match=r"'ping'.*\.ping and .*\.other"):
        resolve([ping, other])


def test_one_tool_listed_twice_is_one_tool() -> None:
    assert list(resolve([ping, ping])) == ["ping"]


def test_a_plain_function_is_refused_and_told_how_to_become_a_tool() -> None:
    def plain() -> None: ...

    with pytest.raises(ConfigurationError, match=r"plain.*@remit\.tool\(effect="):
        resolve([plain])
    with pytest.raises(ConfigurationError, match="no tool"):
        resolve(["ping"])


def test_a_method_without_its_instance_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Shop\.look"):
        resolve([Shop.look])


def test_a_static_toolset_yields_what_it_was_given() -> None:
    assert run_virtual(StaticTools((ping,)).tools()) == (ping,)
