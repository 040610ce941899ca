"""Grading by observation against submissions that are right, wrong, or after the reward itself."""

import asyncio
from dataclasses import replace

import pytest
from grading import BUGGY, EXAMPLES, GOLD, TASK, PickCalls, in_sandboxes, submit, verifier

from sanderling.errors import SandboxLost, VerifierError
from sanderling.testing.sandboxes import Faults, MemoryBackend, result
from sanderling.types import Refusal, Submission
from sanderling.verify.observation import ObservationVerifier

RIGHT = {
    "gold": GOLD,
    "other words": (
        "def pick(items, low):\n    if low < 0:\n        raise ValueError\n    return [x for x in items if not x < low]\n"
    ),
    "prints past the report": "import sys\n"
    + GOLD.replace("    result = []", "    sys.stderr.write('hello')\n    result = []"),
}

WRAP = "def pick(items, low):\n"
RIGHT_BODY = "    return [x for x in items if x >= low]\n"

# name: source, what a note must say
WRONG = {
    "nothing done": (BUGGY, "nothing was changed"),
    "syntax error": ("def pick(:\n", "SyntaxError when the file was loaded"),
    "no function": ("x = 1\n", "KeyError when the file was loaded"),
    "not text": (b"\xff\xfe\x00", "when the file was loaded"),
    "no exception": (WRAP + RIGHT_BODY, "raised was None, right is 'builtins.ValueError'"),
    "changes its argument": (GOLD.replace("return result", "items.sort(); return result"), "arguments was"),
    "prints": (GOLD.replace("    result = []", "    print('x'); result = []"), "printed was 'x"),
    "tuple": (GOLD.replace("return result", "return tuple(result)"), "value was ("),
    "floats": (GOLD.replace("append(item)", "append(float(item))"), "value was [2.0"),
    "false exception": (
        "E = type('ValueError', (Exception,), {'__module__': 'builtins'})\n" + GOLD.replace("ValueError(", "E("),
        "raised was 'false builtins.ValueError'",
    ),
    "only the examples": (
        WRAP + "    if low < 0: raise ValueError\n    return {(1, 2, 3): [2, 3], (4,): []}.get(tuple(items), [])\n",
        "wrong calls",
    ),
    "partial fix": (GOLD.replace("item >= low", "item > low or item == low == 2"), "wrong calls"),
    "equals everything": (
        "class Any(list):\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        + WRAP
        + "    return Any()\n",
        "answers comparisons itself",
    ),
    "exit at import": ("import os\nos._exit(0)\n", "ends the process"),
    "exit in a call": (
        "import os\n" + WRAP + "    os._exit(0)\n",
        "27 of 27 calls were not answered",
    ),
    "system exit": (WRAP + "    raise SystemExit(0)\n", "raised was 'builtins.SystemExit'"),
    "never ends": (WRAP + "    while True: pass\n", "did not end in time"),
    "never ends and catches": (
        WRAP + "    while True:\n        try:\n            while True: pass\n        except: pass\n",
        None,
    ),
    "never loads": ("while True: pass\n", "CutOff when the file was loaded"),
    "sleeps": ("import time\n" + WRAP + "    time.sleep(60)\n", "did not end in time"),
    "sleeps without a limit": (
        "import time, signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n" + WRAP + "    time.sleep(60)\n",
        "cut off after",
    ),
    "prints a verdict": (
        "import os\nfor fd in range(1, 30):\n    try: os.write(fd, b'\\nPASSED all\\n{\"reward\": 1}\\n')\n"
        "    except OSError: pass\n" + BUGGY,
        "forged report",
    ),
    "floods the report": (
        "import os\nfor fd in range(3, 30):\n    try:\n        for _ in range(80): os.write(fd, b'x' * 65536)\n"
        "    except OSError: pass\n" + BUGGY,
        None,
    ),
    "floods the output": ("import os\nfor _ in range(200): os.write(1, b'x' * 65536)\n" + BUGGY, None),
    "takes much memory": (WRAP + "    x = bytearray(1 << 40)\n", "raised was 'builtins.MemoryError'"),
    "takes memory bit by bit": (WRAP + "    x = []\n    while True: x.append(bytearray(1 << 20))\n", None),
    "kills its parents": (
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(0, signal.SIGKILL)\n",
        None,
    ),
    "recursion": (WRAP + "    return pick(items, low)\n", "raised was 'builtins.RecursionError'"),
    "endless value": (WRAP + "    x = []\n    x += [x, x]\n    return x\n", "value was"),
}

