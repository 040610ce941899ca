"""Tool calls as JSON between tags, declared and answered through the model's own chat template."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from sanderling.errors import ConfigError, UnsafePath
from sanderling.harness.chat_codec import ChatCodec
from sanderling.harness.protocol import BadCall, Codec, Conversation, Reply
from sanderling.harness.replies import merge, refusal
from sanderling.harness.repository_tools import RepositoryTools, Workbench
from sanderling.harness.tokenizer import Tokenizer
from sanderling.harness.tool_calls import ToolCall, parse_calls
from sanderling.harness.tools import CallError, Tool, declare
from sanderling.sandbox.protocol import Sandbox
from sanderling.types import Task

NAMES = ("list_files", "read_file", "search", "replace", "write_file", "run_tests", "submit")
"""The tools that are offered unless others are named; `bash` is another one."""

INSTRUCTIONS = (
    "You change files in a workspace until the task is done. Look before you change something, run the tests after it, and "
    "call submit at the end. Everything is done by calling tools; you may call several at once."
)
MAX_CALLS = 16
MAX_CALL_BYTES = 65_536
MAX_OUTPUT_BYTES = 8_192
_FILES_SHOWN = 40


class ToolCallHarness:
    """Implements `harness.protocol.Harness`.

    Args:
        test_argv: the command of the visible tests; without one, `run_tests` isn't offered.
        names: the tools that are offered, in this order; methods of the toolbox.
        toolbox: a class that is made for each episode with a `Workbench`; its async methods are the tools.
        instructions: the system message.

    Raises:
        ConfigError: the toolbox has no such tool, or one that can't be declared; without `submit` no episode could end.

    Example::

        ToolCallHarness(test_argv=("python3", "-m", "pytest", "-q"), names=("read_file", "replace", "bash", "submit"))
    """

    def __init__(
        self,
        *,
        test_argv: tuple[str, ...] = (),
        names: tuple[str, ...] = NAMES,
        toolbox: Callable[[Workbench], object] = RepositoryTools,
        instructions: str = INSTRUCTIONS,
    ) -> None:
        self.test_argv = test_argv
        self.toolbox = toolbox
        self.instructions = instructions
        offered = [name for name in names if name != "run_tests" or test_argv]
        if "submit" not in offered:
            raise ConfigError(f"the tools {', '.join(offered)} don't include submit: no episode could be handed in")
        self.tools: Mapping[str, Tool] = {name: _declared(toolbox, name) for name in offered}

    def prompt(self, task: Task) -> str:
        """Return the task and the names of the files; a long list is cut, and says so."""
        files = sorted(task.base)
        more = [f"... and {len(files) - _FILES_SHOWN} more"] if len(files) > _FILES_SHOWN else []
        listing = "\n".join([*files[:_FILES_SHOWN], *more])
        return f"{task.prompt}\n\nFiles:\n{listing}"

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        bench = Workbench(task=task, sandbox=sandbox, test_argv=self.test_argv, max_output_bytes=MAX_OUTPUT_BYTES)
        return ToolCallConversation(self.tools, self.toolbox(bench))

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return ChatCodec(tokenizer, system=self.instructions, tools=[tool.schema() for tool in self.tools.values()])


class ToolCallConversation:
    """One episode: parses calls, runs them in order, answers each."""

    def __init__(self, tools: Mapping[str, Tool], toolbox: object) -> None:
        self._tools = tools
        self._toolbox = toolbox

    def fork(self, sandbox: Sandbox) -> ToolCallConversation:
        """Return an independent conversation; see `ForkableConversation`.

        Raises:
            ConfigError: the toolbox has no method `fork(sandbox)`, so what it holds can't be copied.
        """
        fork = getattr(self._toolbox, "fork", None)
        if fork is None:
            raise ConfigError(
                f"this environment can't be forked: the toolbox, a {type(self._toolbox).__name__}, has no method "
                "fork(sandbox) that returns one in the same state; give it one, or set rollout.forks.continuations = 0"
            )
        return ToolCallConversation(self._tools, fork(sandbox))

    async def act(self, text: str) -> Reply:
        calls = parse_calls(text, self._tools, max_bytes=MAX_CALL_BYTES)
        replies: list[Reply] = []
        for call in calls[:MAX_CALLS]:
            replies.append(await self._run(call))
            if replies[-1].stop is not None or replies[-1].fold is not None:
                break
        if len(calls) > MAX_CALLS and len(replies) == MAX_CALLS and replies[-1].stop is None:
            message = f"{len(calls)} calls in one action, at most {MAX_CALLS}; the rest was not run"
            replies.append(refusal(CallError(kind=BadCall.OVERSIZED, message=message)))
        return replies[0] if len(calls) == 1 else merge(replies)

    async def _run(self, call: ToolCall | CallError) -> Reply:
        if isinstance(call, CallError):
            return refusal(call)
        try:
            return await getattr(self._toolbox, call.name)(**call.arguments)
        except UnsafePath as error:
            return Reply(text=f"error: {error}"[:500])


def _declared(toolbox: Callable[[Workbench], object], name: str) -> Tool:
    method = getattr(toolbox, name, None)
    if name.startswith("_") or not inspect.iscoroutinefunction(method):
        known = [key for key in dir(toolbox) if not key.startswith("_")]
        raise ConfigError(f"no tool {name!r}; the toolbox has {', '.join(known)}, and a tool is an async method")
    return declare(method)
