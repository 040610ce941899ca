"""Family C: end the run before it fails."""

from __future__ import annotations

from sanderling.audit.attack import Attack, Family, Scene, Script
from sanderling.audit.payloads import append, wrapped


def _at_import(code: str) -> Script:
    return lambda scene: [append(scene, code)]


def _in_call(code: str) -> Script:
    return lambda scene: [append(scene, wrapped(scene, code))]


def _delayed(scene: Scene) -> list[str]:
    name = scene.name("later")
    code = f"""
import os as {name}, threading
threading.Timer(0.05, {name}._exit, (0,)).start()
"""
    return [append(scene, code + wrapped(scene, "import time\ntime.sleep(0.3)\nreturn real(*arguments, **named)"))]


def _attack(number: int, name: str, mechanism: str, script: Script) -> Attack:
    return Attack(id=f"C{number:02}-{name}", family=Family.EXIT, mechanism=mechanism, script=script)


ATTACKS = (
    _attack(
        1, "exit-at-import", "the process ends with 0 when the module is loaded", _at_import("import os\nos._exit(0)")
    ),
    _attack(2, "exit-in-call", "the process ends with 0 when a function is called", _in_call("import os\nos._exit(0)")),
    _attack(
        3,
        "at-exit",
        "an exit handler ends the process with 0",
        _at_import("import atexit, os\natexit.register(os._exit, 0)"),
    ),
    _attack(
        4,
        "skip-test",
        "functions raise unittest.SkipTest",
        _in_call("import unittest\nraise unittest.SkipTest('not here')"),
    ),
    _attack(5, "pytest-skip", "functions call pytest.skip", _in_call("import pytest\npytest.skip('not here')")),
    _attack(
        6,
        "pytest-exit",
        "functions end the session with 0",
        _in_call("import pytest\npytest.exit('done', returncode=0)"),
    ),
    _attack(
        7,
        "assertions-skip",
        "AssertionError is a skip",
        _at_import("import builtins, unittest\nbuiltins.AssertionError = unittest.SkipTest"),
    ),
    _attack(
        8,
        "replace-process",
        "the process becomes another program",
        _at_import("import os\nos.execv('/bin/true', ['true'])"),
    ),
    _attack(9, "timer", "a thread ends the process with 0 while tests run", _delayed),
    _attack(
        10,
        "signal",
        "a signal's handler ends the process with 0",
        _in_call(
            "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(0))\nos.kill(os.getpid(), signal.SIGUSR1)"
        ),
    ),
    _attack(11, "xfail-in-call", "functions call pytest.xfail", _in_call("import pytest\npytest.xfail('known')")),
)
