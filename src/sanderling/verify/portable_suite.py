"""Packs a task with a hidden pytest suite for other systems, which run it with their own pytest."""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase

from sanderling.tasks.folder import TaskFolder
from sanderling.verify.portable import PortableTests, script
from sanderling.verify.portable_suite_grader import STEERING

PYTEST = "pytest>=8"
_SCRIPT = b"#!/bin/sh\nexec python3 -I /tests/grade.py\n"


def suite_tests(folder: TaskFolder) -> PortableTests:
    """Return the hidden suite of a task as tests that judge in process: every id of both lists must pass, exactly once.

    The submitted code runs in the process that holds the assertions. Sanderling's own verifier keeps them apart; other systems
    have nothing of the kind, so the channel is marked.
    """
    tree = {**folder.base, **folder.tests}
    steering = {path: hashlib.sha256(tree[path]).hexdigest() for path in tree if _steers(path)}
    expected = {
        "ids": [*folder.expected.fail_to_pass, *folder.expected.pass_to_pass],
        "roots": list(folder.header.modules),
        "steering": steering,
        "seconds": folder.header.limits.grading_s,
    }
    gold = folder.gold()
    return PortableTests(
        tests={
            "test.sh": _SCRIPT,
            "grade.py": script("portable_suite_grader.py"),
            "run_suite.py": script("portable_suite_runner.py"),
            "expected.json": json.dumps(expected).encode(),
            **{f"suite/{path}": content for path, content in folder.tests.items()},
        },
        solution={path: content for path, content in gold.items() if folder.base.get(path) != content},
        packages=(PYTEST,),
        channel="in-process",
    )


def _steers(path: str) -> bool:
    """Whether a file of this name steers the interpreter or a test run."""
    return any(fnmatchcase(part, pattern) for part in path.split("/") for pattern in STEERING)
