"""The conformance suite on the backends that ship, and proof that it can fail."""

import dataclasses
import json
import os
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

import pytest
from careless_backend import CarelessBackend, SharingBackend, SuicidalBackend

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.local import LocalBackend
from sanderling.sandbox.protocol import Kept, Sandbox, SandboxSpec
from sanderling.testing.sandbox_conformance import CHECKS, CheckResult, Kind, Outcome, Report, run_conformance
from sanderling.testing.sandbox_conformance_command import main
from sanderling.testing.sandbox_containment import make_readable, run_contained

PLAIN_UID = 61_423  # made up: nobody's

# Reached on a backend that contains nothing, whatever the machine: each canary can be hit, so that a PASSED means something.
REACHED_UNISOLATED = (
    "host_file_read",
    "other_home_read",
    "host_file_write",
    "posix_shared_memory",
    "host_process_list",
    "host_process_environ",
    "proc_root",
    "ptrace",
    "process_vm_readv",
    "signal_host_process",
    "signal_runner",
    "loopback_tcp",
    "unix_path_socket",
    "abstract_socket",
    "sysv_shared_memory",
    "setuid_binary",
    "nested_user_namespace",
    "sandbox_to_sandbox",
)
REACHED_AS_ROOT = ("chroot_escape", "kernel_settings", "interpreter_write", "not_host_root")
REACHED_IN_CONTAINMENT = (
    "inherited_descriptor",
    "inherited_directory",
    "inherited_environment",
    "kill_all",
    "device_nodes",
    "mount",
    "terminal_injection",
    "hostname_change",
    "disk_fill",
    "daemon",
)
REACHED_SLOWLY = ("fork_bomb", "memory_hog", "memory_total", "memory_shared", "full_disk", "daemon_after_timeout")
BROKEN_PROMISES = (
    "exit_codes",
    "working_directory",
    "environment_added",
    "output_cap",
    "background_child",
    "read_refuses_absolute_link",
    "read_refuses_link_in_the_middle",
    "read_refuses_hard_link",
    "read_refuses_too_large",
    "read_refuses_paths",
    "write_refuses_links",
    "write_refuses_paths",
    "list_plain_files",
    "create_refuses_paths",
    "state_key_equal",
    "state_key_changes",
    "fork_independent",
    "submission_takes",
    "submission_refuses_link",
    "submission_refuses_deleted",
    "destroy_twice",
    "cancelled_exec",
)
SLOW = (  # promises, no attacks: those that take longest
    "cpu_limit",
    "concurrency",
    "timeout_loop",
    "session_server",
    "timeout_default",
    "orphans_reaped",
    "file_names",
    "state_key_changes",
    "submission_kills",
    "warm_like_fresh",  # test_warm_commands has it script by script
)
BESIDE_AN_INTERPRETER = (
    "kill_all",
    "inherited_descriptor",
    "proc_root",
    "ptrace",
    "process_vm_readv",
    "daemon",
    "fork_bomb",
    "memory_total",
    "background_child",
    "argv_exact",
    "exit_by_signal",
    "environment_built",
    "fork_independent",
    "cancelled_exec",
)
FAST = tuple(check for check in CHECKS if check.id not in SLOW)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the containing namespaces")


def settle(result: CheckResult) -> None:
    """Fail, skip or pass the running test as the check did; an open risk is never a pass."""
    result.raise_if_failed()
    if result.outcome is not Outcome.PASSED:
        pytest.skip(f"{result.outcome}: {result.reason}")


@pytest.fixture(scope="module")
def bubblewrap() -> Report:
    return run_conformance(BubblewrapBackend, ids=[check.id for check in FAST])


@pytest.fixture(scope="module")
def patient_bubblewrap() -> Report:
    return run_conformance(BubblewrapBackend, ids=SLOW)


@pytest.mark.parametrize("check", FAST, ids=str)
def test_bubblewrap(check, bubblewrap):
    settle(bubblewrap[check.id])


@pytest.mark.slow
@pytest.mark.parametrize("check_id", SLOW)
def test_bubblewrap_with_patience(check_id, patient_bubblewrap):
    settle(patient_bubblewrap[check_id])


class KeepingBackend(BubblewrapBackend):
    """Keeps an interpreter in every sandbox, so that the whole suite looks at what runs beside it."""

    async def create(self, spec: SandboxSpec) -> Sandbox:
        kept = Kept.INTERPRETER if spec.kept is Kept.NOTHING else spec.kept
        return await super().create(dataclasses.replace(spec, kept=kept))