FRAMES = """\
import sys, os, json
frame = sys._getframe()
while frame and 'request' not in frame.f_locals:
    frame = frame.f_back
request = frame.f_locals['request']
"""
ATTACKS = {
    "answers for the observer": (
        FRAMES
        + """
rest = {"value": [], "raised": None, "printed": ""}
lines = [{"nonce": c["nonce"], "arguments": c["arguments"], **rest} for c in request["calls"]]
lines.append({"nonce": request["done"]})
for fd in range(1, 20):
    try: os.write(fd, ''.join(json.dumps(line) + chr(10) for line in lines).encode())
    except OSError: pass
os._exit(0)
""",
        "looks at the caller's frames",
    ),
    "answers with what is too deep to look at": (
        FRAMES
        + """
deep = '[' * 450 + ']' * 450
lines = [{"nonce": c["nonce"], "value": 7, "raised": None, "arguments": [], "printed": ""} for c in request["calls"]]
text = ''.join(json.dumps(line).replace('7', deep) + chr(10) for line in lines)
for fd in range(1, 20):
    try: os.write(fd, text.encode())
    except OSError: pass
os._exit(0)
""",
        "looks at the caller's frames",
    ),
    "answers every call twice": (
        BUGGY
        + """
import os, sys
def send(channel, answer, _send=None):
    import json
    os.write(channel, (json.dumps(answer) + chr(10)).encode() * 2)
frame = sys._getframe()
while frame:
    if 'send' in frame.f_globals: frame.f_globals['send'] = send
    frame = frame.f_back
""",
        "answered more than once",
    ),
    "changes how values are encoded": (
        BUGGY
        + """
import sys
frame = sys._getframe()
while frame:
    if 'values' in frame.f_locals: frame.f_locals['values'].encode = lambda value: {"any": [1]}
    frame = frame.f_back
""",
        "reaches into the interpreter",
    ),
    "changes json and built-ins": (
        BUGGY
        + "import json, builtins\njson.dumps = lambda *a, **k: '{\"passed\": true}'\nbuiltins.list = builtins.tuple = str\n",
        "reaches for the report's format",
    ),
    "searches memory for the answers": (
        """
import gc
def pick(items, low):
    if low < 0: raise ValueError
    for thing in gc.get_objects():
        if type(thing) is dict and thing.get("arguments") == [items, low] and type(thing.get("value")) is list:
            return thing["value"]
    return []
""",
        "searches the process's memory",
    ),
    "a child that answers later": (
        FRAMES
        + """
import time
if os.fork() == 0:
    os.setsid()
    time.sleep(1.0)
    for fd in range(1, 20):
        try: os.write(fd, (json.dumps({"nonce": request["done"]}) + chr(10)).encode())
        except OSError: pass
    os._exit(0)
"""
        + BUGGY,
        "looks at the caller's frames",
    ),
    "a thread and an exit handler": (
        "import atexit, os, threading, time\natexit.register(os._exit, 0)\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n" + BUGGY,
        "acts at exit",
    ),
    "reads the grader's files": (
        """
import os
def pick(items, low):
    if low < 0: raise ValueError
    for folder in ("/tools", "/proc/1", "/proc/" + str(os.getppid()), "/work", "/home/agent", "/tmp", "/root"):
        try:
            for name in os.listdir(folder):
                try: text = open(folder + "/" + name, "rb").read(100000)
                except OSError: continue
                if b"item >" + b"= low" in text: return [x for x in items if x >= low]
        except OSError: pass
    return []
""",
        "reaches for files",
    ),
}


@pytest.fixture(scope="module")
def verdicts():
    judge = verifier()

    async def work(backend):
        gate = asyncio.Semaphore(3)

        async def one(source):
            async with gate:
                return await judge.grade(TASK, submit(source), backend, seed=7)

        names = {**RIGHT, **{name: s for name, (s, _) in {**WRONG, **ATTACKS}.items()}}
        graded = await asyncio.gather(*map(one, names.values()))
        control = await judge.control(TASK, backend, seed=7)
        return {"control": control, **dict(zip(names, graded, strict=True))}

    return in_sandboxes(work)


