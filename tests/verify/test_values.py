"""Values that cross a process boundary keep their exact type, and nothing else crosses it."""

import collections
import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanderling.verify.values import MAX_TEXT, decode, encode, has_opaque, same, text_of

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=8))
KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.tuples(st.integers(), st.text(max_size=3))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=12,
)


def exactly_equal(first, second):
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return repr(first) == repr(second)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(exactly_equal, first, second))
    if isinstance(first, dict):
        return len(first) == len(second) and all(
            exactly_equal(a, b) for a, b in zip(first.items(), second.items(), strict=True)
        )
    return first == second


@given(VALUES)
def test_round_trip_through_json_text(value):
    data = encode(value)
    back = decode(json.loads(json.dumps(data)))
    assert exactly_equal(value, back)
    assert same(data, encode(back))
    assert not has_opaque(data)


@given(VALUES, VALUES)
def test_texts_are_equal_only_for_equal_values(first, second):
    if text_of(encode(first)) == text_of(encode(second)):
        assert repr(first) == repr(second) or (type(first) is type(second) and first == second)


class AlwaysEqual:
    def __eq__(self, other):
        return True

    __hash__ = None


class Number(int):
    pass


class Colour(enum.IntEnum):
    RED = 1


DIFFERENT = [
    (1, True),
    (0, False),
    (1, 1.0),
    (0.0, -0.0),
    (1, "1"),
    (1, Number(1)),
    (1, Colour.RED),
    ("a", b"a"),
    ((), []),
    ({1}, frozenset({1})),
    ({1: 2}, {True: 2}),
    ({1: 2}, collections.OrderedDict({1: 2})),
    ({1: 2}, collections.Counter({1: 2})),
    ([1, 2], [2, 1]),
    (None, False),
    (math.nan, "nan"),
    ({"tuple": [1]}, (1,)),
    ({"float": "1.0"}, 1.0),
    ({"opaque": "x"}, object()),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_nearly_equal_values_differ(first, second):
    assert not same(encode(first), encode(second))
    assert not same(encode([first]), encode([second]))


def test_equal_values_whose_order_does_not_count():
    assert same(encode({1: "a", 2: "b"}), encode({2: "b", 1: "a"}))
    assert same(encode({"b", "a", "c"}), encode({"c", "b", "a"}))
    assert list(decode(encode({2: "b", 1: "a"}))) == [2, 1]  # but it is kept on the way in
    assert same(encode(math.nan), encode(float("nan")))


@pytest.mark.parametrize("value", [object(), AlwaysEqual(), Number(1), len, range(3), 1j, Colour.RED, type, iter([])])
def test_unknown_types_never_equal_anything(value):
    data = encode([value])
    assert has_opaque(data)
    assert not same(data, data)
    with pytest.raises(ValueError, match="not an encoded value"):
        decode(data)


def test_too_deep_too_large_and_endless_values_are_opaque_and_cheap():
    endless = []
    endless += [endless, endless, endless]
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep, list(range(100_000)), "x" * (MAX_TEXT + 1), {"k": "x" * MAX_TEXT, "l": "xx"}):
        assert has_opaque(encode(value))
        assert len(json.dumps(encode(value))) < 200_000


def test_large_integers_survive():
    for value in (10**5000, -(10**5000), 2**4096, 2**64):
        assert decode(json.loads(json.dumps(encode(value)))) == value


def test_a_type_can_not_pretend_to_be_built_in():
    false = type("ValueError", (Exception,), {"__module__": "builtins"})
    assert encode(false()) == {"opaque": "false builtins.ValueError"}
    hostile = type("X", (), {"__module__": property(lambda self: 1 / 0)})
    assert encode(hostile()) == {"opaque": "unknown.X"}
