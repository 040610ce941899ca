"""The tools on real files and real commands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbenches import FILES, play

from sanderling.harness.excerpt import excerpt
from sanderling.harness.tool_call_harness import MAX_OUTPUT_BYTES, NAMES, ToolCallHarness
from sanderling.types import Limits

TESTS = ("python3", "-c", "import calc, sys; print(calc.add(1, 2)); sys.exit(calc.add(1, 2) != 3)")
HARNESS = ToolCallHarness(test_argv=TESTS, names=(*NAMES, "bash"))


@pytest.fixture
def use(tmp_path):
    """Return a function that calls tools one after another and returns the replies and the files."""

    def calls(*wanted: tuple[str, dict[str, object]], **more):
        texts = [f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>" for name, given in wanted]
        return play(HARNESS, *texts, folder=tmp_path, **more)

    return calls


def test_a_bug_is_found_fixed_and_tested(use):
    edit = {"path": "calc.py", "old": "def add(a, b):\n    return a - b", "new": "def add(a, b):\n    return a + b"}
    replies, files = use(
        ("list_files", {}),
        ("search", {"pattern": "def .*add"}),
        ("run_tests", {}),
        ("replace", edit),
        ("run_tests", {}),
    )
    assert replies[0].text == "calc.py\nempty.txt\npkg/data.bin\npkg/text.py"
    assert replies[1].text == "exit code 0\ncalc.py:1:def add(a, b):"
    assert (replies[2].text, replies[2].exit_code, replies[2].source) == ("exit code 1\n-1", 1, "tests")
    assert replies[3].text == "replaced at line 1 of calc.py"
    assert replies[4].text == "exit code 0\n3"
    assert [reply.commands for reply in replies] == [0, 1, 1, 0, 1]
    assert files["calc.py"] == FILES["calc.py"].replace(b"a - b", b"a + b", 1)


def test_a_piece_must_stand_there_once(use):
    edits = [("return a - b", "return 0"), ("return a-b", ""), ("", "x"), ("def add", "def add")]
    replies, files = use(*(("replace", {"path": "calc.py", "old": old, "new": new}) for old, new in edits))
    texts = [reply.text for reply in replies]
    assert texts[0] == "error: old stands 2 times in calc.py, at lines 2, 6; give more of its surroundings"
    assert texts[1].startswith("error: old does not stand in calc.py")
    assert texts[2].startswith("error: old is empty")
    assert texts[3] == "error: old and new are the same"
    assert files == FILES


def test_places_that_overlap_are_not_unique(tmp_path):
    call = json.dumps({"name": "replace", "arguments": {"path": "a", "old": "xx", "new": "y"}})
    (reply,), _ = play(HARNESS, f"<tool_call>{call}</tool_call>", folder=tmp_path, files={"a": b"xxx"})
    assert "stands 2 times" in reply.text


RANGES = [
    ({"path": "calc.py", "start": 2, "end": 3}, "2\t    return a - b\n3\t"),
    ({"path": "calc.py", "start": 6, "end": 99}, "6\t    return a - b"),
    ({"path": "empty.txt"}, "the file is empty"),
    ({"path": "pkg/text.py"}, "1\tGREETING = 'grüezi'"),
    ({"path": "calc.py", "start": 7}, "error: the file has 6 lines, there is no line 7"),
    ({"path": "calc.py", "start": 0}, "error: lines 0 to None"),
    ({"path": "calc.py", "start": 3, "end": 2}, "error: lines 3 to 2"),
    ({"path": "pkg/data.bin"}, "error: 'pkg/data.bin' is no UTF-8 text"),
    ({"path": "nothing.py"}, "error: "),
]


def test_ranges_of_files(use):
    replies, _ = use(*(("read_file", arguments) for arguments, _ in RANGES))
    for reply, (arguments, text) in zip(replies, RANGES, strict=True):
        assert reply.text.startswith(text), arguments


def test_paths_outside_of_the_workspace_are_refused(use, tmp_path):
    (tmp_path / "secret").write_text("hidden")
    more = {"read_file": {}, "write_file": {"content": "x"}, "replace": {"old": "h", "new": "x"}}
    more |= {"search": {"pattern": "h"}, "list_files": {}}
    paths = ["/etc/passwd", "../secret", "pkg/../../secret", "a\0b"]
    calls = [(tool, {"path": path, **given}) for tool, given in more.items() for path in paths]
    replies, files = use(*calls, ("read_file", {"path": ""}))
    assert len(replies) == 21
    for reply in replies:
        assert reply.text.startswith("error: ") and "hidden" not in reply.text
        assert reply.commands == 0
    assert files == FILES
    assert (tmp_path / "secret").read_text() == "hidden"


def test_links_out_of_the_workspace_are_refused(use, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("hidden")
    replies, _ = use(
        ("bash", {"command": f"ln -s {tmp_path}/secret link"}),
        ("read_file", {"path": "link/key"}),
        ("search", {"pattern": "hidden", "path": "link"}),
        ("search", {"pattern": "hidden"}),
        ("write_file", {"path": "link/key", "content": "x"}),
    )
    assert replies[0].exit_code == 0
    assert all(reply.text.startswith("error: ") for reply in (replies[1], replies[2], replies[4]))
    assert replies[3].text == "no line matches"
    assert (tmp_path / "secret" / "key").read_text() == "hidden"


def test_search_says_what_is_wrong_with_a_pattern_and_a_dash_is_no_option(use):
    patterns = [{"pattern": "("}, {"pattern": "--help"}, {"pattern": "sub", "path": "pkg"}]
    replies, _ = use(*(("search", given) for given in [*patterns, {"pattern": "sub", "path": "nowhere"}]))
    assert replies[0].exit_code == 2
    assert [reply.text for reply in replies[1:3]] == ["no line matches"] * 2
    assert replies[3].text == "error: no files below 'nowhere'"


def test_a_file_is_written_and_read_back(use):
    replies, files = use(
        ("write_file", {"path": "new/mod.py", "content": "x = 'ü'\r\n"}), ("read_file", {"path": "new/mod.py"})
    )
    assert replies[0].text == "wrote 10 bytes to new/mod.py"
    assert replies[1].text == "1\tx = 'ü'"
    assert files["new/mod.py"] == "x = 'ü'\r\n".encode()


def test_output_is_bounded_and_what_is_missing_is_counted(use):
    """The error on the last of 5,000 lines is still there; the sandbox's own cut is counted too."""
    command = "for i in $(seq 5000); do echo line $i; done; echo the error >&2; exit 3"
    total = len("".join(f"line {i}\n" for i in range(1, 5001)) + "the error\n")
    (small,), _ = use(("bash", {"command": command}))
    assert small.exit_code == 3
    assert small.text.startswith("exit code 3\nline 1\n") and small.text.endswith("line 5000\nthe error")
    assert f"\n[{small.omitted_bytes} bytes omitted]\n" in small.text
    assert total - small.omitted_bytes in (2047, 2048)  # the last line end isn't shown
    (large,), _ = use(("bash", {"command": command}), limits=Limits(output_bytes=1_000_000))
    assert f"[{large.omitted_bytes} bytes omitted]" in large.text and large.text.endswith("the error")
    assert len(large.text) < MAX_OUTPUT_BYTES + 200
    assert total - 1 - large.omitted_bytes == MAX_OUTPUT_BYTES


def test_output_before_a_limit_is_kept(use):
    command = "echo one; echo two; echo three; sleep 30"
    (reply,), _ = use(("bash", {"command": command}), limits=Limits(command_s=0.5))
    assert reply.text.startswith("cut off after ") and reply.text.endswith("one\ntwo\nthree")


@given(st.binary(max_size=60), st.integers(2, 40))
def test_an_excerpt_is_head_and_tail(data, limit):
    shown = excerpt(data, limit)
    if len(data) <= limit:
        assert shown.omitted_bytes == 0 and shown.text == data.decode("utf-8", "replace")
    else:
        head, tail = data[: (limit + 1) // 2], data[len(data) - limit // 2 :]
        assert shown.omitted_bytes == len(data) - limit
        middle = f"\n[{len(data) - limit} bytes omitted]\n"
        assert shown.text == head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")
