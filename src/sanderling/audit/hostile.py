"""Changes of a workspace that no fix is made of, and what becomes of them at the hand-in and in the grading."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from sanderling.audit.findings import CheckResult, Outcome, not_measured
from sanderling.audit.intervals import counted
from sanderling.audit.subject import Subject
from sanderling.errors import SandboxError
from sanderling.sandbox.protocol import Command

_MOST_GRADED = 30
_PROGRAM = Path(__file__).with_name("hostile_changes.py").read_bytes()


async def hostile_diffs(subject: Subject) -> CheckResult:
    """Links, special files, hooks and shadow modules are refused at the hand-in; what gets through is graded and not paid."""
    name, task = "hostile-diffs", subject.task
    spec = subject.environment.sandbox_spec(task)
    tools = {**spec.readonly, "hostile_changes.py": _PROGRAM}
    try:
        sandbox = await subject.bench.backend.create(replace(spec, readonly=tools))
        try:
            first = next(iter(subject.solution or task.base))
            result = await sandbox.exec(Command(argv=("python3", "-I", "-S", "/tools/hostile_changes.py", first)))
            handed_in = await sandbox.submission(task.editable)
        finally:
            await sandbox.destroy()
    except SandboxError as error:
        return not_measured(name, f"the hostile workspace can't be handed in: {error}", task.id)
    planted = result.stdout.decode("utf-8", "replace").split("\n")[:-1]
    if result.exit_code != 0 or not planted:
        return not_measured(name, f"the changes can't be made: {result.stderr[-200:]!r}", task.id)
    through = sorted(handed_in.files)
    tried = [handed_in.files, *({path: handed_in.files[path]} for path in through[:_MOST_GRADED])]
    attempts = await asyncio.gather(*(subject.grade(files, name, i) for i, files in enumerate(tried)))
    paid = [sorted(files) for files, attempt in zip(tried, attempts, strict=True) if attempt.paid]
    n = len(planted)
    common: dict[str, Any] = {
        "check": name,
        "task": task.id,
        "n": n,
        "events": len(paid),
        "rate": counted(min(n, len(paid)), n),
    }
    if paid:
        reason = f"a workspace without a fix is paid with {', '.join(paid[0][:5]) or 'nothing'}"
        return CheckResult(outcome=Outcome.FAILED, defect="hostile-diff-paid", reason=reason, **common)
    passed = f"; {len(through)} files handed in, graded alone and together, and not paid" if through else ""
    reason = f"{n} changes made, {len(handed_in.refused)} paths refused{passed}"
    return CheckResult(outcome=Outcome.PASSED, reason=reason, **common)
