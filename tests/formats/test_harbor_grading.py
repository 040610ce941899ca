"""Grading by Harbor's contract, in real sandboxes: what is paid, what is 0, and what is a failure of ours."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from format_sandboxes import in_sandboxes

from sanderling.assemble import load_environment
from sanderling.errors import VerifierError
from sanderling.rollout.checks import check_paid
from sanderling.tasks.folder import Expected, Source, TaskFolder, TaskHeader
from sanderling.tasks.formats.harbor import HarborFolder, write_harbor
from sanderling.tasks.formats.harbor_config import parse_config
from sanderling.tasks.formats.harbor_tasks import HarborTasks
from sanderling.tasks.patches import make_patch
from sanderling.testing import records
from sanderling.types import Limits, Submission
from sanderling.verify.harbor import HarborVerifier
from sanderling.verify.portable import harbor_folder
from sanderling.verify.portable_suite import suite_tests

DOCKERFILE = b"FROM python:3.11-slim\nWORKDIR /app\nCOPY files/ /app/\nRUN mkdir -p made && echo here > made/x\n"
TEST = b"""\
#!/bin/bash
set -e
test "$(pwd -P)" = "$(realpath /app)" && test -f /app/made/x && test "$MODE" = strict
python3 /app/answer.py > /tmp/said || true
test "$(cat /tmp/said)" = 42 && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
CONFIG = '[verifier]\ntimeout_sec = 10.0\nenv = { MODE = "strict" }\n[environment]\nnetwork_mode = "no-network"'
WRONG, RIGHT = b"print(41)\n", b"print(42)\n"


def task_of(tmp_path, *, test=TEST, solution=b"#!/bin/sh\necho 'print(42)' > answer.py\n", config=CONFIG):
    folder = HarborFolder(
        name="answer",
        config=parse_config(config, "task.toml"),
        instruction="Print 42.\n",
        environment={"Dockerfile": DOCKERFILE, "files/answer.py": WRONG},
        tests={"test.sh": test},
        solution={"solve.sh": solution} if solution else {},
        executable=frozenset({"tests/test.sh"}),
    )
    write_harbor(tmp_path / "answer", folder)
    tasks = HarborTasks(tmp_path)
    [task_id] = tasks.ids("test")
    return tasks.get(task_id), HarborVerifier(tasks)


def graded(tmp_path, answer, **changes):
    """The verdict on a task's answer.py (None: nothing handed in)."""
    task, verifier = task_of(tmp_path, **changes)
    files = {} if answer is None else {"answer.py": answer}
    return in_sandboxes(lambda backend: verifier.grade(task, Submission(files=files), backend, 0))


def test_the_right_answer_is_paid_with_evidence(tmp_path):
    verdict = graded(tmp_path, RIGHT)
    assert verdict.reward == 1.0
    check_paid(records.trajectory(), verdict)  # invariant 8: a canary failed, everything required was executed
    assert verdict.evidence.channel == "reward-file"


@pytest.mark.parametrize("answer", [WRONG.replace(b"41", b"43"), None])
def test_wrong_and_missing_answers_are_not_paid(tmp_path, answer):
    assert graded(tmp_path, answer).reward == 0.0


def test_the_solution_is_run_and_paid(tmp_path):
    task, verifier = task_of(tmp_path)
    assert in_sandboxes(lambda backend: verifier.control(task, backend, 0)).reward == 1.0


def test_files_that_may_not_change_are_left_out(tmp_path):
    config = 'artifacts = ["/app/answer.py"]\n' + CONFIG.replace("timeout", "environment_mode = 'separate'\ntimeout")
    task, verifier = task_of(tmp_path, config=config)
    work = Submission(
        files={"answer.py": WRONG, "made/x": b"", "../tests/test.sh": b"echo 1 > /logs/verifier/reward.txt\n"}
    )
    verdict = in_sandboxes(lambda backend: verifier.grade(task, work, backend, 0))
    assert verdict.reward == 0.0
    assert len([note for note in verdict.evidence.notes if note.startswith("not an editable path")]) == 2


def test_json_goes_before_text_and_parts_are_kept(tmp_path):
    test = b"""#!/bin/sh
echo 0 > /logs/verifier/reward.txt
reward=0.75
grep -q 42 answer.py || reward=0
echo "{\\"reward\\": $reward, \\"style\\": 2}" > /logs/verifier/reward.json
"""
    verdict = graded(tmp_path, RIGHT, test=test)
    assert verdict.reward == 0.75
    assert verdict.components == {"reward": 0.75, "style": 2.0}