@pytest.fixture(scope="module")
def keeping_bubblewrap() -> Report:
    return run_conformance(KeepingBackend, ids=BESIDE_AN_INTERPRETER)


@pytest.mark.parametrize("check_id", BESIDE_AN_INTERPRETER)
def test_an_interpreter_is_kept_without_loss(check_id, keeping_bubblewrap):
    settle(keeping_bubblewrap[check_id])


@pytest.mark.slow
def test_an_interpreter_is_kept_without_any_loss() -> None:
    report = run_conformance(KeepingBackend)
    report.raise_for_failures()
    assert report.counts()[Outcome.PASSED] >= len(CHECKS) - 8


def test_no_attack_is_left_to_the_slow_part():
    assert len(FAST) + len(SLOW) == len(CHECKS)
    assert {check.id for check in CHECKS if check.kind is Kind.ATTACK} <= {check.id for check in FAST}


def test_bubblewrap_is_really_tested(bubblewrap):
    """A backend that is unusable here or declares everything open would skip each test above."""
    assert bubblewrap.capabilities.usable, bubblewrap.capabilities.missing
    counts = bubblewrap.counts()
    assert sum(counts.values()) == len(FAST)
    assert counts[Outcome.PASSED] >= len(FAST) - 8
    if os.geteuid() == 0:
        assert not bubblewrap.of(Outcome.OPEN)


def report_as_plain_user(ids: list[str] | None) -> tuple[dict, list[dict]]:
    """Run the suite on bubblewrap as a made-up user, in a mount namespace where that user can read the interpreter."""

    def work(send) -> None:
        try:
            make_readable(Path(sys.executable).resolve())
        except OSError as error:
            send(json.dumps({"skip": f"can't open the interpreter to a plain user: {error}"}))
            return
        with tempfile.TemporaryDirectory(prefix="sanderling-home-") as home:
            os.chown(home, PLAIN_UID, PLAIN_UID)
            os.environ["HOME"] = home
            os.setgroups([])
            os.setresgid(PLAIN_UID, PLAIN_UID, PLAIN_UID)
            os.setresuid(PLAIN_UID, PLAIN_UID, PLAIN_UID)
            report = run_conformance(BubblewrapBackend, ids=ids)
            answer = {"capabilities": asdict(report.capabilities), "results": [asdict(one) for one in report.results]}
            send(json.dumps(answer))

    lines = list(run_contained(work))
    assert lines, "the helper process sent nothing; its words stand on standard error"
    answer = json.loads(lines[-1])
    if "skip" in answer:
        pytest.skip(answer["skip"])
    return answer["capabilities"], answer["results"]


def judge_plain_user(ids: list[str] | None, most_open: int) -> None:
    capabilities, results = report_as_plain_user(ids)
    if not capabilities["usable"]:
        pytest.skip(f"bubblewrap isn't usable for a plain user here: {capabilities['missing']}")
    assert capabilities["mode"] == "user"
    failed = {one["id"]: one["reason"] for one in results if one["outcome"] == Outcome.FAILED}
    assert not failed
    opened = [one["id"] for one in results if one["outcome"] == Outcome.OPEN]
    assert len(opened) <= most_open, opened
    assert sum(one["outcome"] == Outcome.PASSED for one in results) >= len(results) - most_open - 4


@as_root
def test_bubblewrap_as_a_plain_user_holds_against_attacks():
    quick = [*REACHED_UNISOLATED[:9], *REACHED_AS_ROOT, "mount", "kernel_keyring", "fork_bomb", "disk_fill"]
    judge_plain_user(quick, most_open=2)


@as_root
@pytest.mark.slow
def test_bubblewrap_as_a_plain_user_passes_everything():
    judge_plain_user(None, most_open=6)


def local_backend() -> LocalBackend:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LocalBackend()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_backend_without_isolation_is_open_and_its_canaries_are_reached():
    dangerous = [check.id for check in CHECKS if check.dangerous and check.kind is Kind.ATTACK]
    expected = [*REACHED_UNISOLATED, *(REACHED_AS_ROOT if os.geteuid() == 0 else ())]
    report = run_conformance(local_backend, ids=[*expected, *dangerous])
    assert not report.of(Outcome.PASSED)
    not_reached = {check_id: report[check_id].reason for check_id in expected if not report[check_id].evidence}
    assert not not_reached
    for check_id in dangerous:
        assert report[check_id].outcome is Outcome.OPEN
        assert "not executed" in report[check_id].reason


