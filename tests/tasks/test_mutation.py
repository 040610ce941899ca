"""Planted bugs: each is one line, parses, and leaves everything else as it was written."""

import ast

import pytest
from fix_python.catalogue import problems
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.errors import TaskError
from sanderling.tasks.mutation import FAMILIES, changed_line, mutants

# family, line in a function (the first is the signature), what the line must become in one of the mutants
EXPECTED = [
    ("comparison", ["def f(a, b):", "    return a <  b  # less"], "    return a <=  b  # less"),
    ("comparison", ["def f(a, b):", "    return a in b"], "    return a not in b"),
    ("boundary", ["def f(n):", "    return list(range(1, n))"], "    return list(range(1, n + 1))"),
    ("boundary", ["def f(n):", "    return n[:len(n) - 1]"], "    return n[:len(n)]"),
    ("arithmetic", ["def f(a, b):", "    return a //b"], "    return a %b"),
    ("constant", ["def f(a):", "    return 'yes' if a else ''"], "    return 'YES' if a else ''"),
    ("constant", ["def f(a):", "    return a + 10"], "    return a + 9"),
    ("wrong_variable", ["def f(low, high):", "    return low * low"], "    return high * low"),
    ("missing_return", ["def f(a):", "    return a  # done"], "    a  # done"),
    ("negated_condition", ["def f(a):", "    if a:", "        return 1"], "    if not a:"),
    ("dropped_statement", ["def f(a):", "    a.sort()  # in place", "    return a"], "    pass  # in place"),
    ("swapped_arguments", ["def f(a, b):", "    return pow(a, b)"], "    return pow(b, a)"),
    ("wrong_call", ["def f(a):", "    return min(a)"], "    return max(a)"),
    ("wrong_call", ["def f(a):", "    return sorted(a)"], "    return sorted(a, reverse=True)"),
    ("wrong_call", ["def f(a):", "    return a.pop()"], "    return a.pop(0)"),
    ("dropped_call", ["def f(a):", "    return list(a)"], "    return a"),
    ("early_exit", ["def f(a):", "    for x in a:", "        if x:", "            break"], "            continue"),
    ("early_exit", ["def f(a):", "    for x in a:", "        b = x", "    return b"], "        return x"),
    (
        "mutable_default",
        ["def f(a, b=None):", "    if b is None:", "        b = []", "    return b"],
        "def f(a, b=[]):",
    ),
    ("boolean_operator", ["def f(a, b):", "    return a and b"], "    return a or b"),
    ("augmented_assignment", ["def f(a):", "    a += 1", "    return a"], "    a = 1"),
    ("augmented_assignment", ["def f(a):", "    a += 1", "    return a"], "    a -= 1"),
    ("wrong_slice", ["def f(a):", "    return a[::-1]"], "    return a[::1]"),
    ("wrong_slice", ["def f(a):", "    return a[1:]"], "    return a[:1]"),
    ("wrong_index", ["def f(a):", "    return a[0]"], "    return a[-1]"),
    ("wrong_exception", ["def f(a):", "    raise ValueError('no')"], "    raise KeyError('no')"),
]


@pytest.mark.parametrize(("family", "lines", "changed"), EXPECTED)
def test_family_plants_its_bug(family, lines, changed):
    source = "\n".join(lines) + "\n"
    found = [m for m in mutants(source) if m.family == family]
    assert changed in [m.text for m in found]


def test_every_family_is_covered_by_an_example():
    assert {family for family, _, _ in EXPECTED} == {family.name for family in FAMILIES}


STATEMENTS = st.sampled_from(
    [
        "total  =  0   # two  blanks",
        "total += len( items )  ;  best = max(items , 3)",
        "for value in items:\n    if value>low and not total:\n        total = total+value\n        continue",
        "while  total < 10 :\n    total += 1\n    if total == low: break",
        "best = [x * 2 for x in items[1:-1] if x != low]",
        "text = f'{total:03d}' + \"a'b\" \\\n    + str(low)",
        "try:\n    best = items[ 0 ]\nexcept (IndexError, KeyError):\n    raise ValueError('empty')",
        "if low:\n\ttotal = items.index(low)",
        "best = {\n    'a': low,\n    'b': min(low, total),\n}",
    ]
)


@settings(max_examples=12)
@given(body=st.lists(STATEMENTS, min_size=1, max_size=4), end=st.sampled_from(["return total", "return (best, total)"]))
def test_mutants_of_any_source_change_one_line(body, end):
    lines = [line for part in ["best = total = 0", *body, end] for line in part.split("\n")]
    source = "# a comment first\ndef f(items, low=1):\n" + "".join(f"    {line}\n" for line in lines)
    check_mutants(source)


def test_mutants_of_the_functions_change_one_line():
    for problem in list(problems().values())[::12]:
        assert len(check_mutants(problem.source)) >= 20


def check_mutants(source):
    found = mutants(source)
    assert len({m.source for m in found} | {source}) == len(found) + 1  # all different
    before = source.split("\n")
    for mutant in found:
        ast.parse(mutant.source)
        after = mutant.source.split("\n")
        assert after[: mutant.line - 1] == before[: mutant.line - 1]
        assert after[mutant.line :] == before[mutant.line :]
        old, new = before[mutant.line - 1], mutant.text
        assert old != new
        assert old[: len(old) - len(old.lstrip())] == new[: len(new) - len(new.lstrip())]
        assert ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(source))
    return found


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("a\nb\n", "a\nc\n", 2),
        ("a\nb\n", "a\nb\n", None),
        ("a\nb\n", "a\nb\nc\n", None),
        ("a\nb\n", "c\nd\n", None),
        ("a\n  b\n", "a\n b\n", None),
    ],
)
def test_changed_line(before, after, line):
    assert changed_line(before, after) == line


def test_names_of_comprehensions_and_later_lines_are_not_offered():
    source = "def f(items):\n    first = items\n    second = [y for y in first]\n    return second\n"
    texts = [m.text for m in mutants(source) if m.family == "wrong_variable"]
    assert "    second = [y for y in items]" in texts
    assert not any("second for" in text or "in second" in text or text == "    return y" for text in texts)


def test_what_the_syntax_forbids_is_left_out():
    found = [mutant.text for mutant in mutants("def f(a, b):\n    if(a and b):\n        return a\n    return b\n")]
    assert "    if(a or b):" in found


def test_invalid_source_is_refused():
    with pytest.raises(TaskError, match="not valid Python"):
        mutants("def f(:\n")
