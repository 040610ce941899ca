"""The smallest thing that can be learnt: write a letter. An untrained policy does it by luck, so rewards vary from the start.

Each episode has two turns; what the policy writes in the second one is its answer, paid when it holds the letter. A policy
of thirty thousand random weights learns it in a few dozen steps, which makes it the environment for tests of whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sanderling.environment import Environment
from sanderling.errors import TaskError
from sanderling.harness.codec import PlainCodec
from sanderling.harness.protocol import Codec, Conversation, Reply
from sanderling.harness.tokenizer import Tokenizer
from sanderling.sandbox.protocol import Sandbox, SandboxBackend
from sanderling.types import Evidence, Graded, Limits, StopReason, Submission, Task

ANSWER = "answer.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTasks:
    """Tasks that differ in a number in the prompt only."""

    count: int = 16

    def splits(self) -> tuple[str, ...]:
        return ("train", "held-out")

    def ids(self, split: str) -> Sequence[str]:
        if split not in self.splits():
            raise TaskError(f"letters has no split {split!r}; it has train and held-out")
        return [f"letters/{split}/{number}" for number in range(self.count)]

    def get(self, task_id: str) -> Task:
        return Task(
            id=task_id,
            prompt=f"Task {task_id.rpartition('/')[2]}: write an e.",
            base={ANSWER: b""},
            editable=(ANSWER,),
            limits=Limits(max_turns=3, max_action_tokens=4, max_context_tokens=256),
        )


class LetterHarness:
    """Any text is a valid action; the second one is the answer."""

    def prompt(self, task: Task) -> str:
        return task.prompt

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        return _Letters(sandbox)

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return _OpenCodec(tokenizer)


class _OpenCodec(PlainCodec):
    """Random weights hardly ever emit the end marker, so every token may be the last one of an action of one token."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return tuple(range(320))


class _Letters:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._turns = 0

    def fork(self, sandbox: Sandbox) -> _Letters:
        twin = _Letters(sandbox)
        twin._turns = self._turns
        return twin

    async def act(self, text: str) -> Reply:
        self._turns += 1
        if self._turns < 2:
            return Reply(text="go on")
        await self._sandbox.write_file(ANSWER, text.encode())
        return Reply(text="", stop=StopReason.SUBMITTED)


class LetterVerifier:
    """Pays an answer with an e in it."""

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        right = b"e" in submission.files.get(ANSWER, b"")
        evidence = Evidence(
            required=1,
            executed=1,
            passed=int(right),
            canary_failed=True,
            processes_gone=True,
            channel="rule",
            isolation="none",
        )
        return Graded(reward=float(right), evidence=evidence)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        return await self.grade(task, Submission(files={ANSWER: b"e"}), backend, seed)


def letter_environment() -> Environment:
    """Return the environment; name it sanderling.testing.letters:letter_environment."""
    return Environment(
        name="letters", version="1", tasks=LetterTasks(), harness=LetterHarness(), verifier=LetterVerifier(), tools={}
    )
