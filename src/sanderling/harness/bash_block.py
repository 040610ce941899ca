"""One bash block per turn: the plainest harness for a model that can use a shell.

    I look at the file first.
    ```bash
    cat solution.py
    ```

Each block is a shell of its own that begins in the workspace: directory and variables don't last, files do. The answer is
the exit code and the output. The block `submit` ends the episode; nothing that a command prints can.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from sanderling.harness.chat_codec import ChatCodec
from sanderling.harness.protocol import BadCall, Codec, Conversation, Reply
from sanderling.harness.replies import refusal
from sanderling.harness.repository_tools import Workbench, command_reply, run_shell
from sanderling.harness.tokenizer import Tokenizer
from sanderling.harness.tool_calls import without_thought
from sanderling.harness.tools import CallError
from sanderling.sandbox.protocol import Sandbox
from sanderling.types import StopReason, Task

SUBMIT = "submit"
MAX_COMMAND_BYTES = 65_536
MAX_OUTPUT_BYTES = 8_192
INSTRUCTIONS = (
    "You change files in a workspace until the task is done. In every turn you write exactly one block with shell commands:\n"
    "```bash\nls\n```\nIt is run, and you are told its exit code and output. Each block starts in the workspace in a new "
    "shell: directories and variables don't last, files do. When the task is done, write the block\n```bash\nsubmit\n```"
)
_BLOCK = re.compile(r"^```bash[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```bash[ \t]*$", re.MULTILINE)


def parse_block(text: str) -> str | CallError:
    """Return the command of the one bash block of an action, or what is wrong; thinking before it doesn't count."""
    rest = without_thought(text)
    blocks = _BLOCK.findall(rest)
    if not blocks:
        cut = (
            "the bash block has no closing ``` on a line of its own"
            if _FENCE.search(rest)
            else "there is no bash block"
        )
        return CallError(kind=BadCall.MALFORMED, message=f"{cut}; write exactly one, between ```bash and ```")
    if len(blocks) > 1:
        message = f"there are {len(blocks)} bash blocks and none was run; write exactly one"
        return CallError(kind=BadCall.MALFORMED, message=message)
    command = blocks[0].strip("\n")
    if not command.strip():
        return CallError(kind=BadCall.MALFORMED, message="the bash block is empty")
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return CallError(kind=BadCall.MALFORMED, message="the bash block holds half of a surrogate pair")
    if size > MAX_COMMAND_BYTES:
        message = f"the bash block has {size} bytes, at most {MAX_COMMAND_BYTES}"
        return CallError(kind=BadCall.OVERSIZED, message=message)
    return command


class BashBlockHarness:
    """Implements `harness.protocol.Harness`.

    Args:
        test_argv: the command of the visible tests, which the prompt names; (): there are none.
        instructions: the system message.
    """

    def __init__(self, *, test_argv: tuple[str, ...] = (), instructions: str = INSTRUCTIONS) -> None:
        self.test_argv = test_argv
        self.instructions = instructions

    def prompt(self, task: Task) -> str:
        tests = f"\n\nThe visible tests: {shlex.join(self.test_argv)}" if self.test_argv else ""
        return f"{task.prompt}{tests}"

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        return BashBlockConversation(
            Workbench(task=task, sandbox=sandbox, test_argv=self.test_argv, max_output_bytes=MAX_OUTPUT_BYTES)
        )

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return ChatCodec(tokenizer, system=self.instructions)


class BashBlockConversation:
    """One episode; it holds nothing, because nothing but files lasts."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def fork(self, sandbox: Sandbox) -> BashBlockConversation:
        return BashBlockConversation(replace(self._bench, sandbox=sandbox))

    async def act(self, text: str) -> Reply:
        command = parse_block(text)
        if isinstance(command, CallError):
            return refusal(command)
        if command.strip() == SUBMIT:
            return Reply(text="", stop=StopReason.SUBMITTED)
        reply = command_reply(await run_shell(self._bench.sandbox, command), self._bench)
        tested = bool(self._bench.test_argv) and command.strip() == shlex.join(self._bench.test_argv)
        return replace(reply, source="tests") if tested else reply
