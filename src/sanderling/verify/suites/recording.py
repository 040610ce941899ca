"""What is known of a hidden suite from runs of the right solution: which tests there are, and what they show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath

from sanderling.errors import TaskError
from sanderling.types import JsonValue, Limits
from sanderling.verify.suites.judging import Check
from sanderling.verify.suites.rewriting import Compiled, Edition, compile_tests
from sanderling.verify.suites.sites import Basis, Site

VERSION = 1


class Channel(StrEnum):
    """Who decides a test."""

    OBSERVED = "observed"  # we do: its process reports operands and holds nothing that they are compared with
    IN_PROCESS = "in_process"  # at least in part, the process that runs the code under test


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Hidden tests and how they are run."""

    tests: Mapping[
        str, bytes
    ]  # by place in the workspace; test files are compiled, others (data, helpers) lie beside them
    modules: tuple[str, ...] = (".",)  # directories of the workspace that tests import from
    limits: Limits = field(default_factory=Limits)
    env: Mapping[str, str] = field(
        default_factory=lambda: {"PYTHONHASHSEED": "random"}
    )  # of the process that runs them

    def test_files(self) -> tuple[str, ...]:
        return tuple(sorted(path for path in self.tests if is_test_file(path)))


def is_test_file(path: str) -> bool:
    """Whether a file holds tests by its name: test_*.py or *_test.py, as pytest has it, or test.py or tests.py."""
    name = PurePosixPath(path)
    stem = name.stem
    return name.suffix == ".py" and (stem in ("test", "tests") or stem.startswith("test_") or stem.endswith("_test"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTest:
    """One test of the suite, parametrised cases apart."""

    id: str  # as pytest names it
    key: str  # as the runner names it: parameters are numbered, since their text may tell what is expected
    definition: str | None  # "Class.function" in its own file; None where it is written elsewhere
    observed: tuple[Check, ...]  # what the right solution shows in the edition that holds nothing; empty: not run there
    inside: tuple[Check, ...] | None  # and in the one with all other assertions; None: has none, not run there

    @property
    def channel(self) -> Channel:
        return Channel.OBSERVED if self.inside is None else Channel.IN_PROCESS

    def checks(self, channel: Channel) -> tuple[Check, ...] | None:
        """Return what has to be seen in one edition, None where the test isn't run there."""
        return self.inside if channel is Channel.IN_PROCESS else self.observed or None

    @property
    def file(self) -> str:
        return self.key.partition("::")[0]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What grading holds of a suite. It is a part of expected.json and never enters a sandbox."""

    tests: Mapping[str, RecordedTest]  # by id
    bases: Mapping[str, Mapping[int, Basis]]  # by file: sites that are decided otherwise than the syntax allows
    whole: frozenset[str]  # test files that run as they were written
    gold_s: float  # seconds that the right solution takes for both editions
    kept: Mapping[str, int] = field(default_factory=dict)  # by id: executed checks that are not observed
    guarded: tuple[str, ...] = ()  # ids whose failure on base/ shows in a value that nobody can guess
    unusable: Mapping[str, str] = field(default_factory=dict)  # ids that can't be graded, with the reason

    @cached_property
    def lifted(self) -> float:
        """Return the share of tests that are observed, in [0, 1]."""
        observed = sum(test.channel is Channel.OBSERVED for test in self.tests.values())
        return observed / len(self.tests) if self.tests else 0.0

    @cached_property
    def lifted_checks(self) -> float:
        """Return the share of executed checks that are observed, in [0, 1], helpers and mocks not counted."""
        observed = sum(len(test.observed) for test in self.tests.values())
        return observed / total if (total := observed + sum(self.kept.values())) else 0.0

    def restrict(self, ids: Collection[str]) -> Recording:
        """Return the recording of these tests alone.

        Raises:
            TaskError: one of them isn't in it.
        """
        if missing := sorted(set(ids) - self.tests.keys()):
            why = self.unusable.get(missing[0], "no such test was seen")
            raise TaskError(f"test {missing[0]!r} isn't in the recording: {why}")
        return replace(
            self,
            tests={name: self.tests[name] for name in sorted(ids)},
            kept={name: count for name, count in self.kept.items() if name in ids},
            guarded=tuple(name for name in self.guarded if name in ids),
            unusable={},
        )

    def as_json(self) -> dict[str, JsonValue]:
        """Return what `from_json` reads."""
        return {
            "version": VERSION,
            "gold_s": round(self.gold_s, 3),
            "kept": dict(self.kept),
            "guarded": list(self.guarded),
            "whole": sorted(self.whole),
            "bases": {file: {str(n): basis.value for n, basis in sites.items()} for file, sites in self.bases.items()},
            "tests": {
                test.id: {
                    "key": test.key,
                    "definition": test.definition,
                    "observed": [check.as_json() for check in test.observed],
                    "inside": None if test.inside is None else [check.as_json() for check in test.inside],
                }
                for test in self.tests.values()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, JsonValue]) -> Recording:
        """Read a recording.

        Raises:
            TaskError: it is malformed, or of another version.
        """
        if data.get("version") != VERSION:
            raise TaskError(
                f"the recording of the hidden suite has version {data.get('version')!r}, this program reads {VERSION}; "
                "record the task again"
            )
        try:
            return cls(
                tests={name: _read_test(name, item) for name, item in data["tests"].items()},
                bases={
                    file: {int(n): Basis(basis) for n, basis in sites.items()} for file, sites in data["bases"].items()
                },
                whole=frozenset(data["whole"]),
                gold_s=float(data["gold_s"]),
                kept={name: int(count) for name, count in data["kept"].items()},
                guarded=tuple(data["guarded"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TaskError(
                f"the recording of the hidden suite is malformed: {error!r}; record the task again"
            ) from error


def _read_test(name: str, item: Mapping[str, JsonValue]) -> RecordedTest:
    return RecordedTest(
        id=name,
        key=str(item["key"]),
        definition=item["definition"],
        observed=_read_checks(item["observed"]),
        inside=None if item["inside"] is None else _read_checks(item["inside"]),
    )


def _read_checks(data: Sequence[JsonValue]) -> tuple[Check, ...]:
    return tuple(Check(site=int(site), expected=tuple(expected)) for site, *expected in data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Editions:
    """A suite's files as they go into the sandbox, one set for each channel, and what is asked of each."""

    files: Mapping[Channel, Mapping[str, bytes]]
    keys: Mapping[Channel, tuple[str, ...]]
    sites: Mapping[str, Mapping[int, Site]]  # by test file


def compile_editions(suite: Suite, recording: Recording) -> Editions:
    """Compile a suite for grading: a test stands in the editions that it is run in only.

    Raises:
        TaskError: a test file that was compiled when it was recorded can't be compiled.
    """
    files: dict[Channel, dict[str, bytes]] = {channel: dict(suite.tests) for channel in Channel}
    sites: dict[str, Mapping[int, Site]] = {}
    for path in suite.test_files():
        sites[path] = {}
        if path in recording.whole:
            files[Channel.OBSERVED][path] = b""
            continue
        tests = [test for test in recording.tests.values() if test.file == path]
        for channel in Channel:
            compiled = _edition(suite.tests[path], channel, recording.bases.get(path, {}), tests)
            files[channel][path] = compiled.source
            sites[path] = compiled.sites
    keys = {
        channel: tuple(t.key for t in recording.tests.values() if t.checks(channel) is not None) for channel in Channel
    }
    return Editions(files=files, keys=keys, sites=sites)


def _edition(source: bytes, channel: Channel, bases: Mapping[int, Basis], tests: Collection[RecordedTest]) -> Compiled:
    """Compile one file for one channel: without every test that isn't asked for there."""
    edition = Edition(channel.value)
    wanted = {test.definition for test in tests if test.checks(channel) is not None}
    try:
        known = compile_tests(source, edition).definitions
        return compile_tests(source, edition, bases, known.keys() - wanted)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise TaskError(f"a hidden test file can't be compiled: {error}; record the task again") from error
