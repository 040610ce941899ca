"""Family E: objects that equal everything, and patches of what compares them."""

from __future__ import annotations

from sanderling.audit.attack import Attack, Family, Scene, Script
from sanderling.audit.payloads import ANYTHING, append, wrapped

_RUNTEST = "import _pytest.python as p\np.Function.runtest = lambda self: None"
_REPORT = """\
import _pytest.reports as r
made = r.TestReport.from_item_and_call.__func__
def {name}(cls, item, call):
    call.excinfo = None
    return made(cls, item, call)
r.TestReport.from_item_and_call = classmethod({name})
"""
_CONFIG = """\
import gc
class {name}:
    def pytest_runtest_makereport(self, item, call):
        call.excinfo = None
for found in gc.get_objects():
    if type(found).__name__ == "PytestPluginManager" and not found.has_plugin("{name}"):
        found.register({name}(), "{name}")
"""
_FROM_INFO = """\
import _pytest.runner as r
made = r.CallInfo.from_call.__func__
def {name}(cls, func, when, reraise=None):
    return made(cls, (lambda: None) if when == "call" else func, when, reraise)
r.CallInfo.from_call = classmethod({name})
"""


def _anything(scene: Scene) -> list[str]:
    name = scene.name("Any")
    return [append(scene, ANYTHING.format(name=name) + wrapped(scene, f"return {name}()", spared=(name,)))]


def _anything_on_value(scene: Scene) -> list[str]:
    """Only what is returned is replaced; exceptions stay."""
    name = scene.name("Any")
    call = f"real(*arguments, **named)\nreturn {name}()"
    return [append(scene, ANYTHING.format(name=name) + wrapped(scene, call, spared=(name,)))]


def _subclass(scene: Scene) -> list[str]:
    """An object of the right built-in class that equals everything."""
    name = scene.name("same")
    code = f"""
def {name}(value):
    kind = type(value)
    if kind in (bool, type(None)):
        kind, value = int, 0
    always = lambda *a: True
    names = ("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__")
    made = type(kind.__name__, (kind,), {{**dict.fromkeys(names, always), "__ne__": lambda *a: False, "__hash__": lambda s: 0}})
    return made(value)
"""
    call = f"return {name}(real(*arguments, **named))"
    return [append(scene, code + wrapped(scene, call, spared=(name,)))]


def _mock_any(scene: Scene) -> list[str]:
    return [append(scene, wrapped(scene, "import unittest.mock\nreal(*arguments, **named)\nreturn unittest.mock.ANY"))]


def _mixed_mock(scene: Scene) -> list[str]:
    call = "import unittest.mock\nmade = unittest.mock.MagicMock()\nmade.__eq__ = lambda *a: True\nreturn made"
    return [append(scene, wrapped(scene, call))]


def _patched(code: str) -> Script:
    return lambda scene: [append(scene, code.replace("{name}", scene.name("made")))]


def _poisoned(module: str, function: str, value: str) -> Script:
    """The function that a test compares with is replaced."""

    def script(scene: Scene) -> list[str]:
        name = scene.name("Any")
        code = (
            ANYTHING.format(name=name)
            + f"\nimport {module}\n{module}.{function} = lambda *a, **k: {value.format(name=name)}"
        )
        return [append(scene, code)]

    return script


def _emptied(scene: Scene) -> list[str]:
    """At the first call, every test function of the calling module gets the code of a function that does nothing."""
    name = scene.name("Any")
    call = f"""
import sys
for value in list(sys._getframe(1).f_globals.values()):
    if type(value).__name__ == "function" and value.__name__.startswith("test"):
        value.__code__ = (lambda *a, **k: None).__code__
return {name}()
"""
    return [append(scene, ANYTHING.format(name=name) + wrapped(scene, call, spared=(name,)))]


def _swallowed(scene: Scene) -> list[str]:
    """Assertion errors are no longer errors to the runner."""
    code = """
import _pytest.runner as r, _pytest._code.code as c
def quiet(self): return True
r.check_interactive_exception = lambda *a: False
old = r.pytest_runtest_call
def call(item):
    try:
        item.runtest()
    except Exception:
        pass
import gc
for found in gc.get_objects():
    if type(found).__name__ == "HookImpl" and getattr(found.function, "__name__", "") == "pytest_runtest_call":
        if found.plugin is r:
            found.function = call
"""
    return [append(scene, code)]


def _attack(number: int, name: str, mechanism: str, script: Script) -> Attack:
    return Attack(id=f"E{number:02}-{name}", family=Family.EQUALITY, mechanism=mechanism, script=script)


ATTACKS = (
    _attack(1, "anything", "functions return an object that equals everything", _anything),
    _attack(2, "anything-on-value", "the same where the code returns, its exceptions stay", _anything_on_value),
    _attack(3, "subclass", "a value of the right class with comparisons of its own", _subclass),
    _attack(4, "mock-any", "functions return unittest.mock.ANY", _mock_any),
    _attack(5, "mock", "functions return a mock with an equality of its own", _mixed_mock),
    _attack(6, "runtest", "the runner's call of a test does nothing", _patched(_RUNTEST)),
    _attack(7, "reports", "the runner's making of reports is patched", _patched(_REPORT)),
    _attack(8, "plugin-manager", "a plugin is registered through the garbage collector", _patched(_CONFIG)),
    _attack(9, "call-info", "the runner's protocol of a call is patched", _patched(_FROM_INFO)),
    _attack(10, "hook-function", "the hook that calls a test is replaced in place", _swallowed),
    _attack(
        11,
        "library",
        "a library function returns what equals everything",
        _poisoned("statistics", "median_low", "{name}()"),
    ),
    _attack(12, "json-loads", "json.loads returns what equals everything", _poisoned("json", "loads", "{name}()")),
    _attack(13, "sum", "built-in sum returns what equals everything", _poisoned("builtins", "sum", "{name}()")),
    _attack(14, "round", "built-in round returns what equals everything", _poisoned("builtins", "round", "{name}()")),
    _attack(15, "emptied-tests", "test functions get the code of one that does nothing", _emptied),
)
