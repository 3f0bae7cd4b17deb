"""Plant each mutant, and see a test that names its promise fail.

    python scripts/mutants.py            all of them
    python scripts/mutants.py NAME ...   some
    python scripts/mutants.py --list     what there is

A mutant is `mutants/NAME.patch`, a unified diff under a header:

    # promise: C2
    # tests: tests/test_arguments.py tests/test_gate.py::test_the_gate_reads_first
    # says: unknown argument names are dropped instead of refused

Of a file the tests that name the promise are run; a test that is given by name must name it. A
mutant is caught when one of them fails. It is an error, and no catch, if the patch does not apply,
if the tests fail without it, if pytest cannot collect them or if what fails is a name or an import
that the patch itself broke. Running out of time is a catch only under `# timeout: ok`.

Nothing is planted in the working tree: every mutant has a copy of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from promises import Mutant, Test, read_mutants, read_tests

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60
"""What one mutant may take."""
LEFT_BEHIND = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "node_modules", "*.db", "*.db-*"
)
_FAILED = re.compile(
    r"^FAILED (?P<test>\S+?\.py::[\w:]+).*?(?: - (?P<error>\w+).*)?$", re.MULTILINE
)
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


@dataclass(frozen=True, slots=True)
class Run:
    """How pytest ended."""

    code: int | None
    """Its exit code; None if it ran out of time."""
    output: str

    @property
    def tail(self) -> str:
        return self.output.strip()[-2000:]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant mutants and see the tests notice.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutants")
    parser.add_argument("--list", action="store_true", help="list the mutants, plant none")
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
    everything = sorted({test for selection in sound.values() for test in selection})
    if everything:
        unmutated = pytest(pristine, everything, seconds=SECONDS * 10)
        if unmutated.code != 0:
            print(unmutated.tail)
            detail = "the tests of the mutants fail without any mutant (see above)"
            return [Finding(mutant, Verdict.BROKEN, detail) for mutant in mutants]

    def examine(mutant: Mutant) -> Finding:
        return plant(mutant, sound[mutant], pristine, workshop / mutant.name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for finding in pool.map(examine, sound):
            findings[finding.mutant.name] = finding
    return [findings[mutant.name] for mutant in mutants]


def select(mutant: Mutant, tests: Mapping[str, Test]) -> list[str] | str:
    """The ids of the tests to run, or what is wrong with the header."""
    selection: list[str] = []
    for choice in mutant.tests:
        found = [
            test
            for test in tests.values()
            if test.id == choice or (test.path == choice and mutant.promise in test.promises)
        ]
        if not found:
            return f"{choice} is no test, or no file with a test that names {mutant.promise}"
        if any(mutant.promise not in test.promises for test in found):
            return f"{choice} does not name {mutant.promise}"
        selection += [test.id for test in found]
    return selection


def plant(mutant: Mutant, tests: Sequence[str], pristine: Path, copy: Path) -> Finding:
    """Break a copy, run the tests there, judge."""
    started = time.monotonic()
    shutil.copytree(pristine, copy)
    applied = subprocess.run(
        ["git", "apply", "-C1", "--recount", "--whitespace=nowarn", str(mutant.path)],
        cwd=copy,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if applied.returncode:
        return Finding(mutant, Verdict.BROKEN, f"does not apply\n{applied.stderr.strip()}")
    verdict, detail = judge(mutant, pytest(copy, tests, seconds=SECONDS))
    shutil.rmtree(copy)
    return Finding(mutant, verdict, detail, time.monotonic() - started)


def judge(mutant: Mutant, run: Run) -> tuple[Verdict, str]:
    """What a run says about its mutant. The tests were chosen to name the promise."""
    if run.code is None:
        verdict = Verdict.CAUGHT if mutant.may_hang else Verdict.HUNG
        return verdict, f"out of time after {SECONDS} s"
    if run.code == 0:
        return Verdict.SURVIVED, mutant.says
    failed = _FAILED.search(run.output)
    if run.code != 1 or not failed:
        return Verdict.BROKEN, f"pytest ended with {run.code}\n{run.tail}"
    if failed["error"] in _BROKEN:
        return Verdict.BROKEN, f"{failed['test']} fails by {failed['error']}: the patch is at fault"
    return Verdict.CAUGHT, failed["test"]


def pytest(directory: Path, tests: Sequence[str], *, seconds: float) -> Run:
    """Run tests of a copy against the sources beside them, up to the first failure."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(directory / "src"),
        "HYPOTHESIS_PROFILE": "mutants",
        "COLUMNS": "300",  # else pytest cuts the lines that are read here
    }
    command = [sys.executable, "-m", "pytest", "-x", "-rf", "--tb=line", "--color=no"]
    process = subprocess.Popen(
        [*command, "-p", "no:cacheprovider", *tests],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return Run(None, output)
    return Run(process.returncode, output)


if __name__ == "__main__":
    sys.exit(main())