@as_root
@pytest.mark.parametrize("ids", [REACHED_IN_CONTAINMENT, pytest.param(REACHED_SLOWLY, marks=pytest.mark.slow)])
def test_every_attack_is_caught_on_a_backend_that_contains_nothing(ids):
    report = run_conformance(CarelessBackend, ids=ids)
    missed = {result.id: f"{result.outcome} {result.reason}" for result in report.results if not result.evidence}
    assert not missed
    assert len(report.of(Outcome.FAILED)) == len(ids)


@as_root
def test_broken_promises_are_caught():
    report = run_conformance(CarelessBackend, ids=BROKEN_PROMISES)
    assert {result.id for result in report.of(Outcome.FAILED)} == set(BROKEN_PROMISES)
    with pytest.raises(AssertionError, match=r"22 of 22 sandbox checks failed:\n  exit_codes: "):
        report.raise_for_failures()


@as_root
def test_an_interpreter_shared_by_commands_is_caught():
    report = run_conformance(SharingBackend, ids=["warm_leaves_nothing", "warm_like_fresh"])
    assert "end of the script: expected (0" in report["warm_leaves_nothing"].reason
    assert "exception'" in report["warm_like_fresh"].reason  # its traceback; what they print is the same


def test_a_declared_risk_is_open_even_where_nothing_happened():
    def factory():
        return CarelessBackend(open_risks=("exit_by_signal: not today", "exit_by_sign", "stdin_bytes"))

    report = run_conformance(factory, ids=["exit_by_signal", "stdin_bytes", "output_bytes"])
    assert [result.outcome for result in report.results] == [Outcome.OPEN, Outcome.PASSED, Outcome.OPEN]
    assert "not today" in report["exit_by_signal"].reason


def test_an_attack_that_kills_the_runner_fails_its_check_and_the_rest_goes_on():
    report = run_conformance(SuicidalBackend, ids=["exit_codes", "stdin_bytes"])
    assert [result.outcome for result in report.results] == [Outcome.FAILED, Outcome.FAILED]
    assert "helper process" in report["stdin_bytes"].reason


@pytest.mark.slow
def test_a_backend_that_blocks_its_own_event_loop_fails_and_the_rest_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path)
    )  # the killed helper leaves the careless backend's files there
    report = run_conformance(CarelessBackend, ids=["read_refuses_fifo", "read_refuses_paths"], check_limit_s=1.5)
    assert [result.outcome for result in report.results] == [Outcome.FAILED, Outcome.FAILED]
    assert "stood still" in report["read_refuses_fifo"].reason
    assert "UnsafePath" in report["read_refuses_paths"].reason
    assert not list(tmp_path.glob("*canary*"))


def test_dangerous_checks_need_the_helper_process():
    report = run_conformance(CarelessBackend, ids=["kill_all", "stdin_bytes"], contained=False)
    assert report["kill_all"].outcome is Outcome.SKIPPED
    assert report["stdin_bytes"].outcome is Outcome.PASSED


def test_an_unusable_backend_is_skipped_with_the_way_out():
    report = run_conformance(lambda: CarelessBackend(usable=False), ids=["exit_codes"])
    assert report["exit_codes"].outcome is Outcome.SKIPPED
    assert "buy one" in report["exit_codes"].reason


def test_an_unknown_check_is_named():
    with pytest.raises(ValueError, match="no_such_check"):
        run_conformance(CarelessBackend, ids=["no_such_check"])


def test_ids_are_unique_and_every_check_says_what_it_does():
    assert len({check.id for check in CHECKS}) == len(CHECKS) >= 100
    assert sum(check.kind is Kind.ATTACK for check in CHECKS) >= 40
    assert all(check.description.endswith(".") for check in CHECKS)


def test_the_command_writes_a_table_and_ends_with_the_outcome(capsys):
    assert main(["--check", "stdin_bytes", "--check", "exit_codes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["ok", "exit_codes"], ["ok", "stdin_bytes"]]
    assert "2 passed, 0 failed, 0 open, 0 skipped" in lines
    assert main(["--backend", "careless_backend:CarelessBackend", "--check", "exit_codes"]) == 1
    assert "FAIL exit_codes" in capsys.readouterr().out
    assert main(["--backend", "local", "--check", "host_file_read"]) == 1  # nothing passed: nothing is shown
    assert "open host_file_read" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--backend", "no_such_backend"])
    assert "no_such_backend" in capsys.readouterr().err
