"""Checks of where the agent works: what it can read, reach, leave behind and hand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sanderling.audit.findings import CheckResult, Outcome, not_applicable, not_measured
from sanderling.audit.intervals import counted
from sanderling.audit.secrecy import Hit, needles, scan_sandbox, search
from sanderling.audit.subject import Subject
from sanderling.errors import SandboxError
from sanderling.sandbox.protocol import Command, SandboxBackend, SandboxSpec
from sanderling.testing import sandbox_attacks_privilege, sandbox_attacks_reach
from sanderling.testing.sandbox_check import Check as Attack
from sanderling.testing.sandbox_check import Outcome as AttackOutcome
from sanderling.testing.sandbox_conformance import CHECKS, run_check
from sanderling.types import Limits

_SHOWN = 3
_GIT_S = 30.0
_PROBE_S = 30.0
_EGRESS = Path(__file__).with_name("egress_probe.py").read_bytes()
_LEFTOVERS = (
    "daemon",
    "daemon_after_timeout",
    "ignore_sigterm",
    "submission_kills",
    "sandbox_to_sandbox",
    "orphans_reaped",
)
_CHANNELS = ("loopback_tcp", "unix_path_socket", "abstract_socket")
ATTACKS: Mapping[str, tuple[Attack, ...]] = {
    "egress": tuple(check for check in CHECKS if check.id in _CHANNELS),
    "process-split": (*sandbox_attacks_reach.ATTACKS, *sandbox_attacks_privilege.ATTACKS),
    "leftovers": tuple(check for check in CHECKS if check.id in _LEFTOVERS),
}
"""Attacks of the sandbox's conformance suite, by the check that they belong to."""


async def contained(check: str, backend: SandboxBackend) -> CheckResult:
    """Run the attacks of a check against canaries outside of the sandbox; what the backend declares open fails too."""
    capabilities = backend.probe()
    refused, broken, skipped = 0, [], []
    for attack in ATTACKS[check]:
        if attack.dangerous or attack.ends_backend:
            skipped.append(attack.id)
            continue
        found = await run_check(attack, backend, capabilities)
        if found.outcome is AttackOutcome.PASSED:
            refused += 1
        elif found.outcome is AttackOutcome.SKIPPED:
            skipped.append(attack.id)
        else:
            broken.append(f"{found.id}: {found.reason}")
    if check == "egress":
        answered, probes = await _answers_from_outside(backend)
        refused += probes - len(answered)
        broken += answered
    n = refused + len(broken)
    if n == 0:
        return not_measured(check, f"no attack could be run here: {', '.join(skipped)}")
    left_out = f"; not run here: {', '.join(skipped)}" if skipped else ""
    common: dict[str, Any] = {"check": check, "n": n, "events": len(broken), "rate": counted(len(broken), n)}
    if broken:
        return CheckResult(
            outcome=Outcome.FAILED, defect=f"open-{check}", reason="; ".join(broken[:_SHOWN]) + left_out, **common
        )
    return CheckResult(
        outcome=Outcome.PASSED, reason=f"{n} of {n} attacks refused by {capabilities.name}{left_out}", **common
    )


async def _answers_from_outside(backend: SandboxBackend) -> tuple[list[str], int]:
    """Return what a program in the sandbox reached of the world, and how much it tried."""
    sandbox = await backend.create(
        SandboxSpec(files={}, readonly={"egress_probe.py": _EGRESS}, limits=Limits(command_s=_PROBE_S))
    )
    try:
        result = await sandbox.exec(Command(argv=("python3", "-I", "-S", "/tools/egress_probe.py")))
    finally:
        await sandbox.destroy()
    lines = result.stdout.decode("utf-8", "replace").split("\n")
    tried = [line for line in lines if line.startswith(("refused ", "reached "))]
    if lines[-1:] != [""] or "done" not in lines:
        return ["the probe of the network didn't come to its end"], 1
    return [line for line in tried if line.startswith("reached ")], len(tried)


