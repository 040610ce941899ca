"""Harbor folders: written and read back equal, refused by name where a sandbox can't stand in."""

from __future__ import annotations

import dataclasses
import os

import pytest

from sanderling.errors import TaskError
from sanderling.tasks.formats.dockerfile import NotPortable
from sanderling.tasks.formats.harbor import HarborFolder, read_harbor, write_harbor
from sanderling.tasks.formats.harbor_config import parse_config
from sanderling.tasks.formats.harbor_tasks import HarborTasks, portable_task
from sanderling.types import Limits, Task
from sanderling.verify.portable import PortableTests, folder_name, harbor_folder

DOCKERFILE = b"FROM python:3.11-slim\nWORKDIR /app\nCOPY src/ .\nENV MODE=test\n"
TEST = b"#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"


def foreign(config: str = "", **changes) -> HarborFolder:
    """A folder as somebody else may have written it."""
    parts = {
        "name": "hello",
        "config": parse_config(config, "task.toml"),
        "instruction": "Say hello.\n",
        "environment": {"Dockerfile": DOCKERFILE, "src/a.py": b"A\n", "src/run.sh": b"#!/bin/sh\n"},
        "tests": {"test.sh": TEST},
        "solution": {"solve.sh": b"#!/bin/sh\necho hello > a.py\n"},
        "executable": frozenset({"tests/test.sh", "environment/src/run.sh"}),
    }
    return HarborFolder(**{**parts, **changes})


def test_a_folder_reads_back_equal(tmp_path):
    folder = foreign('[metadata]\nx = 1\n[other]\ny = "kept"')
    write_harbor(tmp_path / "hello", folder)
    assert read_harbor(tmp_path / "hello") == folder
    assert os.access(tmp_path / "hello/tests/test.sh", os.X_OK)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hello"]


def test_nothing_is_overwritten_and_nothing_half_written_stays(tmp_path):
    write_harbor(tmp_path / "a", foreign())
    with pytest.raises(TaskError, match="exists"):
        write_harbor(tmp_path / "a", foreign())
    with pytest.raises(TaskError, match="relative path"):
        write_harbor(tmp_path / "b", foreign(tests={"test.sh": TEST, "../evil": b""}))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize(
    ("missing", "message"), [("instruction.md", "instruction.md is missing"), ("tests/test.sh", "missing")]
)
def test_a_folder_without_a_part_is_one_clear_error(tmp_path, missing, message):
    write_harbor(tmp_path / "a", foreign())
    (tmp_path / "a" / missing).unlink()
    with pytest.raises(TaskError, match=message):
        read_harbor(tmp_path / "a")


def test_a_link_in_a_folder_is_refused(tmp_path):
    write_harbor(tmp_path / "a", foreign())
    (tmp_path / "a/tests/link").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="link"):
        read_harbor(tmp_path / "a")


def test_the_task_of_a_foreign_folder():
    config = (
        "[agent]\ntimeout_sec = 90\n[environment]\nmemory_mb = 700\nenv = { A = '${A:-b}' }\n[metadata]\nlevel = 'easy'"
    )
    task = portable_task(foreign(config), "mine/test/hello").task
    assert task.base == {"a.py": b"A\n", "run.sh": b"#!/bin/sh\n"}
    assert (task.env, task.workdir, task.editable) == ({"MODE": "test", "A": "b"}, "/app", ("*",))
    assert (task.limits.episode_s, task.limits.memory_mb, task.limits.grading_s) == (90, 700, 600)
    assert task.setup == (("chmod", "+x", "--", "run.sh"),)
    assert task.metadata["level"] == "easy"
    assert "reward" not in repr(task)  # nothing of the tests is in what the agent gets