def test_the_seed_says_in_which_order_the_tests_walk_sets(tmp_path):
    test = b"""#!/bin/sh
grep -q 42 answer.py && reward=1 || reward=0
echo "{\\"reward\\": $reward, \\"hash\\": $(python3 -c 'print(hash("x") % 9973)')}" > /logs/verifier/reward.json
"""
    task, verifier = task_of(tmp_path, test=test)
    work = Submission(files={"answer.py": RIGHT})

    async def grade_all(backend):
        return [(await verifier.grade(task, work, backend, seed)).components["hash"] for seed in (1, 1, 2)]

    first, again, other = in_sandboxes(grade_all)
    assert first == again != other


@pytest.mark.parametrize("solution", [b"#!/bin/sh\ntrue\n", b""])
def test_tests_that_never_leave_a_reward_are_our_failure(tmp_path, solution):
    endings = (b"true", b": > /logs/verifier/reward.txt", b"echo lots > /logs/verifier/reward.txt", b"sleep 60")
    config = CONFIG.replace("10.0", "1.0")
    made = [
        task_of(tmp_path / str(n), test=b"#!/bin/sh\n" + end + b"\n", solution=solution, config=config)
        for n, end in enumerate(endings)
    ]

    async def grade_all(backend):
        work = Submission(files={"answer.py": WRONG + b"#"})
        gradings = (verifier.grade(task, work, backend, 0) for task, verifier in made)
        return await asyncio.gather(*gradings, return_exceptions=True)

    for error in in_sandboxes(grade_all):
        assert isinstance(error, VerifierError)
        assert "leave no reward" in str(error)


PREVENTING = (
    b"import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    b"import shutil; shutil.rmtree('/logs/verifier')",
    b"import os; os.remove('/logs/verifier/.keep'); os.rmdir('/logs/verifier'); os.symlink('/etc', '/logs/verifier')",
    b"import os; os.symlink('/proc/sys/kernel/pid_max', '/logs/verifier/reward.json')",
    b"open('/logs/verifier/reward.json', 'w').write('nonsense')",
    b"import time; time.sleep(100)",
)


@pytest.mark.slow
def test_an_agent_that_prevents_the_reward_gets_0(tmp_path):
    task, verifier = task_of(tmp_path, config=CONFIG.replace("10.0", "4.0"))

    async def grade_all(backend):
        works = [Submission(files={"answer.py": source}) for source in PREVENTING]
        return await asyncio.gather(*(verifier.grade(task, work, backend, 0) for work in works))

    for verdict in in_sandboxes(grade_all):
        assert verdict.reward == 0.0
        assert any("left no reward for this solution" in note for note in verdict.evidence.notes)


def test_a_task_that_pays_for_nothing_is_no_task(tmp_path):
    with pytest.raises(VerifierError, match="doing nothing can't be told from work"):
        graded(tmp_path, RIGHT, test=b"#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")


def test_a_solution_that_fails_is_said(tmp_path):
    task, verifier = task_of(tmp_path, solution=b"#!/bin/sh\necho no >&2; exit 3\n")
    with pytest.raises(VerifierError, match="exit code 3"):
        in_sandboxes(lambda backend: verifier.control(task, backend, 0))


def round_trip(tmp_path, ids):
    """Export tasks of fix_python, read them back, and compare the verdicts on the gold solution and on the base."""
    environment = load_environment("fix_python")
    for task_id in ids:
        task = environment.tasks.get(task_id)
        folder = harbor_folder(task, environment.verifier.portable(task, 7))
        write_harbor(tmp_path / folder.name, folder)
    tasks = HarborTasks(tmp_path)
    verifier = HarborVerifier(tasks)

    async def grade_all(backend):
        verdicts = {}
        for task_id in ids:
            task, original = tasks.get(task_id), environment.tasks.get(task_id)
            assert (task.base, task.editable, task.limits) == (original.base, original.editable, original.limits)
            gold = Submission(files={"solution.py": environment.tasks.problem(task_id).source.encode()})
            for name, work in (("gold", gold), ("base", Submission(files={}))):
                ours = await environment.verifier.grade(original, work, backend, 7)
                theirs = await verifier.grade(task, work, backend, 0)
                verdicts[task_id, name] = (ours.reward, theirs.reward)
            verdicts[task_id, "oracle"] = (1.0, (await verifier.control(task, backend, 0)).reward)
        return verdicts

    verdicts = in_sandboxes(grade_all)
    assert not tasks.refused
    expected = {key: (0.0, 0.0) if key[1] == "base" else (1.0, 1.0) for key in verdicts}
    assert verdicts == expected
    assert len(verdicts) == 3 * len(ids)


