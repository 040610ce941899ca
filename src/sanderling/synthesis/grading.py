"""The last gate: the verifier itself must pass the right solution and fail the bug, on what it recorded of the suite."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from sanderling.errors import TaskError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.synthesis.census import Census
from sanderling.synthesis.code_base import CodeBase
from sanderling.synthesis.drafting import TASK_LIMITS, Draft
from sanderling.synthesis.layout import Layout
from sanderling.synthesis.trials import Rejection, file_of
from sanderling.tasks.folder import TaskFolder
from sanderling.verify.suites.record import expect, record
from sanderling.verify.suites.recording import Recording, Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader:
    """What the verifier recorded of a code base's suite on the right solution, once for all of its tasks."""

    recording: Recording
    backend: SandboxBackend

    async def admit(self, folder: TaskFolder) -> Draft:
        """Grade base/ of a drafted task, and put what its hidden tests must show into the folder.

        Raises:
            VerifierError, SandboxLost, SandboxUnavailable: our side failed.
        """
        asked = {*folder.expected.fail_to_pass, *folder.expected.pass_to_pass}
        suite = Suite(tests=folder.tests, modules=folder.header.modules, limits=folder.header.limits)
        try:
            recording = self.recording.restrict(asked & self.recording.tests.keys())
            expected, _ = await expect(suite, recording, folder.base, self.backend)
        except TaskError:
            return Draft(folder=None, rejection=Rejection.NOT_GRADED)
        if not set(expected.fail_to_pass) <= set(folder.expected.fail_to_pass):
            return Draft(folder=None, rejection=Rejection.UNSTABLE)
        graded = Recording.from_json(expected.recording)
        metadata = {**folder.header.metadata, "lifted": f"{graded.lifted:.2f}"}
        return Draft(folder=replace(folder, expected=expected, header=replace(folder.header, metadata=metadata)))


async def prepare_grader(code: CodeBase, layout: Layout, census: Census, backend: SandboxBackend, file: Path) -> Grader:
    """Record the suite on the right solution, or read what was recorded.

    Args:
        file: where the recording is kept. It holds what is right: agents must not read it.

    Raises:
        TaskError: the verifier passes no test. VerifierError, SandboxLost, SandboxUnavailable: our side failed.
    """
    if file.is_file():
        return Grader(recording=Recording.from_json(json.loads(file.read_text("utf-8"))), backend=backend)
    tests = {name: code.files[name] for name in sorted({file_of(test) for test in census.stable})}
    suite = Suite(tests=tests, modules=layout.roots, limits=TASK_LIMITS)
    recording = await record(suite, code.files, backend)
    usable = recording.restrict(sorted(recording.tests.keys() & set(census.stable)))
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(usable.as_json()), "utf-8")
    draft.rename(file)
    return Grader(recording=usable, backend=backend)
