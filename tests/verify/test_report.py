"""The observer's answers are believed only where they are exactly what was asked for."""

import json
import time

import pytest

from sanderling.types import Refusal
from sanderling.verify.mechanisms import new_mechanisms, refusal_note
from sanderling.verify.recording import difference
from sanderling.verify.report import read_report

NONCES = ["n0", "n1", "n2"]


def line(nonce, **more):
    return json.dumps({"nonce": nonce, **more}).encode() + b"\n"


def answers(*nonces):
    return b"".join(line(nonce, value=1, raised=None, arguments=[], printed="") for nonce in nonces)


GOOD = line("ready") + answers(*NONCES) + line("done")


def read(output):
    return read_report(output, "ready", NONCES, "done")


def test_the_only_complete_report():
    report = read(GOOD)
    assert report.started
    assert report.complete
    assert list(report.answers) == [*NONCES, "done"]
    assert report.notes == ()


@pytest.mark.parametrize(
    ("output", "note"),
    [
        (GOOD + line("n1", value=2), "answered more than once"),
        (GOOD + b"PASSED\n", "answer no call"),
        (GOOD + b"trailing", "not complete"),
        (GOOD + line("other"), "answer no call"),
        (line("ready") + b"PASSED\n" + answers(*NONCES) + line("done"), "answer no call"),
        (line("ready") + answers("n0", "n2", "n1") + line("done"), "another order"),
        (line("ready") + line("done") + answers(*NONCES), "another order"),
        (line("ready") + answers("n0", "n0", "n1", "n2") + line("done"), "answered more than once"),
        (line("ready") + b"[" * 100_000 + b"\n" + answers(*NONCES) + line("done"), "answer no call"),
        (line("ready") + b"[1]\n" + answers(*NONCES) + line("done"), "answer no call"),
        (line("ready") + line(["n0"]) + answers(*NONCES) + line("done"), "answer no call"),
        (GOOD + line("ready"), "answer no call"),
        (line("ready", failed="SyntaxError"), "SyntaxError when the file was loaded"),
        (line("ready") + line("ready", failed="SyntaxError"), "SyntaxError when the file was loaded"),
    ],
)
def test_anything_else_is_not_complete_and_named(output, note):
    report = read(output)
    assert not report.complete
    assert any(note in text for text in report.notes), report.notes


@pytest.mark.parametrize(
    "output",
    [b"", b"\n", answers(*NONCES) + line("done"), b"\xff\xfe", line("ready") + answers("n0", "n1", "n2"), line("done")],
)
def test_an_incomplete_report_is_not_complete(output):
    assert not read(output).complete


def test_a_repeated_answer_is_taken_away():
    assert set(read(GOOD + answers("n1")).answers) == {"n0", "n2", "done"}


@pytest.mark.parametrize(
    ("path", "mechanism"),
    [
        ("conftest.py", "test hook file"),
        ("deep/er/conftest.py", "test hook file"),
        ("pytest.ini", "settings of the test runner"),
        ("pyproject.toml", "settings of the test runner"),
        ("sitecustomize.py", "interpreter start-up hook"),
        ("x.pth", "interpreter start-up hook"),
        ("evil-1.0.dist-info/entry_points.txt", "plugin"),
        ("pytest/__init__.py", "shadowed test runner"),
        ("logs/reward.json", "planted verdict file"),
        (".bashrc", "shell start-up file"),
        ("other.py", "refused path"),
    ],
)
def test_refused_paths_are_named(path, mechanism):
    note = refusal_note(Refusal(path=path, reason="not an editable path"))
    assert mechanism in note
    assert path in note
    assert "not an editable path" in note


def test_new_mechanisms_of_a_source():
    before = b"import sys\ndef f():\n    return sys.version\n"
    assert new_mechanisms(before, b"import sys\ndef f():\n    return 1 + 1\n") == []
    after = b"import sys, gc\ndef f():\n    return sys._getframe(1).f_locals\n"
    assert sorted(new_mechanisms(before, after)) == [
        "line 1 searches the process's memory (import gc)",
        "line 3 looks at the caller's frames (_getframe)",
        "line 3 looks at the caller's frames (f_locals)",
    ]
    assert new_mechanisms(before, b"def f(:\n") == []


def test_what_takes_long_to_read_is_refused_at_once():
    began = time.process_time()
    deep = line("ready") + b'{"nonce": "n0", "value": ' + b"[" * 300 + b"]" * 300 + b"}\n" + line("n1")
    report = read(deep)
    assert list(report.answers) == ["n1"]
    assert any("answer no call" in note for note in report.notes)
    flood = read(line("ready") + b"\n" * (4 << 20))
    assert not flood.complete
    sets = '{"set": [' * 90 + "[" + ",".join("1" for _ in range(200_000)) + "]" + "]}" * 90
    answer = json.loads(sets)
    right = {"value": 1, "raised": None, "arguments": [], "printed": ""}
    assert difference(right, {**right, "value": answer}) == "value"
    assert time.process_time() - began < 3.0


def test_a_failure_with_a_lone_surrogate_can_be_written_down():
    report = read(line("ready", failed="\ud800"))
    assert "\\ud800 when the file was loaded" in report.notes[0]
    report.notes[0].encode()


def test_a_huge_source_is_not_looked_at():
    (note,) = new_mechanisms(b"", b"x = [" + b"1," * 500_000 + b"]")
    assert "too large to be looked at" in note