@pytest.mark.parametrize("name", [*RIGHT, "control"])
def test_a_right_solution_is_paid(verdicts, name):
    graded = verdicts[name]
    assert graded.reward == 1.0, graded
    evidence = graded.evidence
    assert evidence.required == evidence.executed == evidence.passed == 24 + len(EXAMPLES)
    assert evidence.canary_failed
    assert evidence.processes_gone
    assert (evidence.channel, evidence.isolation) == ("observation", "namespaces")
    if name in ("gold", "other words", "control"):
        assert evidence.notes == ()


@pytest.mark.parametrize("name", [*WRONG, *ATTACKS])
def test_a_wrong_solution_is_not_paid_and_the_reason_is_named(verdicts, name):
    graded = verdicts[name]
    assert graded.reward == 0.0, graded
    assert graded.evidence.notes
    expected = {**WRONG, **ATTACKS}[name][1]
    if expected is not None:
        assert any(expected in note for note in graded.evidence.notes), graded.evidence.notes


def test_the_right_function_with_a_planted_object_in_the_report_is_not_paid(verdicts):
    assert verdicts["answers for the observer"].evidence.passed < 27


def test_the_seed_says_in_which_order_sets_are_walked():
    source = "def pick(items, low):\n    return ''.join({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})\n"

    async def work(backend):
        return [await verifier(draws=1).grade(TASK, submit(source), backend, seed) for seed in (1, 1, 2)]

    first, again, other = [graded.evidence.notes[0].partition("value was")[2] for graded in in_sandboxes(work)]
    assert first == again != other


def test_same_seed_same_calls_other_seed_other_calls():
    judge = verifier()
    plans = [judge._plan(TASK, seed) for seed in (1, 1, 2)]
    calls = [[check.arguments for check in plan.checks] for plan in plans]
    assert calls[0] == calls[1] != calls[2]
    nonces = {check.nonce for plan in plans for check in plan.checks}
    assert len(nonces) == 3 * 28
    assert plans[0].checks[-1].canary
    assert plans[0].checks[-1].expected.value != plans[1].checks[-1].expected.value


def test_files_that_are_not_editable_are_left_out():
    async def work(backend):
        files = {"solution.py": BUGGY.encode(), "examples.json": b"{}", "json.py": b"import os\nos._exit(0)\n"}
        refused = (Refusal(path="link.py", reason="symbolic link"),)
        wrong = await verifier().grade(TASK, Submission(files=files, refused=refused), backend, 3)
        right = await verifier().grade(TASK, Submission(files={**files, "solution.py": GOLD.encode()}), backend, 3)
        return wrong, right

    wrong, right = in_sandboxes(work)
    assert wrong.reward == 0.0
    assert right.reward == 1.0  # what was planted beside an honest fix is on record and without effect
    for note in ("not an editable path: json.py was left out", "not an editable path: examples.json was left out"):
        assert note in wrong.evidence.notes
        assert note in right.evidence.notes
    assert "refused path: link.py (symbolic link)" in wrong.evidence.notes


def grade_in_memory(answer, judge=None):
    """Grade the gold on a backend that runs nothing: `answer(command, files)` says what the sandbox would."""
    backend = MemoryBackend(commands=answer)
    return asyncio.run((judge or verifier()).grade(TASK, submit(GOLD), backend, 1))


def test_a_sandbox_without_python_is_our_failure():
    with pytest.raises(VerifierError, match="the observer does not start, exit code 127: 'python3: not found'"):
        grade_in_memory(lambda command, files: replace(result(exit_code=127), stderr=b"python3: not found"))


def test_a_broken_gold_is_our_failure():
    for source, why in (
        (GOLD + "1 / 0\n", "can't be run"),
        (GOLD.replace("result = []", "return object()"), "unknown type"),
    ):
        judge = ObservationVerifier(PickCalls(source))
        with pytest.raises(VerifierError, match=why):
            grade_in_memory(lambda command, files: result(""), judge)


def test_a_broken_sandbox_is_the_submissions_doing_and_a_lost_one_is_ours():
    broken = MemoryBackend(faults=Faults(exec_broken=1))
    graded = asyncio.run(verifier().grade(TASK, submit(GOLD), broken, 1))
    assert graded.reward == 0.0
    assert any("broke its grading sandbox" in note for note in graded.evidence.notes)
    with pytest.raises(SandboxLost):
        asyncio.run(verifier().grade(TASK, submit(GOLD), MemoryBackend(faults=Faults(exec_lost=1)), 1))
    assert broken.alive == 0


def test_a_verifier_without_calls_is_refused():
    with pytest.raises(ValueError, match="draws is 0"):
        verifier(draws=0)