def test_a_separate_verifier_gets_the_artifacts_only():
    config = 'artifacts = ["/app/a.py", "/app/out"]\n[verifier]\nenvironment_mode = "separate"'
    assert portable_task(foreign(config), "x/test/y").task.editable == ("a.py", "a.py/*", "out", "out/*")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('[[steps]]\nname = "a"', "several steps"),
        ('[environment]\nos = "windows"', "it needs windows"),
        ("[environment]\ngpus = 1", "accelerator"),
        ('[[environment.mcp_servers]]\nname = "a"\nurl = "http://x"', "MCP servers"),
        ('[environment.healthcheck]\ncommand = "true"', "waits for a service"),
        ('[environment]\nnetwork_mode = "public"', "environment.network_mode is 'public'"),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.b"]', "agent.network_mode is 'allowlist'"),
        ("[verifier.environment]\ncpus = 1", "environment of its own"),
        ('[[verifier.collect]]\ncommand = "true"', "verifier.collect"),
        ('[agent]\nuser = "root"', "the user 'root'"),
        ('[environment.env]\nKEY = "${API_KEY}"', "${API_KEY} from the host"),
        ('[verifier]\nenvironment_mode = "separate"', "no work would reach the tests"),
        ('artifacts = ["/data/x"]\n[verifier]\nenvironment_mode = "separate"', "outside of the WORKDIR"),
    ],
)
def test_what_a_sandbox_has_not_is_refused_by_name(config, reason):
    with pytest.raises(NotPortable) as caught:
        portable_task(foreign(config), "x/test/y")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"environment": {"Dockerfile": DOCKERFILE, "docker-compose.yaml": b""}}, "starts services"),
        ({"environment": {}}, "neither environment/Dockerfile"),
        ({"tests": {"test.sh": b"apt-get install -y curl\n"}}, "tests/test.sh needs the network: 'apt-get'"),
        ({"tests": {"test.sh": b"# apt-get install\nuvx -w pytest pytest /tests\n"}}, "'uvx'"),
        ({"tests": {"test.bat": b""}}, "Windows"),
    ],
)
def test_files_that_need_more_are_refused_by_name(files, reason):
    with pytest.raises(NotPortable) as caught:
        portable_task(foreign(**files), "x/test/y")
    assert reason in str(caught.value)


def test_a_directory_holds_the_portable_ones_and_says_why_not_the_others(tmp_path):
    write_harbor(tmp_path / "set/good", foreign(name="good"))
    write_harbor(tmp_path / "set/bad", foreign("[environment]\ngpus = 1", name="bad"))
    tasks = HarborTasks(tmp_path / "set")
    assert list(tasks.ids("test")) == ["set/test/good"]
    assert tasks.refused == {"bad": "it needs an accelerator"}
    with pytest.raises(TaskError, match="did you mean 'set/test/good'"):
        tasks.get("set/test/goood")
    with pytest.raises(TaskError, match="bad: it needs an accelerator"):
        HarborTasks(tmp_path / "set/bad")
    with pytest.raises(TaskError, match="no Harbor task folder"):
        HarborTasks(tmp_path / "set/bad/tests")


def test_our_own_task_comes_back_equal(tmp_path):
    task = Task(
        id="env/held-out/a task/1",
        prompt="Fix it.\n",
        base={"pkg/a.py": b"x = 1\n", "b.txt": b"\x00\xff"},
        setup=(("python3", "-c", "print('a b')"),),
        editable=("pkg/*.py", "b.txt"),
        env={"MODE": "a b"},
        limits=Limits(memory_mb=100, max_turns=7, grading_s=20.0),
        metadata={"family": "f", "split": "held-out"},
    )
    packed = PortableTests(tests={"test.sh": TEST}, solution={"pkg/a.py": b"x = 2\n"}, channel="observation")
    folder = harbor_folder(task, packed)
    assert folder.config.artifacts == ["/app/b.txt", "/app/pkg"]
    write_harbor(tmp_path / folder.name, folder)
    [back] = [HarborTasks(tmp_path).get(task.id)]
    expected = dataclasses.replace(
        task, workdir="/app", setup=(("sh", "-ec", "python3 -c 'print('\"'\"'a b'\"'\"')'"),)
    )
    labels = {"format": "harbor", "folder": folder.name}
    assert dataclasses.replace(back, metadata={}) == dataclasses.replace(expected, metadata={})
    assert back.metadata == {**task.metadata, **labels}
    assert folder.name == folder_name(task.id) == "env__held-out__a-task__1"
