"""Context folding as an action: the policy writes a summary, and its context begins anew with the task and that summary.

What was said before stays in a row of its own, with the same reward and advantage; the episode counts once (see
`credit.episodes`). The world stays as it is, and so does what the harness remembers of it.
"""

from __future__ import annotations

import copy

from sanderling.harness.protocol import BadCall, Codec, Conversation, Fold, Harness, Reply
from sanderling.harness.replies import refusal
from sanderling.harness.repository_tools import Workbench
from sanderling.harness.summaries import Summaries
from sanderling.harness.tokenizer import Tokenizer
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.harness.tool_calls import without_thought
from sanderling.harness.tools import CallError, declare
from sanderling.sandbox.protocol import Sandbox
from sanderling.types import Gradient, Task

FOLD = "fold|"
_HOW = (
    "\n\nWhen the conversation gets long, answer with fold| and a summary of what you know and did. The conversation then "
    "begins anew with this task and your summary; files stay as they are."
)


def folded_prompt(prompt: str, summary: str) -> str:
    """Return the text with which the context begins anew."""
    return f"{prompt}\n\nYour summary of what happened so far:\n{summary}"


def with_folding(harness: Harness, summaries: Summaries) -> Harness:
    """Return the harness with `fold` as a further action: a tool where it has tools, else a line that begins with fold|."""
    if summaries is Summaries.OFF:
        return harness
    gradient = Gradient.FULL if summaries is Summaries.TRAINED else Gradient.NONE
    if isinstance(harness, ToolCallHarness):
        return _with_tool(harness, gradient)
    return FoldingHarness(harness, gradient)


class FoldingHarness:
    """Implements `Harness` around another one whose actions are text."""

    def __init__(self, inner: Harness, gradient: Gradient) -> None:
        self.inner = inner
        self.gradient = gradient

    def prompt(self, task: Task) -> str:
        return f"{self.inner.prompt(task)}{_HOW}"

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        return _Conversation(self.inner.start(task, sandbox), self.gradient)

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return self.inner.codec(tokenizer)


class _Conversation:
    def __init__(self, inner: Conversation, gradient: Gradient) -> None:
        self._inner = inner
        self._gradient = gradient

    async def act(self, text: str) -> Reply:
        said = without_thought(text).lstrip()
        if not said.startswith(FOLD):
            return await self._inner.act(text)
        return _fold(said.removeprefix(FOLD), self._gradient)


def _fold(summary: str, gradient: Gradient) -> Reply:
    if not summary.strip():
        return refusal(CallError(kind=BadCall.MISSING_ARGUMENT, message="fold needs a summary"))
    return Reply(text="folded", source="system", fold=Fold(summary=summary.strip(), gradient=gradient))


class _Toolbox:
    """The tools of an episode, and `fold`."""

    def __init__(self, inner: object, gradient: Gradient) -> None:
        self._inner = inner
        self._gradient = gradient

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def fold(self, summary: str) -> Reply:
        """Begin the conversation anew with the task and a summary, when it gets long. Files stay as they are.

        Args:
            summary: all that you need to go on: what you know, what you did, what is left.
        """
        return _fold(summary, self._gradient)


def _with_tool(harness: ToolCallHarness, gradient: Gradient) -> ToolCallHarness:
    inner = harness.toolbox

    def toolbox(bench: Workbench) -> object:
        return _Toolbox(inner(bench), gradient)

    folding = copy.copy(harness)
    folding.toolbox = toolbox
    folding.tools = {**harness.tools, "fold": declare(_Toolbox.fold)}
    return folding
