"""The conformance suite that every sandbox backend has to pass: attacks on planted canaries, and the protocol itself.

A backend of your own is tested with five lines::

    import pytest
    from sanderling.testing.sandbox_conformance import CHECKS, run_conformance

    @pytest.fixture(scope="module")
    def report():
        return run_conformance(MyBackend)  # any callable without arguments that makes a backend

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_sandbox(check, report):
        report[check.id].raise_if_failed()

As a command, `python -m sanderling.testing.sandbox_conformance [--backend NAME]` writes a table and ends with 0 or 1.

How it decides. An attack plants a canary on the host (a file, a process with secrets, a listener, a memory segment, an
inherited descriptor, ...), sends in a program that tries to reach it, and looks at the canary: the program's own word is never
enough to pass, and a program that doesn't come to its report fails the check. Where a success can't be seen from outside, such
as a mount, a permission that the program reports counts as a breach.

Four outcomes. PASSED and FAILED speak for themselves. OPEN: the backend declares in `Capabilities.open_risks` that it doesn't
contain this, by an entry that is the check's id or starts with `"<id>: "`; isolation "none" declares all attacks open. An open
check is never reported as passed; `CheckResult.evidence` says what the attack reached. SKIPPED: this machine or user can't
plant what the check needs, or the backend isn't usable here.

Where it runs. By default everything runs in a forked helper process, which as root has mount, pid, net, ipc and uts
namespaces of its own: an attack that nothing contains stays in there. When an attack kills the helper, its check has failed and
a new helper goes on with the rest. Checks marked dangerous run nowhere else, and not at all where the backend declares them
open.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sanderling.sandbox.protocol import Capabilities, SandboxBackend
from sanderling.testing import (
    sandbox_attacks_channels,
    sandbox_attacks_privilege,
    sandbox_attacks_reach,
    sandbox_attacks_resources,
    sandbox_contract_exec,
    sandbox_contract_files,
    sandbox_contract_places,
    sandbox_contract_state,
    sandbox_contract_warm,
)
from sanderling.testing.sandbox_canaries import owned_canaries, planted_inheritance
from sanderling.testing.sandbox_check import (
    Breach,
    Check,
    CheckResult,
    Kind,
    NotApplicable,
    Outcome,
    Report,
    Violation,
)
from sanderling.testing.sandbox_containment import Send, containment, run_contained
from sanderling.types import JsonValue

__all__ = ["CHECKS", "Check", "CheckResult", "Kind", "Outcome", "Report", "run_check", "run_conformance"]

CHECKS: tuple[Check, ...] = (
    *sandbox_attacks_reach.ATTACKS,
    *sandbox_attacks_channels.ATTACKS,
    *sandbox_attacks_privilege.ATTACKS,
    *sandbox_attacks_resources.ATTACKS,
    *sandbox_contract_exec.CHECKS,
    *sandbox_contract_files.CHECKS,
    *sandbox_contract_places.CHECKS,
    *sandbox_contract_state.CHECKS,
    *sandbox_contract_warm.CHECKS,
)

BackendFactory = Callable[[], SandboxBackend]


def run_conformance(
    backend_factory: BackendFactory,
    *,
    ids: Iterable[str] | None = None,
    contained: bool = True,
    check_limit_s: float = 60.0,
) -> Report:
    """Run the suite, or the checks named in `ids`, on backends made by `backend_factory`.

    Not to be called from a running event loop: it runs its own.

    Args:
        backend_factory: makes a fresh backend; called in the process in which the checks run.
        ids: ids of `CHECKS`; None runs all.
        contained: run in the helper process. False runs in this process and skips the dangerous checks.
        check_limit_s: seconds after which a check has failed. One that blocks the whole helper is ended from outside.

    Raises:
        ValueError: an id that no check has.
    """
    checks = _selected(ids)
    if contained:
        with owned_canaries():
            return _run_in_helpers(backend_factory, checks, check_limit_s)
    lines: list[str] = []
    _run_and_send(_Run(factory=backend_factory, send=lines.append, limit_s=check_limit_s, contained=False), checks)
    return _report(_Received().take(lines), checks, "nothing: checks ran in the calling process")


async def run_check(
    check: Check, backend: SandboxBackend, capabilities: Capabilities, limit_s: float = 60.0
) -> CheckResult:
    """Run one check on a live backend in this process, judged by what `capabilities` declares."""
    declared = declared_open(check, capabilities)
    if declared and check.dangerous:
        return CheckResult(
            id=check.id, outcome=Outcome.OPEN, reason=f"{declared}; not executed, since nothing contains it"
        )
    began = time.monotonic()
    outcome, reason, evidence = Outcome.PASSED, "", ""
    try:
        await asyncio.wait_for(check.run(backend), limit_s)
    except NotApplicable as error:
        outcome, reason = Outcome.SKIPPED, str(error)
    except Breach as error:
        outcome, reason, evidence = Outcome.FAILED, str(error), str(error)
    except Violation as error:
        outcome, reason = Outcome.FAILED, str(error)
    except TimeoutError:
        outcome, reason = Outcome.FAILED, f"didn't end within {limit_s:g} s"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome, reason = Outcome.FAILED, f"{error!r} at {place.name}:{place.lineno}"
    if declared and outcome is not Outcome.SKIPPED:
        outcome = Outcome.OPEN
        reason = f"{declared}; {'the attack succeeded' if evidence else reason or 'it did not succeed this time'}"
    spent = time.monotonic() - began
    return CheckResult(id=check.id, outcome=outcome, reason=reason, evidence=evidence, duration_s=spent)


def declared_open(check: Check, capabilities: Capabilities) -> str:
    """Return the words by which the backend declares that it doesn't contain this check; empty when it doesn't."""
    for risk in capabilities.open_risks:
        if risk == check.id or risk.startswith(f"{check.id}: "):
            return f"declared open: {risk}"
    if capabilities.isolation == "none" and check.kind is Kind.ATTACK:
        return "declared open: isolation is none"
    return ""


def _selected(ids: Iterable[str] | None) -> tuple[Check, ...]:
    if ids is None:
        return CHECKS
    wanted = set(ids)
    unknown = wanted - {check.id for check in CHECKS}
    if unknown:
        raise ValueError(f"no sandbox check is named {sorted(unknown)}; the names are {[check.id for check in CHECKS]}")
    return tuple(check for check in CHECKS if check.id in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """How checks are run in one process."""

    factory: BackendFactory
    send: Send
    limit_s: float
    contained: bool


def _run_and_send(run: _Run, checks: Sequence[Check]) -> None:
    """Run the checks one after the other and send what happens as JSON lines: capabilities, then begin and result of each."""
    with planted_inheritance():  # before the backend is made: a launcher that starts early must not inherit either
        asyncio.run(_run_all(run, checks))


async def _run_all(run: _Run, checks: Sequence[Check]) -> None:
    shared = run.factory()
    try:
        capabilities = shared.probe()
        run.send(json.dumps({"capabilities": dataclasses.asdict(capabilities)}))
        for check in checks:
            run.send(json.dumps({"begin": check.id}))
            result = await _run_one(check, run, shared, capabilities)
            run.send(json.dumps({"result": dataclasses.asdict(result)}))
    finally:
        await shared.close()


async def _run_one(check: Check, run: _Run, shared: SandboxBackend, capabilities: Capabilities) -> CheckResult:
    if not capabilities.usable:
        reason = f"the backend isn't usable here: {'; '.join(capabilities.missing) or 'no reason given'}"
        return CheckResult(id=check.id, outcome=Outcome.SKIPPED, reason=reason)
    if check.dangerous and not run.contained and not declared_open(check, capabilities):
        return CheckResult(id=check.id, outcome=Outcome.SKIPPED, reason="dangerous: runs with contained=True only")
    if not check.ends_backend:
        return await run_check(check, shared, capabilities, run.limit_s)
    own = run.factory()
    try:
        return await run_check(check, own, capabilities, run.limit_s)
    finally:
        with contextlib.suppress(Exception):  # the check itself has reported what is wrong with close
            await own.close()


class _Received:
    """What the helpers sent so far."""

    def __init__(self) -> None:
        self.capabilities: Capabilities | None = None
        self.results: dict[str, CheckResult] = {}
        self.running: str | None = None

    def take(self, lines: Iterable[str]) -> _Received:
        for line in lines:
            message = json.loads(line)
            if "capabilities" in message:
                fields: dict[str, JsonValue] = message["capabilities"]
                fields |= {name: tuple(fields[name]) for name in ("open_risks", "missing")}
                self.capabilities = Capabilities(**fields)
            elif "begin" in message:
                self.running = message["begin"]
            else:
                fields = message["result"]
                fields["outcome"] = Outcome(fields["outcome"])
                self.results[fields["id"]] = CheckResult(**fields)
                self.running = None
        return self


def _run_in_helpers(factory: BackendFactory, checks: tuple[Check, ...], limit_s: float) -> Report:
    received = _Received()
    remaining = checks
    while remaining:
        batch = remaining

        def work(send: Send, batch: tuple[Check, ...] = batch) -> None:
            _run_and_send(_Run(factory=factory, send=send, limit_s=limit_s, contained=True), batch)

        received.take(run_contained(work, silence_s=limit_s + 2.0))
        if received.running is not None:
            reason = (
                f"the helper process of this check died or stood still for {limit_s:g} s: the check reached its runner"
            )
            received.results[received.running] = CheckResult(
                id=received.running, outcome=Outcome.FAILED, reason=reason, evidence=reason
            )
            received.running = None
        elif any(check.id not in received.results for check in batch):
            raise RuntimeError(
                "the helper process ended before it ran a check; its own words stand on standard error. "
                "Expected a backend factory that works in a forked process"
            )
        remaining = tuple(check for check in batch if check.id not in received.results)
    return _report(received, checks, containment())


def _report(received: _Received, checks: Sequence[Check], contained_by: str) -> Report:
    if received.capabilities is None:
        raise ValueError("no check was selected, so nothing is known; expected at least one id of CHECKS")
    results = tuple(received.results[check.id] for check in checks)
    return Report(capabilities=received.capabilities, results=results, contained_by=contained_by)


if __name__ == "__main__":
    from sanderling.testing.sandbox_conformance_command import main

    raise SystemExit(main())
