"""The program that runs compiled tests inside a grading sandbox: `python3 -P -s -S runner.py`.

It reads one JSON request from standard input and answers with JSON lines on a copy of standard output that is made before any
code of the workspace is loaded. Nothing here is trusted: the code under test runs in the same process and may change all of
it. What it can't do is know the values that were cut out of the tests.

    request   {"nonce", "files", "roots", "only": keys or null}
    answers   {"nonce", "ready": true}
              {"nonce", "test": key, "id", "definition", "end", "error", "checks": [[site, operand, ...], ...]}
              {"nonce", "collecting": file, "error"}
              {"nonce", "done": true}

A key is "<file>::<class>::<function>#<n>", n counting the parametrised cases. `end` is "passed" only where setup, call and
teardown passed and nothing was skipped or expected to fail. Standard library and the packages beside this file only.
"""

import builtins
import inspect
import json
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

START = os.getcwd()  # tests may go elsewhere
FOLDER = os.path.dirname(os.path.abspath(__file__))
MAX_CHECKS = 1_000  # of one test
MAX_TEXT = 300_000  # characters of one test's checks
MAX_MESSAGE = 500  # characters of an exception's text


def load_values():
    """The module beside this file; nothing is put on the path."""
    module = ModuleType("values")
    SourceFileLoader("values", os.path.join(FOLDER, "values.py")).exec_module(module)
    return module


class Reports:
    """What was seen of the running test, and the way out."""

    def __init__(self, channel, nonce, values):
        self._channel = channel
        self._nonce = nonce
        self.values = values
        self.checks = []

    def send(self, **answer):
        data = (json.dumps({"nonce": self._nonce, **answer}, separators=(",", ":")) + "\n").encode()
        while data:
            data = data[os.write(self._channel, data) :]

    def see(self, site, form, *operands):
        """Stands in the place of an assertion."""
        encode = self.type_names if form == "types" else self.values.encode
        self.note([site, *map(encode, operands)])

    def kept(self, site):
        """Stands before an assertion that was left as it is."""
        self.note([site])

    def note(self, check):
        if len(self.checks) <= MAX_CHECKS:
            self.checks.append(check)

    def type_names(self, value, kind=None):
        """Names of a value's exact type and of its bases."""
        kinds = type.__dict__["__mro__"].__get__(kind or type(value))
        return [self.values.type_name(base) for base in kinds[:20]]

    def raises(self, site, form):
        return Raises(self, site, form)

    def take(self):
        """The checks of the test that ended, or None where they are too many."""
        checks, self.checks = self.checks, []
        if len(checks) > MAX_CHECKS or len(json.dumps(checks)) > MAX_TEXT:
            return None
        return checks


class Caught:
    """What `assertRaises` gives."""

    exception = None

    def fill(self, raised):
        self.exception = raised[1]


class Raises:
    """Stands in the place of `pytest.raises` and `assertRaises`: which exception is the right one is not known here."""

    def __init__(self, reports, site, form):
        self._reports = reports
        self._site = site
        self._form = form
        self._fill = None

    def __enter__(self):
        if self._form == "unittest":
            caught = Caught()
            self._fill = caught.fill
            return caught
        import pytest

        info = pytest.ExceptionInfo.for_later()
        self._fill = info.fill_unfilled
        return info

    def __exit__(self, kind, value, trace):
        if kind is None:
            self._reports.note([self._site, [], None])
            return True
        names = self._reports.type_names(value)
        self._reports.note([self._site, names, message(value)])
        if not issubclass(kind, Exception):
            return False  # a skip, an exit, an interrupt
        if self._fill is not None:
            self._fill((kind, value, trace))
        return True


def message(error):
    try:
        text = str(error)
    except Exception:
        return None
    return text[:MAX_MESSAGE] if type(text) is str else None


class Plugin:
    """Runs the items one by one and reports each."""

    def __init__(self, reports, only):
        self._reports = reports
        self._only = None if only is None else frozenset(only)
        self._keys = {}
        self._stray = []

    def pytest_collection_modifyitems(self, session, config, items):
        counts, chosen = {}, []
        for item in items:
            name = getattr(item, "originalname", None) or item.name
            base = f"{item.parent.nodeid}::{name}"
            counts[base] = counts.get(base, -1) + 1
            key = f"{base}#{counts[base]}"
            if self._only is None or key in self._only:
                self._keys[item] = key
                chosen.append(item)
        items[:] = chosen

    def pytest_runtest_protocol(self, item, nextitem):
        from _pytest.runner import runtestprotocol

        self._reports.take()
        self._stray.clear()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        end, error = ending([*reports, *self._stray])
        self._reports.send(
            test=self._keys[item],
            id=item.nodeid,
            definition=definition(item),
            end=end,
            error=error,
            checks=self._reports.take(),
        )
        return True

    def pytest_runtest_logreport(self, report):
        self._stray.append(report)  # of subtests: those of the item itself are not logged

    def pytest_collectreport(self, report):
        if report.failed:
            self._reports.send(collecting=report.nodeid, error=str(report.longrepr)[-500:])

    def pytest_internalerror(self, excrepr):
        self._reports.send(collecting="the test runner", error=str(excrepr)[-500:])


def ending(reports):
    """How a test ended, and its error in a few words."""
    for report in reports:
        if hasattr(report, "wasxfail"):
            return "xfailed", str(report.wasxfail)[:200]
        if report.outcome != "passed":
            said = getattr(report.longrepr, "reprcrash", None)
            text = getattr(said, "message", None) or str(report.longrepr)
            return f"{report.when} {report.outcome}", str(text)[:300]
    phases = [report.when for report in reports]
    return ("passed", "") if phases[:3] == ["setup", "call", "teardown"] else ("incomplete", " ".join(phases))


def definition(item):
    """Where a test is written: "file::Class.function", None where that can't be told."""
    function = inspect.unwrap(getattr(item, "function", None) or item.obj)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    return f"{os.path.relpath(os.path.join(START, code.co_filename), START)}::{function.__qualname__}"


def main():
    values = load_values()
    request = json.loads(sys.stdin.buffer.read())
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what tests and the runner print is of no use here
    sys.dont_write_bytecode = True
    reports = Reports(channel, request["nonce"], values)
    vars(builtins).update(
        __sanderling_see__=reports.see, __sanderling_kept__=reports.kept, __sanderling_raises__=reports.raises
    )
    packages = os.path.join(FOLDER, "packages")
    roots = [os.path.abspath(root) for root in request["roots"]]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)  # for programs that tests start
    sys.path.insert(0, packages)
    import pytest

    sys.path += roots  # last: a file of the workspace shadows neither the standard library nor the runner
    sys.argv = ["pytest"]
    reports.send(ready=True)
    options = ["-c", os.devnull, f"--rootdir={START}", "--import-mode=importlib", "--assert=plain"]
    options += ["-p", "no:cacheprovider", "-p", "no:terminal", "--continue-on-collection-errors"]
    pytest.main([*options, *request["files"]], plugins=[Plugin(reports, request["only"])])
    reports.send(done=True)
    os._exit(0)  # threads and exit handlers of the code under test don't get a turn


if __name__ == "__main__":
    main()
