"""The visible test runner as the agent's sandbox runs it: a program of its own, with the workspace as working folder."""

import json
import subprocess
import sys
from pathlib import Path

import fix_python
import pytest
from fix_python.tasks import FixPythonTasks, examples_file

from sanderling.verify.recording import RecordedFunction
from sanderling.verify.values import encode

PROGRAM = Path(fix_python.__file__).parent / "visible.py"
CLAMP = "def clamp(x, low, high):\n    if x < low:\n        return low\n    return min(x, high)\n"


def run(folder, source, examples):
    (folder / "solution.py").write_text(source, "utf-8")
    (folder / "examples.json").write_bytes(examples)
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=30, check=False)
    assert done.stderr == b""
    assert len(done.stdout) <= 161
    assert sorted(p.name for p in folder.iterdir()) == ["examples.json", "solution.py"]  # nothing left behind
    return done.returncode, done.stdout.decode()


def examples_of(source, name, *calls):
    gold = RecordedFunction(source, name)
    rows = []
    for call in calls:
        arguments = encode(list(call))
        rows.append({"call": arguments, **gold(arguments).as_json()})
    return json.dumps({"function": name, "calls": rows}, ensure_ascii=False).encode()


EXAMPLES = examples_of(CLAMP, "clamp", (5, 0, 3), (-1, 0, 3), (2, 0, 3), (0, 0, 3))


@pytest.mark.parametrize(
    ("source", "code", "report"),
    [
        (CLAMP, 0, "ok 4 of 4\n"),
        (CLAMP.replace("min(x, high)", "x"), 1, "ok 3 of 4\nclamp(5, 0, 3) = 5 want 3\n"),
        (
            CLAMP.replace("min(x", "min(float(x)"),
            1,
            "ok 2 of 4\nclamp(2, 0, 3) = 2.0 want 2\nclamp(0, 0, 3) = 0.0 want 0\n",
        ),
        (CLAMP.replace("min(x, high)", "[][x]"), 1, None),
        (CLAMP.replace("return low", "while True: pass"), 1, "ok 1 of 4\nclamp(-1, 0, 3) timeout\n"),
        (CLAMP.replace("return low", "return low)"), 1, "error: SyntaxError line 3\n"),
        ("import nothing_like_it\n" + CLAMP, 1, "error: ModuleNotFoundError line 1\n"),
        ("while True:\n    pass\n", 1, None),
        (CLAMP.replace("clamp", "clip"), 1, "error: no function clamp\n"),
        ("raise SystemExit(0)\n", 1, "error: SystemExit line 1\n"),
        (CLAMP.replace("    if", "    print(x)\n    if"), 1, None),
    ],
)
def test_report(tmp_path, source, code, report):
    got = run(tmp_path, source, EXAMPLES)
    assert got[0] == code
    if report is not None:
        assert got[1] == report


def test_report_names_the_line_of_an_exception(tmp_path):
    _, report = run(tmp_path, CLAMP.replace("min(x, high)", "[][x]"), EXAMPLES)
    assert (
        report
        == "ok 1 of 4\nclamp(5, 0, 3) raised IndexError line 4 want 3\nclamp(2, 0, 3) raised IndexError line 4 want 2\n"
    )


def test_report_shows_printing_arguments_and_missing_exceptions(tmp_path):
    gold = "def f(items):\n    if not items:\n        raise ValueError('empty')\n    print('n', len(items))\n    return items\n"
    examples = examples_of(gold, "f", ([1, 2],), ([],))
    assert run(tmp_path, gold, examples) == (0, "ok 2 of 2\n")
    printed = run(tmp_path, gold.replace("'n'", "'m'"), examples)
    assert printed == (1, "ok 1 of 2\nf([1, 2]) printed 'm 2\\n' want 'n 2\\n'\n")
    left = run(tmp_path, gold.replace("return items", "return [items.pop(), 2][1:] and [1, 2]"), examples)
    assert left == (1, "ok 1 of 2\nf([1, 2]) left [1] want [1, 2]\n")
    quiet = run(tmp_path, gold.replace("raise ValueError('empty')", "return None"), examples)
    assert quiet == (1, "ok 1 of 2\nf([]) = None want ValueError\n")


def test_every_function_passes_its_own_examples_and_a_long_value_is_cut(tmp_path):
    tasks = FixPythonTasks()
    for task_id in tasks.ids("held-out")[::45]:
        problem = tasks.problem(task_id)
        code, report = run(tmp_path, problem.source, examples_file(problem.name))
        assert (code, report) == (0, f"ok {len(problem.examples)} of {len(problem.examples)}\n")
    source = "def f(n):\n    return 'x' * n\n"
    _, report = run(tmp_path, source.replace("'x'", "'y'"), examples_of(source, "f", (500,), (400,)))
    assert (
        report
        == "ok 0 of 2\nf(500) = 'yyyyyyyyyyyyy.. want 'xxxxxxxxxxxxx..\nf(400) = 'yyyyyyyyyyyyy.. want 'xxxxxxxxxxxxx..\n"
    )


def test_verdict_of_the_index_is_that_of_the_program(tmp_path):
    tasks = FixPythonTasks()
    for task_id in tasks.ids("train")[::130]:
        task = tasks.get(task_id)
        code, report = run(tmp_path, task.base["solution.py"].decode(), task.base["examples.json"])
        assert (code != 0) == (task.metadata["visible"] == "fails"), (task_id, report)


def test_an_object_that_equals_everything_does_not_pass(tmp_path):
    source = "class Any(int):\n    def __eq__(self, other):\n        return True\n"
    source += "    __hash__ = None\ndef clamp(*a):\n    return Any()\n"
    code, report = run(tmp_path, source, EXAMPLES)
    assert code == 1
    assert report.startswith("ok 0 of 4")
