"""Names in a configuration: objects, classes and factories of each kind, and one clear error for everything else."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path

import pytest

from sanderling.assemble import check_backend, load_backend, load_environment, make, make_engine
from sanderling.config import load_config
from sanderling.credit.catalogue import load_estimator
from sanderling.environment import Environment
from sanderling.errors import ModelError, PluginError
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.testing.environments import RuleVerifier
from sanderling.testing.sandboxes import MemoryBackend

PARTS = """
from dataclasses import dataclass, replace
from sanderling.errors import ModelError
from sanderling.testing.engines import ScriptedEngine
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.testing.environments import RuleVerifier, calc_environment, memory_backend
from sanderling.testing.sandboxes import MemoryBackend

environment = calc_environment()
verifier, backend, engine = RuleVerifier(), memory_backend(), ScriptedEngine(script=[])
number = 7

def verifier_of(environment):
    return replace(environment.verifier, delay_s=0.25)

def engine_of(config, folder):
    return ScriptedEngine(script=[], policy_version=config.engine.max_batch, end_token=folder.name)

def needs_two(one, two):
    return MemoryBackend()

def breaks():
    return {}["missing"]

def no_model():
    raise ModelError("no weights in there")

def nothing():
    return None

class HalfVerifier:
    async def grade(self, task, submission, backend, seed):
        return None

class GradeIsANumber:
    grade = 1.0
    async def control(self, task, backend, seed):
        return None

class LooseProbe(MemoryBackend):
    def probe(self):
        return True

def untested():
    return replace(calc_environment(), harness=object(), verifier=RuleVerifier())

def with_half():
    return replace(calc_environment(), verifier=HalfVerifier())

class NotCallable:
    def __init__(self, gamma=1.0):
        pass

def no_group():
    return {}
"""


@pytest.fixture(autouse=True)
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parts.py").write_text(textwrap.dedent(PARTS))
    monkeypatch.chdir(tmp_path)


def test_an_object_a_class_and_a_factory_mean_the_same():
    calc = load_environment("sanderling.testing.environments:calc_environment")
    assert load_environment("parts.py:environment").name == calc.name == "calc"
    assert isinstance(load_environment("parts.py:environment", "parts.py:RuleVerifier").verifier, RuleVerifier)
    assert isinstance(load_environment("parts.py:environment", "parts.py:verifier").verifier, RuleVerifier)
    for name in ("parts.py:backend", "parts.py:MemoryBackend", "parts.py:memory_backend"):
        assert isinstance(load_backend(name), MemoryBackend)
    assert load_backend("parts.py:MemoryBackend") is not load_backend("parts.py:MemoryBackend")


def test_a_verifier_factory_gets_the_environment_and_empty_keeps_its_own():
    own = load_environment("parts.py:environment")
    assert load_environment("parts.py:environment", "").verifier is own.verifier
    other = load_environment("parts.py:environment", "parts.py:verifier_of").verifier
    assert (own.verifier.delay_s, other.delay_s) == (0.0, 0.25)


def test_an_engine_factory_gets_configuration_and_folder():
    config = load_config([], {"engine.name": "parts.py:engine_of", "engine.max_batch": 5})
    made = make_engine(config, Path("/models/one"))
    assert (made.policy_version, made.end_token) == (5, "one")
    same = load_config([], {"engine.name": "parts.py:engine"})
    assert make_engine(same, Path("/x")) is make_engine(same, Path("/x"))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("environments", "parts.py:number", "'parts.py:number' is a int without name, version, tasks"),
        ("environments", "parts.py:nothing", "is a NoneType without name"),
        (
            "verifiers",
            "parts.py:HalfVerifier",
            "is a HalfVerifier without control; expected an object as sanderling.verify",
        ),
        ("verifiers", "parts.py:GradeIsANumber", "is a GradeIsANumber without grade;"),
        ("verifiers", "parts.py:backend", "is a MemoryBackend without grade, control"),
        ("sandboxes", "parts.py:verifier", "is a RuleVerifier without probe, create, close"),
        ("sandboxes", "parts.py:needs_two", "has the signature (one, two); expected one that takes nothing"),
        ("sandboxes", "parts.py:breaks", "can't be made: KeyError('missing') at"),
        ("engines", "parts.py:number", "is a int without policy_version, generate, generate_many"),
        ("engines", "parts.py:needs_nothing", "has no 'needs_nothing'"),
        ("engines", "torhc", "did you mean 'torch'? Known: torch"),
        ("sandboxes", "bublewrap", "did you mean 'bubblewrap'? Known: bubblewrap, docker, local, podman"),
    ],
)
def test_the_wrong_kind_is_named_with_what_it_lacks(kind, name, message):
    with pytest.raises(PluginError) as error:
        make(kind, name)
    assert message in str(error.value)


def test_a_failing_factory_is_named_with_its_line():
    with pytest.raises(PluginError, match=r"parts\.py, line \d+$"):
        load_backend("parts.py:breaks")
    with pytest.raises(ModelError, match="no weights in there"):
        load_backend("parts.py:no_model")


def test_the_parts_of_an_environment_are_checked():
    with pytest.raises(PluginError, match="its harness is a object without prompt, start, codec"):
        load_environment("parts.py:untested")
    with pytest.raises(PluginError, match="its verifier is a HalfVerifier without control"):
        load_environment("parts.py:with_half")
    with pytest.raises(PluginError, match=r"has no 'verifer'; did you mean 'verifier'"):
        load_environment("parts.py:environment", "parts.py:verifer")


def test_a_backend_must_say_what_it_guarantees():
    with pytest.raises(PluginError, match="returned True; expected Capabilities"):
        check_backend(load_backend("parts.py:LooseProbe"))


@pytest.mark.parametrize("name", ["parts.py:NotCallable", "parts.py:no_group", "parts.py:needs_two"])
def test_an_estimator_must_take_a_group(name):
    with pytest.raises(PluginError, match="can't be called with a group"):
        load_estimator(name)


def test_an_environment_is_never_guessed():
    assert isinstance(load_environment("fix_python"), Environment)
    with pytest.raises(PluginError, match="did you mean 'fix_python'"):
        load_environment("fix-python")


def _install(folder: Path, package: str, *lines: str) -> None:
    """Make a package with entry points visible, as an installer would."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[sanderling.sandboxes]", *lines]))
    importlib.invalidate_caches()


def test_no_package_can_replace_a_built_in_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    ours = "sanderling.testing.sandboxes:MemoryBackend"
    _install(tmp_path, "shadow", f"bubblewrap = {ours}", f"remembering = {ours}")
    assert isinstance(load_backend("remembering"), MemoryBackend)
    assert isinstance(load_backend("bubblewrap"), BubblewrapBackend)


def test_a_name_that_two_packages_register_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    _install(tmp_path, "one", "both = parts:backend")
    _install(tmp_path, "two", "both = parts:MemoryBackend", "own = parts:MemoryBackend")
    assert isinstance(load_backend("own"), MemoryBackend)
    with pytest.raises(PluginError, match="register 'both', as parts:MemoryBackend and parts:backend; name the one"):
        load_backend("both")
    sys.modules.pop("parts")


def test_an_entry_point_that_fails_to_load_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    _install(tmp_path, "gone", "gone = no_such_module_at_all:backend")
    with pytest.raises(PluginError, match=r"entry point 'gone' \(no_such_module_at_all:backend\) fails to load"):
        load_backend("gone")
