"""Plant each mutant, and see a test that names its promise fail.

    python scripts/mutants.py            all of them
    python scripts/mutants.py NAME ...   some
    python scripts/mutants.py --list     what there is
    python scripts/mutants.py --remember      all, and the test that noticed each is run first from then on

A mutant is `mutants/NAME.patch`, a unified diff under a header:

    # promise: C2
    # tests: tests/test_arguments.py tests/test_gate.py::test_the_gate_reads_first
    # says: unknown argument names are dropped instead of refused

Of a file the tests that name the promise are run; a test that is given by name must name it, and one of
its cases, which alone is run then, may stand in brackets behind it. A mutant is caught when one of them
fails. It is an error, and no catch, if the patch does not apply, if what failed fails without it too, if
pytest cannot collect the tests or if what fails is a name or an import that the patch itself broke.
Running out of time is a catch only under `# timeout: ok`.

Nothing is planted in the working tree: every mutant has a copy of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from forked import Ended, pytest_in, side_by_side, warm_up
from promises import Mutant, Test, read_mutants, read_tests

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60
"""What one mutant may take."""
HANG_SECONDS = 20
"""What one may take that is expected to hang."""
WIDTH = (os.cpu_count() or 1) + 1
"""How many are run side by side: one more than there are cores, since some wait."""
LEFT_BEHIND = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "node_modules", "*.db", "*.db-*"
)
_FAILED = re.compile(
    r"^FAILED (?P<case>(?P<test>\S+?\.py::[\w:]+)(?:\[.*?\])?)(?: - (?P<error>\w+).*)?$",
    re.MULTILINE,
)
_QUIETLY = (
    "-x",
    "-rf",
    "--tb=line",
    "--color=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:llmock",
)
_ENVIRONMENT = {
    "HYPOTHESIS_PROFILE": "mutants",
    "COLUMNS": "300",  # else pytest cuts the lines that are read here
    "REMIT_SCHEDULES": "4000",  # what is noticed at all is noticed among the first
}
_WARM = "ignore::pytest.PytestAssertRewriteWarning"
"""Nothing that is loaded before has assertions of ours."""
_IN_THE_COPY = (*_QUIETLY, "-p", "no:xdist", "-W", _WARM)
_DOES_NOT_APPLY = 71
_BROKEN = {"ImportError", "IndentationError", "ModuleNotFoundError", "NameError", "SyntaxError"}


class Verdict(StrEnum):
    """What became of a mutant. Everything but `CAUGHT` fails the run."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    HUNG = "HUNG"
    BROKEN = "BROKEN"
    """The patch or its header is wrong; nothing was shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table."""

    mutant: Mutant
    verdict: Verdict
    detail: str
    """The test that noticed, or what went wrong: a first line for the table, perhaps more below."""
    seconds: float = 0.0
    failed: str = ""
    """The test that noticed, with what it was given; empty where it was none."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant mutants and see the tests notice.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutants")
    parser.add_argument("--list", action="store_true", help="list the mutants, plant none")
    parser.add_argument(
        "--remember", action="store_true", help="write the test that noticed first in each header"
    )
    options = parser.parse_args(arguments)

    mutants = {mutant.name: mutant for mutant in read_mutants(ROOT / "mutants")}
    if unknown := [name for name in options.names if name not in mutants]:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    chosen = [mutants[name] for name in options.names or mutants]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:44} {mutant.promise:8} {mutant.says}")
        return 0
    if not chosen:
        print("no mutants: nothing is shown")
        return 1

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="remit-mutants-") as directory:
        findings = plant_all(chosen, Path(directory).resolve())
    for finding in findings:
        headline = finding.detail.partition("\n")[0]
        print(
            f"{finding.verdict:9} {finding.mutant.promise:8} {finding.mutant.name:44} "
            f"{finding.seconds:5.1f} s  {headline}"
        )
    for finding in findings:
        if "\n" in finding.detail:
            print(f"\n{finding.mutant.name}:\n{textwrap.indent(finding.detail, '    ')}")
    if options.remember:
        for finding in findings:
            remember(finding)
    uncaught = sum(finding.verdict is not Verdict.CAUGHT for finding in findings)
    print(
        f"{len(findings) - uncaught} of {len(findings)} mutants caught "
        f"in {time.monotonic() - started:.0f} s"
    )
    return 1 if uncaught else 0


def plant_all(mutants: Sequence[Mutant], workshop: Path) -> list[Finding]:
    """Run each mutant in a copy of its own. Shape: one finding per mutant, in their order."""
    tests = {test.id: test for test in read_tests(ROOT)}
    selections = {mutant.name: select(mutant, tests) for mutant in mutants}
    findings = {
        mutant.name: Finding(mutant, Verdict.BROKEN, selection)
        for mutant in mutants
        if isinstance(selection := selections[mutant.name], str)
    }
    sound = {
        mutant: selection
        for mutant in mutants
        if not isinstance(selection := selections[mutant.name], str)
    }
    pristine = workshop / "pristine"
    shutil.copytree(ROOT, pristine, ignore=LEFT_BEHIND)
    warm_up()
    there = compile_once(pristine, sound.values(), workshop)

    def examine(mutant: Mutant) -> int:
        return plant(mutant, sound[mutant], pristine, workshop / mutant.name)

    for ended in side_by_side(
        sorted(sound, key=lambda mutant: not mutant.may_hang),  # nobody waits for these at the end
        examine,
        folder=workshop,
        width=WIDTH,
        seconds=allowed,
    ):
        findings[ended.work.name] = judge(ended)
        shutil.rmtree(workshop / ended.work.name, ignore_errors=True)
    noticed = {
        found.failed if found.failed in there else found.detail  # a mutant may rename what is given
        for found in findings.values()
        if found.failed
    }
    if noticed and (fault := without_mutants(pristine, sorted(noticed))):
        print(fault)
        detail = "of the tests that noticed, some fail without any mutant (see above)"
        return [Finding(mutant, Verdict.BROKEN, detail) for mutant in mutants]
    return [findings[mutant.name] for mutant in mutants]


def compile_once(
    pristine: Path, selections: Iterable[Sequence[str]], workshop: Path
) -> frozenset[str]:
    """Have what is not broken compiled, the tests as pytest rewrites them: the copies take it over.

    Gives what there is to run in the files of the tests, as pytest names it.
    """
    files = sorted({test.partition("::")[0] for selection in selections for test in selection})

    def collect(share: Sequence[str]) -> int:
        sys.dont_write_bytecode = False
        return pytest_in(pristine, ["--collect-only", *_IN_THE_COPY, *share], _ENVIRONMENT)

    shares = [share for start in range(WIDTH) if (share := files[start::WIDTH])]
    collected = side_by_side(
        shares, collect, folder=workshop, width=WIDTH, seconds=lambda _: SECONDS
    )
    # What cannot be collected is told by the mutants that need it.
    return frozenset(line for ended in collected for line in ended.output.splitlines())


def without_mutants(pristine: Path, tests: Sequence[str]) -> str:
    """Run the tests that noticed on what is not broken. What is wrong with that, empty where they pass."""
    command = [sys.executable, "-m", "pytest", *_QUIETLY, "-n", "auto", *tests]
    run = subprocess.run(
        command,
        cwd=pristine,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(pristine / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return "" if run.returncode == 0 else _tail(run.stdout + run.stderr)


def select(mutant: Mutant, tests: Mapping[str, Test]) -> list[str] | str:
    """The ids of the tests to run, or what is wrong with the header."""
    selection: list[str] = []
    for choice in mutant.tests:
        found = [
            test
            for test in tests.values()
            if test.id == choice.partition("[")[0]
            or (test.path == choice and mutant.promise in test.promises)
        ]
        if not found:
            return f"{choice} is no test, or no file with a test that names {mutant.promise}"
        if any(mutant.promise not in test.promises for test in found):
            return f"{choice} does not name {mutant.promise}"
        selection += [choice] if "[" in choice else [test.id for test in found]
    of_cases = {choice.partition("[")[0] for choice in selection if "[" in choice}
    return [choice for choice in dict.fromkeys(selection) if choice not in of_cases]


def remember(finding: Finding) -> None:
    """Have the test that noticed a mutant run first from now on."""
    noticed, tests = finding.detail, finding.mutant.tests
    if not finding.failed or tests[0] in (noticed, finding.failed):
        return
    wanted = " ".join(dict.fromkeys([noticed, *tests]))
    text = finding.mutant.path.read_text("utf-8")
    finding.mutant.path.write_text(
        re.sub(r"^# tests:.*$", f"# tests: {wanted}", text, count=1, flags=re.MULTILINE), "utf-8"
    )


def allowed(mutant: Mutant) -> float:
    """Seconds that its tests may take."""
    return HANG_SECONDS if mutant.may_hang else SECONDS


def plant(mutant: Mutant, tests: Sequence[str], pristine: Path, copy: Path) -> int:
    """Break a copy and run the tests there; in a process of its own. Returns its exit code."""
    # Links are as good as copies here: what is patched is written anew, and so is what is compiled of it.
    shutil.copytree(pristine, copy, copy_function=os.link)
    applied = subprocess.run(
        ["git", "apply", "-C1", "--recount", "--whitespace=nowarn", str(mutant.path)],
        cwd=copy,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if applied.returncode:
        print(applied.stderr.strip())
        return _DOES_NOT_APPLY
    return pytest_in(copy, [*_IN_THE_COPY, *tests], _ENVIRONMENT)


def judge(ended: Ended[Mutant]) -> Finding:
    """What a run says about its mutant. The tests were chosen to name the promise."""
    mutant, output = ended.work, ended.output

    def found(verdict: Verdict, detail: str, failed: str = "") -> Finding:
        return Finding(mutant, verdict, detail, ended.seconds, failed)

    if ended.code is None:
        verdict = Verdict.CAUGHT if mutant.may_hang else Verdict.HUNG
        return found(verdict, f"out of time after {allowed(mutant)} s")
    if ended.code == 0:
        return found(Verdict.SURVIVED, mutant.says)
    if ended.code == _DOES_NOT_APPLY:
        return found(Verdict.BROKEN, f"does not apply\n{_tail(output)}")
    failed = _FAILED.search(output)
    if ended.code != 1 or not failed:
        return found(Verdict.BROKEN, f"pytest ended with {ended.code}\n{_tail(output)}")
    if failed["error"] in _BROKEN:
        said = f"{failed['test']} fails by {failed['error']}: the patch is at fault"
        return found(Verdict.BROKEN, said)
    return found(Verdict.CAUGHT, failed["test"], failed["case"])


def _tail(output: str) -> str:
    return output.strip()[-2000:]


if __name__ == "__main__":
    sys.exit(main())
