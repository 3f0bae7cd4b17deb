"""The manifest, the tests and the mutants hold each other up: nothing is promised by one alone."""

from pathlib import Path

from promises import read_manifest, read_mutants, read_tests

ROOT = Path(__file__).resolve().parent.parent
PROMISES = read_manifest(ROOT / "tests" / "promises.toml")
TESTS = read_tests(ROOT)
MUTANTS = read_mutants(ROOT / "mutants")


def test_every_promise_is_named_by_a_test() -> None:
    named = {name for test in TESTS for name in test.promises}
    assert [promise.id for promise in PROMISES if promise.id not in named] == []


def test_every_promise_that_a_test_names_is_in_the_manifest() -> None:
    known = {promise.id for promise in PROMISES}
    assert [(test.id, name) for test in TESTS for name in test.promises if name not in known] == []


def test_every_promise_has_a_mutant() -> None:
    attacked = {mutant.promise for mutant in MUTANTS}
    bare = [
        promise.id for promise in PROMISES if promise.id not in attacked and not promise.is_case
    ]
    assert bare == []


def test_every_mutant_attacks_a_promise_through_tests_that_exist() -> None:
    known = {promise.id for promise in PROMISES}
    known |= {test.id for test in TESTS} | {test.path for test in TESTS}
    lost = [
        (mutant.name, place)
        for mutant in MUTANTS
        for place in (mutant.promise, *(test.partition("[")[0] for test in mutant.tests))
        if place not in known
    ]
    assert lost == []


def test_test_names_are_unique_within_their_file() -> None:
    """A second function of the same name would silently replace the first."""
    ids = [test.id for test in TESTS]
    assert sorted({name for name in ids if ids.count(name) > 1}) == []


def test_every_sentence_of_the_manifest_is_one_and_names_a_known_source() -> None:
    for promise in PROMISES:
        assert promise.says.endswith("."), promise
        assert promise.source in {"protocol", "remit", "report"}, promise


def test_a_docstring_names_promises_only_at_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        "def test_two():\n    '''C2, case 14: both.'''\n"
        "class TestKind:\n    async def test_one(self):\n        '''T1: in a class.'''\n"
        "def test_none():\n    '''Not here, though T1: is mentioned.'''\n"
        "def helper():\n    '''T2: no test at all.'''\n"
    )
    assert [(test.name, test.promises) for test in read_tests(tmp_path)] == [
        ("test_two", ("C2", "case 14")),
        ("TestKind::test_one", ("T1",)),
        ("test_none", ()),
    ]
