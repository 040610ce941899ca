"""Turns an imported repository task into one that can be graded: its hidden suite is run and recorded on the right solution."""

from __future__ import annotations

from dataclasses import replace

from sanderling.errors import TaskError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.folder import Expected, TaskFolder
from sanderling.tasks.formats.swebench import resolve_test_ids
from sanderling.verify.suites.record import expect, record
from sanderling.verify.suites.verifier import suite_of


async def with_recording(folder: TaskFolder, backend: SandboxBackend) -> TaskFolder:
    """Return the task with its test ids as pytest names them here, and with what they show of the right solution.

    Ids that were cut inside their parameters are completed. Packages other than pytest are not there.

    Raises:
        TaskError: an id stands for no test that passes with the right solution, or FAIL_TO_PASS names one that passes on base/.
        VerifierError: the suite doesn't run. SandboxLost: as the sandbox says.
    """
    suite = suite_of(folder)
    recording = await record(suite, folder.gold(), backend)
    known = tuple(recording.tests)
    broken = resolve_test_ids(folder.expected.fail_to_pass, known)
    intact = tuple(name for name in resolve_test_ids(folder.expected.pass_to_pass, known) if name not in broken)
    recording = recording.restrict([*broken, *intact])
    failing, _ = await expect(suite, recording, folder.base, backend)
    passing = sorted(set(broken) - set(failing.fail_to_pass))
    if passing:
        raise TaskError(f"FAIL_TO_PASS names {passing[0]!r}, which passes without the solution already")
    recorded = Expected(fail_to_pass=broken, pass_to_pass=intact, recording=recording.as_json())
    return replace(folder, expected=recorded)
