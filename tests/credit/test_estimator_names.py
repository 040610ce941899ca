"""Estimators by name: built in, from a module, from a file."""

import pytest

from sanderling.batch import assign_credit
from sanderling.credit import ESTIMATORS, Grpo, Rloo, load_estimator
from sanderling.errors import ConfigError, PluginError
from sanderling.testing import records
from sanderling.testing.group_files import fixture

GROUP_OF = {"tree-grpo": "two_trees", "tree-value": "two_trees"}  # estimators that need forks

OWN = """
import numpy as np
from pydantic import BaseModel

def halves(group):
    return {m.trajectory.id: np.full(len(m.trajectory.turns), 0.5) for m in group.graded()}

class Scaled(BaseModel):
    factor: float = 1.0
    def __call__(self, group):
        return {m.trajectory.id: np.full(len(m.trajectory.turns), self.factor) for m in group.graded()}

NUMBER = 3
"""


def test_built_in_names():
    assert load_estimator("grpo") == Grpo()
    assert load_estimator("mean") == Grpo(normalise="none")
    assert load_estimator("rloo") == Rloo()
    assert load_estimator("grpo-trl", {"ddof": 0}) == Grpo(eps=1e-4, ddof=0)
    for name in ESTIMATORS:
        group = GROUP_OF.get(name, "four_trajectories")
        found = assign_credit([fixture(group)], load_estimator(name))
        assert set(found) == {m.trajectory.id for m in fixture(group).graded()}


def test_own_function_and_class_from_a_file(tmp_path):
    file = tmp_path / "own_credit.py"
    file.write_text(OWN, "utf-8")
    group = records.group([1.0, None])
    assert list(load_estimator(f"{file}:halves")(group)["g0/0.0"]) == [0.5, 0.5]
    assert list(load_estimator(f"{file}:Scaled", {"factor": 2.0})(group)["g0/0.0"]) == [2.0, 2.0]
    with pytest.raises(ConfigError, match="takes no settings"):
        load_estimator(f"{file}:halves", {"factor": 2.0})
    with pytest.raises(PluginError, match="is a int"):
        load_estimator(f"{file}:NUMBER")


def test_from_a_module():
    assert isinstance(load_estimator("sanderling.credit.rloo:Rloo"), Rloo)


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("gpro", {}, PluginError, "did you mean 'grpo'"),
        ("nothing", {}, PluginError, "nothing"),
        ("grpo", {"epsilon": 1e-4}, ConfigError, "epsilon"),
        ("grpo", {"eps": -1.0}, ConfigError, "eps"),
        ("rloo", {"eps": 0.1}, ConfigError, "eps"),
        ("sanderling.credit.rloo:Nope", {}, PluginError, "Nope"),
    ],
)
def test_wrong_names_and_settings(name, settings, error, message):
    with pytest.raises(error, match=message):
        load_estimator(name, settings)
