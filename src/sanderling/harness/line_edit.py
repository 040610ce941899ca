"""A line editor: the smallest tool protocol with which a policy can find and fix a bug.

    list                 names of the files
    show [FILE]          a file with line numbers (and make it the current one)
    set LINE | TEXT      replace a line of the current file; the line's indentation stays
    line LINE            print a line and make it the current one
    sub|OLD=>NEW         replace OLD by NEW in the current line as `line` prints it, spaces included
    test                 run the visible tests
    undo                 take the last change back, and print the current line
    submit               end the episode and hand the change in

One call per line; an action of several lines is several calls, answered in order as "[1] ...", "[2] ...". A call that
can't be parsed is answered with what is wrong, and nothing is dispatched for it.

Small policies find it hard to copy a whole line, and hard to name a part of a line that stands far back. With `line` and `sub`
they need neither: the line stands just before the change, and only what changes is written. `sub` replaces the first OLD that
doesn't cut a word in two; `=>` is part of no Python operator. A change can be answered with the first line that the visible
tests print, which saves a turn for each attempt.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from sanderling.errors import UnsafePath
from sanderling.harness.codec import PlainCodec
from sanderling.harness.protocol import BadCall, Codec, Conversation, Reply
from sanderling.harness.replies import merge, refusal
from sanderling.harness.tokenizer import Tokenizer
from sanderling.harness.tools import CallError
from sanderling.sandbox.protocol import Command, Sandbox, Start
from sanderling.types import StopReason, Task

MAX_CALL_BYTES = 4096
MAX_CALLS = 16
SUB = "sub|"
NO_SUCH_TEXT = "error: no such text here"  # followed by the line, so that the next try has it just before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One parsed call."""

    name: str
    line: int | None = None
    text: str = ""  # of `set`: the new line; of `show`: the file; of `sub`: what replaces `old`
    old: str = ""


def parse_call(text: str) -> Call | CallError:
    """Parse one line of an action, exactly: no guessing at what was meant."""
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_CALL_BYTES:
        return CallError(kind=BadCall.OVERSIZED, message=f"call of {size} bytes, at most {MAX_CALL_BYTES}")
    if text.lstrip().startswith(SUB):  # the one call in which spaces count
        return _parse_sub(text.lstrip().removeprefix(SUB))
    name, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if name in ("list", "test", "undo", "submit"):
        if rest:
            return CallError(kind=BadCall.MALFORMED, message=f"{name} takes nothing")
        return Call(name=name)
    if name == "show":
        return Call(name="show", text=rest)
    if name == "set":
        return _parse_set(rest)
    if name == "line":
        number = _line_number(rest)
        return number if isinstance(number, CallError) else Call(name="line", line=number)
    return CallError(kind=BadCall.UNKNOWN, message="use list, show, set, line, sub, test, undo, submit")


def _parse_set(rest: str) -> Call | CallError:
    number, bar, new = rest.partition("|")
    number, new = number.strip(), new.strip()
    if not bar or not new:
        return CallError(kind=BadCall.MALFORMED, message="use set LINE | TEXT")
    line = _line_number(number)
    return line if isinstance(line, CallError) else Call(name="set", line=line, text=new)


def _parse_sub(change: str) -> Call | CallError:
    old, arrow, new = change.partition("=>")
    if not arrow or not old.strip():
        return CallError(kind=BadCall.MALFORMED, message="use sub|OLD=>NEW")
    return Call(name="sub", text=new, old=old)


def _line_number(text: str) -> int | CallError:
    if not (text.isascii() and text.isdigit()) or int(text[:9]) < 1:
        return CallError(kind=BadCall.WRONG_TYPE, message=f"{text[:20]!r} is no line number")
    return int(text[:9])


def substituted(line: str, old: str, new: str) -> str | None:
    """Return the line with the first `old` replaced that doesn't begin or end inside a word; None if there is none."""
    before = r"(?<!\w)" if re.match(r"\w", old) else ""
    after = r"(?!\w)" if re.search(r"\w$", old) else ""
    found = re.search(f"{before}{re.escape(old)}{after}", line)
    return None if found is None else line[: found.start()] + new + line[found.end() :]


def _substituted_as_printed(line: str, call: Call) -> str | None:
    # Without its indentation, which `line` doesn't print: a space before a word would be found in it.
    printed = substituted(line.strip(), call.old, call.text)
    return None if printed is None else _indentation(line) + printed


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def number_lines(source: str) -> str:
    """Return the source with line numbers, as `show` prints it."""
    return "\n".join(f"{number} {line}" for number, line in enumerate(source.splitlines(), 1))


class AnswerToChange(StrEnum):
    """What `set` and `sub` answer when they have changed the file."""

    ACKNOWLEDGED = "acknowledged"  # "ok"
    TESTED = "tested"  # the first line that the visible tests print now
    TRIED = "tried"  # the same; and the change is taken back at once unless they pass


