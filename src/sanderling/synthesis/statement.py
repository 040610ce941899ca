"""The problem statement: what was seen to fail, and where, without the line that repairs it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sanderling.engine.chat_endpoint import ChatEndpoint
from sanderling.synthesis.suite_runs import Failure
from sanderling.synthesis.trials import definition_of

_FAILURES = 2  # that are told
_MESSAGE = 600  # characters of each
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")  # of objects: another one in each run
_ASK = (
    "You report bugs. Below is what a failing test run of the Python project {name} showed, and the tests that failed. "
    "Write the bug report that a user of the library would file: what they called, what they expected, what happened "
    "instead. Don't name the tests, don't propose a fix, write no patch. Plain Markdown, at most 150 words."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """What is known of a bug from outside."""

    name: str  # of the code base
    version: str
    failures: Sequence[tuple[str, Failure]]  # by test id
    hidden: Collection[str]  # definitions of tests that the workspace doesn't hold
    sources: Collection[str]  # source files
    tests: str  # source of the failing test functions' files, for a model that writes the statement


def template(symptoms: Symptoms) -> str:
    """Return a statement made of the failures: exception, message and the source frame in which it was raised."""
    failures = sorted(symptoms.failures, key=lambda pair: (definition_of(pair[0]) not in symptoms.hidden, pair[0]))
    told = [_told(name, failure, symptoms) for name, failure in failures[:_FAILURES]]
    more = len(failures) - len(told)
    lines = [_opening(symptoms), "", "What was seen:", "", *told]
    if more > 0:
        lines.append(f"{more} more test{'s fail' if more > 1 else ' fails'} in the same way.\n")
    return "\n".join([*lines, _closing()])


def bare(symptoms: Symptoms) -> str:
    """Return a statement without messages: the exceptions' types, and which visible tests fail."""
    kinds = sorted({failure.type for _, failure in symptoms.failures})
    seen = [definition_of(name) for name, _ in symptoms.failures if definition_of(name) not in symptoms.hidden]
    lines = [_opening(symptoms), "", f"Tests fail with {', '.join(f'`{kind}`' for kind in kinds)}."]
    lines += [f"One of them is `{seen[0]}`."] if seen else ["They are not a part of the workspace."]
    return "\n".join([*lines, "", _closing()])


def _opening(symptoms: Symptoms) -> str:
    shown = f"`{symptoms.name}`" + (f" {symptoms.version}" if symptoms.version else "")
    return f"Something in {shown} doesn't work as it should."


def _closing() -> str:
    return (
        "Find the cause in the source and repair it. Changes to tests don't count: hidden tests decide, and whatever "
        "works now must still work.\n"
    )


def _told(name: str, failure: Failure, symptoms: Symptoms) -> str:
    place = next((frame for frame in reversed(failure.frames) if frame[0] in symptoms.sources), None)
    where = f", raised in `{place[0]}`, line {place[1]}, in `{place[2]}`" if place else ""
    hidden = definition_of(name) in symptoms.hidden
    test = "by a test that is not in the workspace" if hidden else f"by the test `{name}`"
    text = _ADDRESS.sub("0x...", failure.message)
    message = text if len(text) <= _MESSAGE else text[:_MESSAGE] + " ..."
    block = "\n".join(f"    {line}" for line in f"{failure.type}: {message}".rstrip().splitlines())
    return f"{block}\n\nseen {test}{where}.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementModel:
    """A model behind any OpenAI-compatible endpoint, which is shown failures and tests, never the right solution."""

    url: str  # up to and without /chat/completions, such as "http://localhost:8000/v1"
    model: str
    key: str = ""
    timeout_s: float = 120.0

    async def write(self, symptoms: Symptoms) -> str:
        """Return a statement.

        Raises:
            ConfigError: the address is none. EngineError: no usable answer in two attempts.
        """
        prompt = f"{_ASK.format(name=symptoms.name)}\n\n{template(symptoms)}\n\nTests:\n\n{symptoms.tests[:8000]}"
        endpoint = ChatEndpoint(url=self.url, model=self.model, key=self.key, timeout_s=self.timeout_s)
        return f"{await endpoint.ask(prompt, temperature=0.7)}\n\n{_closing()}"
