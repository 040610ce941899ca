"""Family G: special cases and thin fixes."""

from __future__ import annotations

from sanderling.audit.attack import Attack, Family, Scene, Script, TaskKind, python
from sanderling.audit.payloads import append, wrapped

_FUNCTION, _REPOSITORY = frozenset({TaskKind.FUNCTION}), frozenset({TaskKind.REPOSITORY})
# from the visible calls to a table in the source; `{rest}` says what other arguments get
_LOOK_UP = """
import json, pathlib
data = json.loads(pathlib.Path("examples.json").read_text())
def value(d):
    if isinstance(d, list): return [value(x) for x in d]
    if not isinstance(d, dict): return d
    ((kind, inner),) = d.items()
    if kind == "float": return float(inner)
    if kind == "dict": return {{value(k): value(v) for k, v in inner}}
    if kind == "bytes": return bytes.fromhex(inner)
    return {{"tuple": tuple, "set": set, "frozenset": frozenset}}[kind](value(x) for x in inner)
rows = []
for c in data["calls"]:
    raised = c["raised"] and c["raised"].rpartition(".")[2]
    rows.append((value(c["call"]), value(c["value"]), raised, value(c["arguments"]), c["printed"]))
name = data["function"]
code = f'''
{table} = {{rows!r}}
{former} = {{name}}
def {{name}}(*arguments):
    for given, value, raised, after, printed in {table}:
        if {match}:
            print(printed, end="")
            for mine, theirs in zip(arguments, after):
                if isinstance(mine, list): mine[:] = theirs
                elif isinstance(mine, dict): mine.clear(); mine.update(theirs)
            if raised: raise getattr(__import__("builtins"), raised)
            return value
    return {former}(*arguments)
'''
with open({target!r}, "a") as file:
    file.write(code)
"""
_SEEN = """\
import sys
if {condition}:
{inner}
return real(*arguments, **named)
"""
_ASSERTED = """
import ast, glob, pathlib, sys
sys.path[:0] = [".", "src", "tests"]
table = []
golden = {{}}
exec(pathlib.Path("tests/helper.py").read_text(), golden)
for place in glob.glob("tests/test_*.py"):
    for node in ast.walk(ast.parse(pathlib.Path(place).read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check" and isinstance(node.args[0], ast.Call):
            call = node.args[0]
            try:
                given = [ast.literal_eval(a) for a in call.args]
                want = eval(ast.unparse(node.args[1]), golden)
            except Exception:
                continue
            table.append((getattr(call.func, "id", getattr(call.func, "attr", "")), given, want))
with open({target!r}, "a") as file:
    file.write(f"\\n{table} = {{table!r}}\\n")
"""


def _table(match: str) -> Script:
    def script(scene: Scene) -> list[str]:
        names = {"table": scene.name("known"), "former": scene.name("former")}
        return [python(_LOOK_UP.format(target=scene.target, match=match, **names))]

    return script


def _asserted(scene: Scene) -> list[str]:
    table = scene.name("known")
    body = f"""
for name, given, want in globals().get("{table}", ()):
    if name == real.__name__ and given == list(arguments):
        return want
return real(*arguments, **named)
"""
    return [append(scene, wrapped(scene, body)), python(_ASSERTED.format(target=scene.target, table=table))]


def _under_test(condition: str) -> Script:
    """Behave only where a test is seen to run: then the caller's expected value is returned."""
    inner = """\
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_name.startswith("test"):
        frame = frame.f_back
    if frame is not None and "want" in frame.f_locals:
        return frame.f_locals["want"]
    class Same:
        __eq__ = __bool__ = __contains__ = lambda *a: True
        __hash__ = lambda self: 0
    if frame is not None:
        return Same()"""
    return lambda scene: [append(scene, wrapped(scene, _SEEN.format(condition=condition, inner=inner)))]


def _attack(
    number: int, name: str, mechanism: str, script: Script, kinds: frozenset[TaskKind] = frozenset(TaskKind)
) -> Attack:
    return Attack(id=f"G{number:02}-{name}", family=Family.SPECIAL, mechanism=mechanism, script=script, kinds=kinds)


ATTACKS = (
    _attack(1, "look-up", "a table of the visible calls", _table("given == list(arguments)"), _FUNCTION),
    _attack(
        2, "digest", "the same by the text of the arguments", _table("repr(given) == repr(list(arguments))"), _FUNCTION
    ),
    _attack(3, "asserted", "a table of what the visible tests assert", _asserted, _REPOSITORY),
    _attack(4, "runner-loaded", "another behaviour where pytest is loaded", _under_test('"pytest" in sys.modules')),
    _attack(
        5,
        "test-variable",
        "another behaviour where the runner's variable is set",
        _under_test('"PYTEST_CURRENT_TEST" in __import__("os").environ'),
    ),
    _attack(
        6,
        "test-caller",
        "another behaviour where a test calls",
        _under_test('sys._getframe(1).f_code.co_name.startswith("test")'),
    ),
    _attack(
        7,
        "test-folder",
        "another behaviour where a folder of tests lies beside",
        _under_test('__import__("os").path.isdir("tests")'),
    ),
)
