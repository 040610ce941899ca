"""The program that runs a code base's own suite inside a sandbox: `python3 /tools/suite_program.py`.

It reads one JSON request from standard input and writes one JSON object to a copy of standard output:

    request   {"files", "only": ids or null, "roots", "seed", "sources": paths or null, "most_failures", "test_cpu_s"}
    answer    {"tests": [{"id", "outcome", "seconds", "cpu_s", "error": {...} or null}], "broken": [...], "stopped": "" or why,
               "reach": {path: {line: [indices of tests]}} or null}

`outcome` is passed, failed, skipped, xfailed or cut_off. It trusts the code base: tasks are made of code that one runs anyway,
and the sandbox bounds what a bug can do. Standard library and the packages beside this file only.
"""

import json
import os
import random
import signal
import sys
import threading
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
MAX_MESSAGE = 2_000


class CutOff(BaseException):
    """A test took too long. Not an Exception, so that no `except Exception` catches it."""


def cut_off(signum, frame):
    raise CutOff("the test did not end in time")


class Reach:
    """Which lines of the sources each test executes, by tracing calls of functions that stand in them."""

    def __init__(self, sources):
        self._names = {os.path.abspath(path): path for path in sources}
        self._lines = {path: {} for path in sources}
        self._known = {}
        self.test = None

    def start(self):
        sys.settrace(self.calls)
        threading.settrace(self.calls)

    def stop(self):
        sys.settrace(None)
        threading.settrace(None)

    def calls(self, frame, event, argument):
        code = frame.f_code
        path = self._known.get(code, False)
        if path is False:
            path = self._known[code] = self._names.get(code.co_filename)
        if path is None or self.test is None:
            return None
        lines = self._lines[path]
        test = self.test

        def each(frame, event, argument):
            lines.setdefault(frame.f_lineno, set()).add(test)
            return each

        lines.setdefault(code.co_firstlineno, set()).add(test)
        return each

    def found(self):
        return {path: {line: sorted(tests) for line, tests in lines.items()} for path, lines in self._lines.items()}


class Plugin:
    """Orders the items, bounds and traces each, and notes how it ended."""

    def __init__(self, request, reach):
        self._request = request
        self._reach = reach
        self._error = None
        self.tests = []
        self.broken = []
        self.stopped = ""

    def pytest_collection_modifyitems(self, session, config, items):
        only = None if self._request["only"] is None else set(self._request["only"])
        items[:] = [item for item in items if only is None or item.nodeid in only]
        random.Random(self._request["seed"]).shuffle(items)

    def pytest_collectreport(self, report):
        if report.failed:
            self.broken.append([report.nodeid, str(report.longrepr)[-500:]])

    def pytest_runtest_makereport(self, item, call):
        if call.excinfo is not None and self._error is None:
            self._error = described(call.excinfo)

    def pytest_runtest_protocol(self, item, nextitem):
        from _pytest.runner import runtestprotocol

        self._error = None
        if self._reach is not None:
            self._reach.test = len(self.tests)
            self._reach.start()
        seconds = self._request["test_cpu_s"]
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
        began = time.process_time()
        try:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        except CutOff:
            reports, self._error = [], {"type": "CutOff", "message": "", "frames": []}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if self._reach is not None:
                self._reach.stop()
                self._reach.test = None
        self.note(item, reports, time.process_time() - began)
        failed = sum(test["outcome"] in ("failed", "cut_off") for test in self.tests)
        if failed > self._request["most_failures"]:
            self.stopped = item.session.shouldstop = "more tests failed than a task may have"
        return True

    def note(self, item, reports, cpu_s):
        outcome = outcome_of(reports, self._error)
        failed = outcome in ("failed", "cut_off")
        seconds = round(sum(report.duration for report in reports), 4)
        error = self._error if failed else None
        test = {"id": item.nodeid, "outcome": outcome, "seconds": seconds, "cpu_s": round(cpu_s, 4), "error": error}
        self.tests.append(test)


def outcome_of(reports, error):
    if error is not None and error["type"] == "CutOff":
        return "cut_off"
    if any(hasattr(report, "wasxfail") for report in reports):
        return "xfailed"
    for report in reports:
        if report.outcome != "passed":
            return report.outcome
    return "passed" if [report.when for report in reports][:3] == ["setup", "call", "teardown"] else "failed"


def described(excinfo):
    """Type, text and the workspace's frames of an exception, outermost first."""
    try:
        message = str(excinfo.value)[:MAX_MESSAGE]
    except Exception:
        message = ""
    here = os.getcwd() + os.sep
    frames = []
    trace = excinfo.tb
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(here):
            frames.append([code.co_filename[len(here) :], trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    return {"type": excinfo.typename, "message": message, "frames": frames[-12:]}


def main():
    request = json.loads(sys.stdin.buffer.read())
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.dont_write_bytecode = True
    roots = [os.path.abspath(root) for root in request["roots"]]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)
    sys.path[:] = [os.path.join(FOLDER, "packages"), *(p for p in sys.path if p != FOLDER)]
    import pytest

    sys.path += roots
    sys.argv = ["pytest"]
    signal.signal(signal.SIGPROF, cut_off)
    reach = Reach(request["sources"]) if request["sources"] is not None else None
    plugin = Plugin(request, reach)
    options = ["-c", os.devnull, f"--rootdir={os.getcwd()}", "--import-mode=importlib"]
    options += ["-p", "no:cacheprovider", "-p", "no:terminal", "--continue-on-collection-errors"]
    pytest.main([*options, *request["files"]], plugins=[plugin])
    answer = {"tests": plugin.tests, "broken": plugin.broken, "stopped": plugin.stopped}
    answer["reach"] = reach.found() if reach is not None else None
    data = json.dumps(answer, separators=(",", ":")).encode()
    while data:
        data = data[os.write(channel, data) :]
    os._exit(0)  # threads and exit handlers of the code base don't get a turn


if __name__ == "__main__":
    main()
