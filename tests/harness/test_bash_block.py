"""One bash block per turn, on real files and a real shell."""

from __future__ import annotations

import pytest
from workbenches import FILES, play

from sanderling.harness.bash_block import MAX_COMMAND_BYTES, BashBlockHarness, parse_block
from sanderling.harness.protocol import BadCall
from sanderling.harness.tools import CallError
from sanderling.types import Limits, StopReason, Task

TESTS = ("python3", "-c", "import calc, sys; sys.exit(calc.add(1, 2) != 3)")
HARNESS = BashBlockHarness(test_argv=TESTS)


def block(command: str) -> str:
    return f"I do this.\n```bash\n{command}\n```\n"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (block("ls"), "ls"),
        ("```bash\nls\n```", "ls"),
        (block("cat <<'E'\na ``` b\nE"), "cat <<'E'\na ``` b\nE"),
        (f"<think>\n{block('rm x')}</think>\n{block('ls')}", "ls"),
        ("```python\nx\n```\n" + block("ls"), "ls"),
        ("```bash\n\n  ls\n\n```", "  ls"),
    ],
)
def test_the_one_block_is_the_command(text, command):
    assert parse_block(text) == command


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", BadCall.MALFORMED, "there is no bash block"),
        ("```\nls\n```", BadCall.MALFORMED, "there is no bash block"),
        ("```sh\nls\n```", BadCall.MALFORMED, "there is no bash block"),
        ("run ```bash ls```", BadCall.MALFORMED, "there is no bash block"),
        ("```bash\nls", BadCall.MALFORMED, "no closing ```"),
        ("```bash\nls ```", BadCall.MALFORMED, "no closing ```"),
        (block("ls") + block("rm x"), BadCall.MALFORMED, "there are 2 bash blocks and none was run"),
        ("```bash\n\n```", BadCall.MALFORMED, "is empty"),
        (f"<think>{block('ls')}", BadCall.MALFORMED, "there is no bash block"),
        (block("echo \ud800"), BadCall.MALFORMED, "surrogate"),
        (block("x" * (MAX_COMMAND_BYTES + 1)), BadCall.OVERSIZED, f"{MAX_COMMAND_BYTES + 1} bytes"),
    ],
)
def test_every_malformed_form_has_its_own_words(text, kind, words):
    error = parse_block(text)
    assert isinstance(error, CallError)
    assert error.kind is kind and words in error.message and len(error.message) < 200


def test_a_bug_is_fixed_and_handed_in(tmp_path):
    edit = block("sed -i '2s/-/+/' calc.py && cat calc.py")
    replies, files = play(HARNESS, edit, block(HARNESS.prompt(Task(id="t", prompt="", base={})).partition(": ")[2]),
                          block("submit"), folder=tmp_path)  # fmt: skip
    assert replies[0].text.startswith("exit code 0\ndef add(a, b):\n    return a + b\n")
    assert (replies[1].text, replies[1].source) == ("exit code 0", "tests")
    assert replies[2].stop is StopReason.SUBMITTED
    assert files["calc.py"] == FILES["calc.py"].replace(b"-", b"+", 1)


def test_files_last_and_nothing_else_does(tmp_path):
    replies, files = play(
        HARNESS,
        block("cd pkg; export A=1; echo new > made.txt"),
        block('echo "$A"; test -e made.txt; echo $?; cat pkg/made.txt'),
        folder=tmp_path,
    )
    assert replies[1].text == "exit code 0\n\n1\nnew"
    assert files["pkg/made.txt"] == b"new\n"


def test_nothing_that_is_printed_ends_the_episode(tmp_path):
    replies, _ = play(HARNESS, block("echo submit"), block("submit now"), block("  submit  "), folder=tmp_path)
    assert [reply.stop for reply in replies] == [None, None, StopReason.SUBMITTED]


def test_no_command_spoils_the_next_one(tmp_path):
    """Open quotes and here-documents, readers of standard input, background children."""
    odd = ["cat <<E\n  E", "echo open 'quote", "true # a comment", "sleep 30 &", "cat", "exit 7", "kill -9 $$"]
    blocks = [block(command) for one in odd for command in (one, "echo ok")]
    replies, _ = play(HARNESS, *blocks, folder=tmp_path, limits=Limits(command_s=1.0))
    assert all(reply.duration_s < 2.0 for reply in replies)
    assert [reply.text for reply in replies[1::2]] == ["exit code 0\nok"] * len(odd)


def test_both_streams_stand_in_the_order_in_which_they_were_written(tmp_path):
    (reply,), _ = play(HARNESS, block("echo a; echo b >&2; echo c; exit 3"), folder=tmp_path)
    assert reply.text == "exit code 3\na\nb\nc"
    assert reply.exit_code == 3 and reply.commands == 1
