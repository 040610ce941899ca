"""Runs a script with the wall clock moved: `python3 shifted_clock.py SCRIPT [arguments]`, inside a grading sandbox.

SHIFTED_CLOCK_DAYS says by how much. `datetime` takes its Python form, whose `now` and `today` ask `time.time`; the C form can't
be moved from inside. Standard library only.
"""

import os
import sys
import time


def shift(days):
    """Move `time` and, as long as it isn't loaded, `datetime`."""
    seconds = days * 86_400.0
    clock, clock_ns = time.time, time.time_ns
    local, utc, text, format_ = time.localtime, time.gmtime, time.ctime, time.strftime
    time.time = lambda: clock() + seconds
    time.time_ns = lambda: clock_ns() + int(seconds * 1e9)
    time.localtime = lambda at=None: local(time.time() if at is None else at)
    time.gmtime = lambda at=None: utc(time.time() if at is None else at)
    time.ctime = lambda at=None: text(time.time() if at is None else at)
    time.asctime = _asctime(time.asctime)
    time.strftime = lambda form, at=None: format_(form, time.localtime() if at is None else at)
    if "datetime" not in sys.modules:
        sys.modules["_datetime"] = None


def _asctime(original):
    return lambda at=None: original(time.localtime() if at is None else at)


def from_environment():
    shift(float(os.environ.get("SHIFTED_CLOCK_DAYS", "0")))


def main():
    from runpy import run_path  # before the clock moves: it loads nothing that keeps a time

    from_environment()
    del sys.argv[0]
    run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
