"""Names and ids that a wire takes: legal, one-to-one, and the same whatever else there is."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remit.models.wires.aliases import IdRule, Ids, Keys, NameRule, alias

NAMES = NameRule()
KEYS = NameRule("A-Za-z0-9_.-")
ALL_NAMES = st.text(max_size=140)


@given(st.sets(ALL_NAMES, max_size=30))
@example({"a.b", "a/b", "a_b", "größe", "", "x" * 64, "x" * 65, "x" * 64 + "y"})
def test_aliases_are_legal_and_one_for_each_name(names: set[str]) -> None:
    """case 22: whatever the names, no two meet, and a wire takes each."""
    made = {name: alias(name, NAMES) for name in names}
    assert len(set(made.values())) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each) for each in made.values())


@given(ALL_NAMES)
def test_no_name_can_pass_for_the_alias_of_another(name: str) -> None:
    """case 22: a genuine name that spells an alias gets an alias of its own."""
    taken = alias(name, NAMES)
    if taken != name:
        assert alias(taken, NAMES) not in {taken, name}


def test_a_legal_name_stays_and_an_alias_can_be_read() -> None:
    assert alias("get_organization", NAMES) == "get_organization"
    assert alias("x" * 64, NAMES) == "x" * 64
    assert alias("files/read", NAMES) == "files_read_2b733164e15b55"
    assert alias("größe", KEYS).startswith("gr__e_")


# --- keys ----------------------------------------------------------------------------------------

PARAMETERS = Keys(["größe", "filter[id]", "filter_id_", "ключ"], KEYS)


def test_parameters_map_there_and_back_at_every_depth() -> None:
    """case 21: distinct, legal, and exact on the way back, in lists too."""
    given = {"größe": 1, "list": [{"filter[id]": 2, "filter_id_": 3, "ключ": [{"größe": 4}]}]}
    wire = PARAMETERS.to_wire(json.dumps(given))
    first = json.loads(wire)["list"][0]
    assert len(first) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key) for key in (*json.loads(wire), *first))
    assert json.loads(PARAMETERS.from_wire(wire)) == given


def test_a_model_that_uses_the_own_name_is_understood() -> None:
    """case 21: what is no alias stays."""
    assert PARAMETERS.from_wire('{"größe": 1}') == '{"größe": 1}'


def test_nothing_but_keys_changes_in_a_text() -> None:
    """case 21, C2: numbers keep their digits, strings their escapes, white space its place."""
    wire = alias("größe", KEYS)
    text = f'{{ "{wire}" : 1.10, "t":"{wire}\\u00df\\"größe\\": ", "n":1e400 ,\n"e":-0.0}}'
    assert PARAMETERS.from_wire(text) == text.replace(f'"{wire}" :', '"größe" :', 1)


def test_an_escaped_key_is_a_key() -> None:
    assert PARAMETERS.to_wire('{"gr\\u00f6\\u00dfe": 1}') == f'{{"{alias("größe", KEYS)}": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"größe": 1, "größe": 2}',
        '{"größe": ',
        "",
        '{"größe": NaN}',
        '{"größe": 1} and more',
        "[" * 200,
        f'{{"größe": 1, "{alias("größe", KEYS)}": 2}}',
    ],
)
def test_a_text_that_would_be_refused_stays_as_it_is(text: str) -> None:
    """case 21, C2: cut and doubled arguments are refused where they are dispatched, not mended here."""
    assert PARAMETERS.from_wire(text) == text
    assert PARAMETERS.to_wire(text) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["größe", "filter[id]", "filter_id_", "ключ", "a"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_every_value_comes_back(value: object, ascii_only: bool) -> None:
    """case 21: also where it could belong to several branches of a union, for keys know no place."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json.loads(PARAMETERS.from_wire(PARAMETERS.to_wire(text))) == value


# --- ids -----------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=30), max_size=30))
def test_ids_are_legal_stable_and_one_for_each(own: list[str]) -> None:
    """case 08: nine letters and digits, as one provider wants them."""
    ids = Ids(IdRule("A-Za-z0-9", 9, 9))
    wire = [ids.wire(each) for each in own]
    assert wire == [ids.wire(each) for each in own]
    assert len(set(wire)) == len(set(own))
    assert all(re.fullmatch(r"[A-Za-z0-9]{9}", each) for each in wire)


def test_an_id_does_not_depend_on_others() -> None:
    """case 08, X1: what was sent stays, whatever comes before it after a restart."""
    rule = IdRule("A-Za-z0-9", 9, 9)
    one, other = Ids(rule), Ids(rule)
    other.wire("toolu_01A")
    assert one.wire("call_7") == other.wire("call_7")
    assert one.wire("abcdefghi") == "abcdefghi"


def test_an_id_that_spells_the_alias_of_another_gets_its_own() -> None:
    rule = IdRule("A-Za-z0-9", 9, 9)
    taken = Ids(rule).wire("call_7")
    ids = Ids(rule)
    assert ids.wire("call_7") == taken
    assert ids.wire(taken) not in {taken, "call_7"}