def spread(count):
    tasks = load_environment("fix_python").tasks
    every = [task_id for split in tasks.splits() for task_id in tasks.ids(split)]
    return every[:: len(every) // count][:count]


def test_exported_tasks_are_graded_as_ours_one_of_them(tmp_path):
    round_trip(tmp_path, spread(1))


@pytest.mark.slow
def test_exported_tasks_are_graded_as_ours_fifty_of_them(tmp_path):
    round_trip(tmp_path, spread(50))


KILL = "import os\nos.kill(os.getppid(), 9)\n"
CHEATS = {
    "reads what is right": "print(open('/tests/calls.json').read())\n",
    "ends the grader": KILL,
    "writes the reward": "open('/logs/verifier/reward.txt', 'w').write('1')\nimport os\nos._exit(0)\n",
    "ends the grader and writes": KILL + "open('/logs/verifier/reward.txt', 'w').write('1')\n",
    "ends the grader and links": KILL
    + "os.symlink('/proc/sys/kernel/randomize_va_space', '/logs/verifier/reward.txt')\n",
    "reads the grader's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(1)\n",
    "answers early": "import os\nos.write(3, b'{}')\nos._exit(0)\n",
    "never ends": "while True: pass\n",
}


def test_no_cheat_against_an_exported_task_pays(tmp_path):
    environment = load_environment("fix_python")
    [task_id] = spread(1)
    task = environment.tasks.get(task_id)
    task = dataclasses.replace(task, limits=dataclasses.replace(task.limits, grading_s=5.0))
    folder = harbor_folder(task, environment.verifier.portable(task, 7))
    write_harbor(tmp_path / folder.name, folder)
    tasks = HarborTasks(tmp_path)
    verifier = HarborVerifier(tasks)
    works = {name: cheat + task.base["solution.py"].decode() for name, cheat in CHEATS.items()}
    for name in (
        "reads what is right",
        "reads the grader's memory",
    ):  # both raise where they fail
        works[f"{name}, right otherwise"] = CHEATS[name] + environment.tasks.problem(task_id).source

    async def grade_all(backend):
        gradings = (
            verifier.grade(tasks.get(task_id), Submission(files={"solution.py": source.encode()}), backend, 0)
            for source in works.values()
        )
        return await asyncio.gather(*gradings)

    verdicts = in_sandboxes(grade_all)
    assert [verdict.reward for verdict in verdicts] == [0.0] * len(works)


SUITE = """
import pytest
from pkg.core import add


@pytest.mark.parametrize("pair", [(1, 2), (0, 5)])
def test_add(pair):
    assert add(*pair) == sum(pair)


def test_zero():
    assert add(0, 0) == 0


@pytest.mark.skip
def test_skipped():
    pass
"""
SUBTRACTS, ADDS = (f"def add(a, b):\n    return a {sign} b\n".encode() for sign in "-+")
HOOK = b"""
import pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    report.outcome = "passed"
    return report
"""


def suite_folder(ids=("tests/test_core.py::test_add[pair0]", "tests/test_core.py::test_add[pair1]")):
    base = {"pkg/__init__.py": b"", "pkg/core.py": SUBTRACTS}
    return TaskFolder(
        header=TaskHeader(
            id="pkg/test/add",
            source=Source(name="pkg"),
            editable=("pkg/*.py", "conftest.py"),
            limits=Limits(grading_s=20.0),
        ),
        instruction="add subtracts.\n",
        base=base,
        tests={"tests/test_core.py": SUITE.encode()},
        expected=Expected(fail_to_pass=ids, pass_to_pass=("tests/test_core.py::test_zero",)),
        gold_patch=make_patch(base, {**base, "pkg/core.py": ADDS}),
    )


@pytest.mark.slow
def test_an_exported_suite_is_graded_by_its_ids(tmp_path):
    works = {
        "right": ({"pkg/core.py": ADDS}, 1.0),
        "untouched": ({}, 0.0),
        "half": ({"pkg/core.py": b"def add(a, b):\n    return 3 if a else a - b\n"}, 0.0),
        "hook": ({"conftest.py": HOOK}, 0.0),
        "shadowed pytest": ({"pkg/core.py": SUBTRACTS, "pkg/pytest.py": b"def main(*a, **k): return 0\n"}, 0.0),
        "ends early": ({"pkg/core.py": b"import os\nos._exit(0)\n"}, 0.0),
        "skips": ({"pkg/core.py": b"import pytest\ndef add(a, b):\n    pytest.skip('x')\n"}, 0.0),
    }
    folder = suite_folder()
    write_harbor(tmp_path / "add", harbor_folder(folder.task(), suite_tests(folder)))
    tasks = HarborTasks(tmp_path)
    task, verifier = tasks.get("pkg/test/add"), HarborVerifier(tasks)

    async def grade_all(backend):
        gradings = (verifier.grade(task, Submission(files=files), backend, 0) for files, _ in works.values())
        return await asyncio.gather(*gradings, verifier.control(task, backend, 0))

    *verdicts, control = in_sandboxes(grade_all)
    assert {name: verdict.reward for name, verdict in zip(works, verdicts, strict=True)} == {
        name: reward for name, (_, reward) in works.items()
    }
    assert control.reward == 1.0
