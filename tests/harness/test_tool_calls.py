"""Tools are typed functions, and calls are parsed exactly: probe D12 and every malformed form."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.errors import ConfigError
from sanderling.harness.protocol import BadCall, Reply
from sanderling.harness.repository_tools import RepositoryTools
from sanderling.harness.tool_call_harness import MAX_CALL_BYTES, MAX_CALLS, ToolCallHarness
from sanderling.harness.tool_calls import ToolCall, parse_calls
from sanderling.harness.tools import CallError, declare
from sanderling.sandbox.protocol import SandboxSpec
from sanderling.testing.environments import BUGGY, calc_commands
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.types import StopReason, Task

TASK = Task(id="t", prompt="Fix add.", base={"calc.py": BUGGY}, editable=("calc.py",))
HARNESS = ToolCallHarness(test_argv=("test",))


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def converse(
    *actions: str, harness: ToolCallHarness = HARNESS, task: Task = TASK
) -> tuple[list[Reply], dict[str, bytes]]:
    """Act in a fresh workspace; return the replies and the files."""

    async def run():
        sandbox = await MemoryBackend(commands=calc_commands).create(SandboxSpec(files=task.base))
        conversation = harness.start(task, sandbox)
        replies = [await conversation.act(action) for action in actions]
        return replies, {path: await sandbox.read_file(path) for path in await sandbox.list_files()}

    return asyncio.run(run())


def parse(text: str) -> list[ToolCall | CallError]:
    return parse_calls(text, HARNESS.tools, max_bytes=1000)


@pytest.mark.parametrize(
    "name", ["list_files", "read_file", "search", "replace", "write_file", "run_tests", "bash", "submit"]
)
def test_a_schema_is_that_of_transformers(name):
    from transformers.utils import get_json_schema

    theirs = get_json_schema(getattr(RepositoryTools, name))
    theirs["function"].pop("return", None)
    theirs["function"]["parameters"]["properties"].pop("self", None)
    required = theirs["function"]["parameters"].get("required", [])
    if "self" in required:
        required.remove("self")
    if not required:
        theirs["function"]["parameters"].pop("required", None)
    ours = declare(getattr(RepositoryTools, name)).schema()
    assert ours == theirs


class _Odd:
    async def untyped(self, a) -> Reply:
        """Do.

        Args:
            a: what.
        """
        return Reply(text="")

    async def wordless(self, a: int) -> Reply:
        """Do."""
        return Reply(text="")

    async def listing(self, a: list[int]) -> Reply:
        """Do.

        Args:
            a: what.
        """
        return Reply(text="")

    def plain(self) -> None:
        """Not async."""

    async def submit(self) -> Reply:
        """End."""
        return Reply(text="", stop=StopReason.GAVE_UP)


@pytest.mark.parametrize("name", ["untyped", "wordless", "listing", "plain", "_hidden", "missing"])
def test_a_tool_that_can_not_be_declared_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        ToolCallHarness(names=(name, "submit"), toolbox=_Odd)


def test_a_harness_needs_submit_and_offers_tests_only_where_there_are_some():
    with pytest.raises(ConfigError, match="submit"):
        ToolCallHarness(names=("read_file",))
    assert "run_tests" not in ToolCallHarness().tools
    assert "bash" not in HARNESS.tools
    assert "bash" in ToolCallHarness(names=("bash", "submit")).tools


def test_calls_are_found_between_text_and_after_thinking():
    text = f"<think>{call('submit')}</think>Let me look.\n{call('read_file', path='calc.py')} and\n{call('run_tests')}"
    assert parse(text) == [
        ToolCall(name="read_file", arguments={"path": "calc.py"}),
        ToolCall(name="run_tests", arguments={}),
    ]
    (unfinished,) = parse(f"<think>{call('submit')}")
    assert isinstance(unfinished, CallError) and "no tool was called" in unfinished.message


def test_tags_inside_of_an_argument_are_text():
    content = "a </tool_call> b <tool_call> c </think>"
    assert parse(call("write_file", path="x", content=content)) == [
        ToolCall(name="write_file", arguments={"path": "x", "content": content})
    ]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ('{"name": "read_file", "arguments": {"path": "a', BadCall.MALFORMED, "not JSON"),
        ("", BadCall.MALFORMED, "not JSON"),
        ("{'name': 'submit', 'arguments': {}}", BadCall.MALFORMED, "not JSON"),
        ('{"name": "submit", "arguments": {}} {}', BadCall.MALFORMED, "Extra data"),
        ('{"name": "submit", "name": "submit", "arguments": {}}', BadCall.MALFORMED, "'name' stands twice"),
        ('{"name": "submit"}', BadCall.MALFORMED, "has the keys name; expected name and arguments"),
        ('{"name": "submit", "arguments": {}, "id": 1}', BadCall.MALFORMED, "arguments, id, name"),
        ('{"name": "read_file", "arguments": {"path": "a", "start": NaN}}', BadCall.MALFORMED, "NaN is no JSON"),
        ("[" * 900, BadCall.MALFORMED, "not JSON"),
        ('"submit"', BadCall.NOT_AN_OBJECT, "expected an object"),
        ("7", BadCall.NOT_AN_OBJECT, "is 7"),
        ("null", BadCall.NOT_AN_OBJECT, "is null"),
        ('{"name": "submit", "arguments": []}', BadCall.NOT_AN_OBJECT, "are [], expected an object"),
        ('{"name": "submit", "arguments": null}', BadCall.NOT_AN_OBJECT, "are null"),
        ('{"name": "submit", "arguments": "{}"}', BadCall.NOT_AN_OBJECT, 'are "{}"'),
        ('{"name": "rm", "arguments": {}}', BadCall.UNKNOWN, 'no tool "rm"; there are list_files'),
        ('{"name": "bash", "arguments": {"command": "ls"}}', BadCall.UNKNOWN, "no tool"),
        ('{"name": ["submit"], "arguments": {}}', BadCall.UNKNOWN, "no tool"),
        ('{"name": "read_file", "arguments": {}}', BadCall.MISSING_ARGUMENT, "needs path"),
        ('{"name": "submit", "arguments": {"now": true}}', BadCall.UNKNOWN_ARGUMENT, "no argument 'now'; it takes nothing"),
        ('{"name": "read_file", "arguments": {"path": 1}}', BadCall.WRONG_TYPE, "takes a string, got an integer"),
        ('{"name": "read_file", "arguments": {"path": "a", "start": true}}', BadCall.WRONG_TYPE, "an integer, got a boolean"),
        ('{"name": "read_file", "arguments": {"path": "a", "start": "1"}}', BadCall.WRONG_TYPE, "got a string"),
        ('{"name": "read_file", "arguments": {"path": "a", "start": null}}', BadCall.WRONG_TYPE, "got null"),
        ('{"name": "read_file", "arguments": {"path": {"a": 1}}}', BadCall.WRONG_TYPE, "got an object"),
        ('{"name": "read_file", "arguments": {"path": "\\ud800"}}', BadCall.WRONG_TYPE, "surrogate"),
        (f"{{{1000 * ' '}}}", BadCall.OVERSIZED, "at most 1000"),
    ],
)  # fmt: skip
def test_every_malformed_form_has_its_own_words(body, kind, words):
    (error,) = parse(f"<tool_call>{body}</tool_call>")
    assert isinstance(error, CallError)
    assert error.kind is kind
    assert words in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I am done.", "no tool was called"),
        ("", "no tool was called"),
        ("</tool_call>", "there is </tool_call> without <tool_call>"),
        ('<tool_call>{"name": "submit", "arguments": {}}', "has no </tool_call>"),
        ('<tool_call>{"name": "submit", "argu', "has no </tool_call>"),
        ("<tool_call>", "has no </tool_call>"),
    ],
)
def test_tags_that_are_missing(text, words):
    (error,) = parse(text)
    assert isinstance(error, CallError)
    assert error.kind is BadCall.MALFORMED and words in error.message


def test_a_null_is_taken_where_the_type_says_so():
    assert parse(call("read_file", path="a", end=None)) == [
        ToolCall(name="read_file", arguments={"path": "a", "end": None})
    ]


def test_probe_d12_bad_calls():
    """Three calls, three replies in order, and nothing dispatched for the bad ones; then 2 MB of arguments."""
    cut = '<tool_call>{"name": "write_file", "arguments": {"path": "calc.py", "content": "gone</tool_call>'
    empty = '<tool_call>{"name": "write_file", "arguments": []}</tool_call>'
    large = call("write_file", path="calc.py", content="x" * 2_000_000)
    replies, files = converse(f"{call('read_file', path='calc.py')}\n{cut}\n{empty}", large, call("submit"))
    first, second, last = replies
    assert first.parts[0] == "[1] 1\tdef add(a, b):\n2\t    return a - b"
    assert first.parts[1].startswith("[2] error: the call of") and first.parts[2].startswith(
        "[3] error: the arguments of"
    )
    assert first.text == "\n".join(first.parts)
    assert first.bad_calls == (BadCall.MALFORMED, BadCall.NOT_AN_OBJECT)
    assert second.bad_calls == (BadCall.OVERSIZED,)
    assert len(second.text) < 2000
    assert f"the call has {len(large) - len('<tool_call></tool_call>')} bytes, at most {MAX_CALL_BYTES}" in second.text
    assert last.stop is StopReason.SUBMITTED
    assert files == {"calc.py": BUGGY}


def test_a_cut_call_does_not_swallow_the_next_one():
    text = f'<tool_call>{{"name": "read_file", "arguments": {{"path": "a\n{call("run_tests")}'
    error, good = parse(text)
    assert isinstance(error, CallError) and "has no </tool_call>" in error.message
    assert good == ToolCall(name="run_tests", arguments={})


def test_nothing_runs_after_submit_and_calls_are_bounded():
    (ended,), files = converse(call("submit") + call("write_file", path="calc.py", content=""))
    assert ended.stop is StopReason.SUBMITTED and files == {"calc.py": BUGGY}
    (many,), _ = converse(call("run_tests") * (MAX_CALLS + 4))
    assert many.commands == MAX_CALLS and many.source == "tests"
    assert many.bad_calls == (BadCall.OVERSIZED,)
    assert (
        many.parts[-1]
        == f"[{MAX_CALLS + 1}] error: {MAX_CALLS + 4} calls in one action, at most {MAX_CALLS}; the rest was not run"
    )


def test_the_prompt_names_the_files_and_says_what_it_leaves_out():
    assert HARNESS.prompt(TASK) == "Fix add.\n\nFiles:\ncalc.py"
    many = Task(id="t", prompt="Fix.", base={f"f{number:03d}.py": b"" for number in range(45)})
    assert HARNESS.prompt(many).endswith("f039.py\n... and 5 more")


ARGUMENTS = st.fixed_dictionaries({"path": st.text(max_size=30), "content": st.text(max_size=60)})


@settings(max_examples=60)
@given(st.lists(ARGUMENTS, min_size=1, max_size=3), st.text(alphabet="ab \n{}", max_size=10))
def test_what_is_written_as_json_is_read_back(arguments, between):
    text = between.join(call("write_file", **one) for one in arguments)
    assert parse_calls(text, HARNESS.tools, max_bytes=10_000) == [
        ToolCall(name="write_file", arguments=one) for one in arguments
    ]


ODD = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    '{"name": ',
    '"submit"',
    ', "arguments": {}}',
    "x",
    "[",
    "\\ud800",
]


@settings(max_examples=100)
@given(st.lists(st.sampled_from(ODD), max_size=12).map("".join))
def test_no_text_is_too_odd_to_be_answered(text):
    calls = parse(text)
    assert calls
    for one in calls:
        assert isinstance(one, ToolCall) or (one.message and len(one.message) < 500)
