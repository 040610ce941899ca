"""Runs chosen tests with pytest and reports each outcome on a descriptor: `python3 -I run_suite.py FD`, from grade.py.

pytest is loaded before anything of the workspace is on the path, its plugins stay off, and no settings file is read.
"""

import json
import os
import sys


def outcome_of(reports):
    """passed: setup, call and teardown passed, nothing was skipped and no failure was expected."""
    if any(report.failed for report in reports):
        return "failed"
    plain = all(report.passed and not hasattr(report, "wasxfail") for report in reports)
    return "passed" if plain and len(reports) == 3 else "other"


def main():
    channel = int(sys.argv[1])
    request = json.loads(sys.stdin.buffer.read())
    sys.path[:0] = [place for place in request["packages"].split(os.pathsep) if place]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    def send(**answer):
        os.write(channel, (json.dumps({"nonce": request["nonce"], **answer}) + "\n").encode())

    class Chosen:
        def __init__(self):
            self.reports = {}

        def pytest_collection_modifyitems(self, items):
            wanted = set(request["ids"])
            items[:] = [item for item in items if item.nodeid in wanted]

        def pytest_runtest_logreport(self, report):
            self.reports.setdefault(report.nodeid, []).append(report)
            if report.when == "teardown":
                send(id=report.nodeid, outcome=outcome_of(self.reports.pop(report.nodeid)))

    roots = [os.path.abspath(root) for root in request["roots"]]  # noqa: PTH100
    sys.path += roots
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)
    files = sorted({name.partition("::")[0] for name in request["ids"]})
    words = ["-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", "--import-mode=importlib", "-q", *files]
    pytest.main(words, plugins=[Chosen()])
    send(done=True)


if __name__ == "__main__":
    main()