def in_the_task(subject: Subject) -> CheckResult:
    """Nothing hidden stands in the files, the tools and the variables that the agent is given."""
    name, task = "secrecy", subject.task
    if not subject.hidden:
        return not_measured(name, subject.undisclosed or "the verifier names nothing hidden", task.id)
    wanted = needles(task, subject.hidden)
    places = {f"file {path}": content for path, content in task.base.items()}
    places |= {f"tool {path}": content for path, content in subject.environment.tools.items()}
    places["variables"] = "\n".join(map(str, task.env.values())).encode()
    hits = search(places, wanted)
    return _secrecy(task.id, hits, f"{len(wanted)} needles in {len(places)} files, tools and variables", len(places))


async def in_the_sandbox(subjects: Sequence[Subject]) -> CheckResult:
    """Nothing hidden of any of these tasks stands in any file or process that a command in the sandbox can read."""
    wanted = [needle for subject in subjects for needle in needles(subject.task, subject.hidden)]
    if not wanted:
        return not_measured("secrecy", "the verifier names nothing hidden")
    first = subjects[0]
    spec = first.environment.sandbox_spec(first.task)
    try:
        scan = await scan_sandbox(first.bench.backend, spec, first.task.setup, wanted)
    except (SandboxError, ValueError) as error:
        return not_measured("secrecy", f"the sandbox can't be searched: {error}")
    size = (
        f"{scan.files} files, {scan.bytes / 2**20:.0f} MiB ({scan.skipped} larger than 1 MiB, binary or not readable)"
    )
    return _secrecy("", scan.hits, f"{len(wanted)} needles of {len(subjects)} tasks in {size}", scan.files)


def _secrecy(task: str, hits: Sequence[Hit], searched: str, n: int) -> CheckResult:
    common: dict[str, Any] = {"check": "secrecy", "task": task, "n": n, "events": len(hits)}
    if hits:
        shown = "; ".join(map(str, hits[:_SHOWN]))
        return CheckResult(
            outcome=Outcome.FAILED, defect="hidden-material-readable", reason=f"{len(hits)} hits: {shown}", **common
        )
    return CheckResult(outcome=Outcome.PASSED, reason=f"0 hits: {searched}", **common)


def in_the_prompt(subject: Subject) -> CheckResult:
    """The prompt holds no two consecutive lines of the fix or the tests."""
    name, task = "statement", subject.task
    if not subject.hidden:
        return not_measured(name, subject.undisclosed or "the verifier names nothing hidden", task.id)
    prompt = f"{task.prompt}\n{subject.environment.harness.prompt(task)}".encode()
    hits = search({"the prompt": prompt}, needles(task, subject.hidden))
    common: dict[str, Any] = {"check": name, "task": task.id, "n": 1, "events": len(hits)}
    if hits:
        return CheckResult(outcome=Outcome.FAILED, defect="fix-in-statement", reason=str(hits[0]), **common)
    return CheckResult(outcome=Outcome.PASSED, reason="nothing of the fix or of the tests", **common)


async def history(subject: Subject) -> CheckResult:
    """A repository in the workspace holds one commit and nothing that can't be reached."""
    name, task = "git", subject.task
    if not any(".git" in path.split("/") for path in task.base):
        return not_applicable(name, "no .git in the workspace", task.id)
    script = (
        "git -c core.hooksPath=/dev/null -c safe.directory='*' rev-list --all --reflog --count && "
        "git -c safe.directory='*' fsck --unreachable --no-reflogs 2>/dev/null && git -c safe.directory='*' tag"
    )
    sandbox = await subject.bench.backend.create(subject.environment.sandbox_spec(task))
    try:
        result = await sandbox.exec(Command(argv=("sh", "-c", script), timeout_s=_GIT_S, cpu_s=_GIT_S))
    finally:
        await sandbox.destroy()
    if result.exit_code != 0:
        said = result.stderr[-200:].decode("utf-8", "replace")
        return not_measured(name, f"git ends with {result.exit_code} in the sandbox: {said!r}", task.id)
    commits, *rest = result.stdout.decode("utf-8", "replace").split("\n")
    found = [line for line in rest if line.strip()]
    if commits.strip() != "1" or found:
        reason = f"{commits.strip()} commits; unreachable objects or tags: {len(found)}"
        return CheckResult(
            check=name, task=task.id, outcome=Outcome.FAILED, n=1, events=1, defect="history-readable", reason=reason
        )
    return CheckResult(check=name, task=task.id, outcome=Outcome.PASSED, n=1, reason="one commit, nothing unreachable")