class LineEditHarness:
    """Implements `harness.protocol.Harness`: the line editor over one workspace.

    Args:
        file: the file that is current at the start; the prompt shows it.
        test_argv: the command of the visible tests, run in the workspace.
        answer: what a change is answered with.
    """

    def __init__(
        self, *, file: str, test_argv: tuple[str, ...], answer: AnswerToChange = AnswerToChange.ACKNOWLEDGED
    ) -> None:
        self.file = file
        self.test_argv = test_argv
        self.answer = answer

    def prompt(self, task: Task) -> str:
        source = task.base[self.file].decode("utf-8", "replace")
        return f"{task.prompt}\n{number_lines(source)}\n"

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        return LineEditConversation(self, sandbox)

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return PlainCodec(tokenizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    file: str
    line: int
    before: bytes


class LineEditConversation:
    """One episode of the line editor: the current file and the undo stack."""

    def __init__(self, harness: LineEditHarness, sandbox: Sandbox) -> None:
        self._harness = harness
        self._sandbox = sandbox
        self._current = harness.file
        self._number: int | None = None
        self._edits: list[_Edit] = []
        self._tools: dict[str, Callable[[Call], Awaitable[Reply]]] = {
            "list": self._list,
            "show": self._show,
            "set": self._set,
            "line": self._line,
            "sub": self._sub,
            "test": self._test,
            "undo": self._undo,
            "submit": self._submit,
        }

    def fork(self, sandbox: Sandbox) -> LineEditConversation:
        """Return an independent conversation with the same current line and undo stack; see `ForkableConversation`."""
        twin = LineEditConversation(self._harness, sandbox)
        twin._current, twin._number, twin._edits = self._current, self._number, list(self._edits)
        return twin

    async def act(self, text: str) -> Reply:
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            return refusal(CallError(kind=BadCall.MALFORMED, message="empty call"))
        if len(lines) == 1:
            return await self._call(lines[0])
        replies: list[Reply] = []
        for line in lines[:MAX_CALLS]:
            replies.append(await self._call(line))
            if replies[-1].stop is not None:
                break
        if len(lines) > MAX_CALLS and replies[-1].stop is None:
            message = f"{len(lines)} calls in one action, at most {MAX_CALLS}; the rest was not run"
            replies.append(refusal(CallError(kind=BadCall.OVERSIZED, message=message)))
        return merge(replies)

    async def _call(self, line: str) -> Reply:
        call = parse_call(line)
        if isinstance(call, CallError):
            return refusal(call)
        try:
            return await self._tools[call.name](call)
        except UnsafePath as error:
            return Reply(text=f"error: {error}"[:200])

    async def _list(self, call: Call) -> Reply:
        return Reply(text="\n".join(await self._sandbox.list_files()) or "no files")

    async def _show(self, call: Call) -> Reply:
        name = call.text or self._current
        source = (await self._sandbox.read_file(name)).decode("utf-8", "replace")
        if name != self._current:
            self._current, self._number = name, None
        return Reply(text=number_lines(source))

    async def _set(self, call: Call) -> Reply:
        return await self._change(call.line, lambda line: _indentation(line) + call.text)

    async def _line(self, call: Call) -> Reply:
        self._number = call.line
        return await self._current_line()

    async def _sub(self, call: Call) -> Reply:
        return await self._change(self._number, lambda line: _substituted_as_printed(line, call))

    async def _current_line(self) -> Reply:
        _, lines = await self._read_lines()
        if self._number is None or self._number > len(lines):
            return Reply(text=f"error: no line {self._number}, the file has {len(lines)}")
        return Reply(text=lines[self._number - 1].strip())

    async def _read_lines(self) -> tuple[bytes, list[str]]:
        content = await self._sandbox.read_file(self._current)
        return content, content.decode("utf-8", "replace").splitlines()

    async def _change(self, number: int | None, change: Callable[[str], str | None]) -> Reply:
        """Replace one line of the current file by what `change` makes of it; None: it can't."""
        before, lines = await self._read_lines()
        if number is None:
            return Reply(text="error: no current line, use line LINE first")
        if number > len(lines):
            return Reply(text=f"error: no line {number}, the file has {len(lines)}")
        self._number = number
        after = change(lines[number - 1])
        if after is None:
            return Reply(text=f"{NO_SUCH_TEXT}\n{lines[number - 1].strip()}")
        lines[number - 1] = after
        await self._sandbox.write_file(self._current, ("\n".join(lines) + "\n").encode("utf-8", "replace"))
        self._edits.append(_Edit(file=self._current, line=number, before=before))
        if self._harness.answer is AnswerToChange.ACKNOWLEDGED:
            return Reply(text="ok")
        tested = await self._run_tests()
        if self._harness.answer is AnswerToChange.TRIED and tested.exit_code != 0:
            await self._sandbox.write_file(self._current, self._edits.pop().before)
        return replace(tested, text=tested.text.partition("\n")[0])

    async def _undo(self, call: Call) -> Reply:
        if not self._edits:
            return Reply(text="error: nothing to undo")
        edit = self._edits.pop()
        await self._sandbox.write_file(edit.file, edit.before)
        self._current, self._number = edit.file, edit.line
        return await self._current_line()

    async def _test(self, call: Call) -> Reply:
        return await self._run_tests()

    async def _run_tests(self) -> Reply:
        result = await self._sandbox.exec(Command(argv=self._harness.test_argv, start=Start.WARM))
        text = result.stdout.decode("utf-8", "replace").strip()
        if result.timed_out:
            text = f"{text}\ntimeout".strip()
        return Reply(
            text=text or f"exit code {result.exit_code}",
            source="tests",
            exit_code=result.exit_code,
            duration_s=result.duration_s,
            omitted_bytes=result.omitted_bytes,
            commands=1,
        )

    async def _submit(self, call: Call) -> Reply:
        return Reply(text="", stop=StopReason.SUBMITTED)
