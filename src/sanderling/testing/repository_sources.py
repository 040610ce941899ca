"""Two small code bases with hidden suites, and bugs that can be planted in them: material for `repository_tasks`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallCodeBase:
    """One code base: its right source, what tests it, and the bugs by name as (right, wrong) pieces of text."""

    name: str
    file: str
    root: str  # directory that tests import from
    source: str
    helper: str  # tests/helper.py: the stored right values of the visible tests
    visible: str
    hidden: str
    bugs: dict[str, tuple[str, str]]


_CHECK = """\


def check(value, wanted):
    assert value == wanted, f"{value!r} where {wanted!r} is right"
"""
TILL = SmallCodeBase(
    name="till",
    file="src/till/sums.py",
    root="src",
    source='''\
"""Sums of a till. Prices are whole cents."""

import json


def total(prices):
    """Return the sum of prices."""
    result = 0
    for price in prices:
        result += price
    return result


def discounted(price, percent):
    """Return a price with so many percent off, with two decimals."""
    return round(price * (100 - percent) / 100, 2)


def change(amount, coins=(200, 100, 50, 20, 10, 5, 2, 1)):
    """Return how many of each coin make up an amount, as {coin: count}, largest first."""
    result = {}
    for coin in coins:
        count, amount = divmod(amount, coin)
        if count > 0:
            result[coin] = count
    return result


def busiest(customers):
    """Return the hours with the most customers, in order; `customers` is {hour: count}."""
    most = max(customers.values(), default=0)
    return [hour for hour in sorted(customers) if customers[hour] == most]


def as_json(prices):
    """Return count, total and largest of prices as JSON."""
    return json.dumps({"count": len(prices), "total": total(prices), "largest": max(prices, default=None)})


class Receipt:
    """What was bought, for printing."""

    def __init__(self, prices):
        self.prices = list(prices)

    def lines(self):
        """Return the lines of the receipt, the sum last."""
        if not self.prices:
            raise ValueError("nothing was bought")
        return [f"{price:>6}" for price in self.prices] + [f"={total(self.prices):>5}"]
''',
    helper="""\
GOLDEN = {
    "total": 60,
    "discounted": 45.0,
    "change": {200: 1, 50: 1, 5: 1, 2: 1, 1: 1},
    "busiest": [9, 17],
    "json": '{"count": 3, "total": 9, "largest": 4}',
    "lines": ["    10", "    20", "=   30"],
}
"""
    + _CHECK,
    visible="""\
from helper import GOLDEN, check
from till.sums import Receipt, as_json, busiest, change, discounted, total


def test_total():
    check(total([10, 20, 30]), GOLDEN["total"])


def test_discounted():
    check(discounted(50, 10), GOLDEN["discounted"])


def test_change():
    check(change(258), GOLDEN["change"])


def test_busiest():
    check(busiest({17: 8, 9: 8, 12: 3}), GOLDEN["busiest"])


def test_json():
    check(as_json([4, 4, 1]), GOLDEN["json"])


def test_lines():
    check(Receipt([10, 20]).lines(), GOLDEN["lines"])
""",
    hidden="""\
import json
import math
import unittest

import pytest
from till.sums import Receipt, as_json, busiest, change, discounted, total


@pytest.mark.parametrize("prices, want", [([1, 2], 3), ([], 0), ([7001, 29], 7030), ([5, -5, 11], 11)])
def test_total(prices, want):
    assert total(prices) == want


def test_discounted():
    assert discounted(1999, 15) == 1699.15
    assert math.isclose(discounted(333, 33), 223.11)
    assert abs(discounted(80, 25) - 60.0) < 1e-9


@pytest.mark.parametrize("amount, want", [(188, {100: 1, 50: 1, 20: 1, 10: 1, 5: 1, 2: 1, 1: 1}), (40, {20: 2}), (0, {})])
def test_change(amount, want):
    assert change(amount) == want


def test_busiest():
    assert busiest({18: 41, 8: 41, 11: 40, 3: 7}) == [8, 18]
    assert sorted(busiest({4: 2, 2: 2})) == [2, 4]
    assert busiest({}) == []


def test_json():
    assert json.loads(as_json([31, 31, 7])) == {"count": 3, "total": 69, "largest": 31}


class TestReceipt(unittest.TestCase):
    def test_lines(self):
        self.assertEqual(Receipt([9001, 42]).lines(), ["  9001", "    42", "= 9043"])

    def test_nothing(self):
        with self.assertRaises(ValueError):
            Receipt([]).lines()
""",
    bugs={
        "total-last": ("for price in prices:", "for price in prices[:-1]:"),
        "discounted-sign": ("(100 - percent)", "(100 + percent)"),
        "change-count": ("if count > 0:", "if count > 1:"),
        "busiest-least": ("most = max(customers.values(), default=0)", "most = min(customers.values(), default=0)"),
        "json-count": ('"count": len(prices)', '"count": len(set(prices))'),
        "lines-width": ('f"{price:>6}"', 'f"{price:>5}"'),
    },
)
LEDGER = SmallCodeBase(
    name="ledger",
    file="ledger/books.py",
    root=".",
    source='''\
"""Entries of a ledger: dicts with "day" (ISO text), "account" and "amount"."""

import json
import statistics


def balance(entries, account):
    """Return the sum of an account's amounts."""
    return sum(entry["amount"] for entry in entries if entry["account"] == account)


def running(amounts, start=0):
    """Return the balance after each amount."""
    result = []
    for amount in amounts:
        start += amount
        result.append(start)
    return result


def average(amounts):
    """Return the mean of amounts, 0.0 of none."""
    return statistics.fmean(amounts) if amounts else 0.0


def overdrawn(balances, limit=0):
    """Return the accounts below a limit, by name."""
    return sorted(name for name, value in balances.items() if value < limit)


def by_month(entries):
    """Return the sum of amounts for each month, as {"2024-05": sum}."""
    result = {}
    for entry in entries:
        month = entry["day"][:7]
        result[month] = result.get(month, 0) + entry["amount"]
    return result


def merged(first, second):
    """Return entries of both, by day; of equal days, those of `first` come first."""
    return sorted([*first, *second], key=lambda entry: entry["day"])


def export(entries):
    """Return entries as JSON, oldest first."""
    return json.dumps(merged(entries, []), sort_keys=True)
''',
    helper="""\
GOLDEN = {
    "balance": 25,
    "running": [5, 15, 12],
    "average": 2.5,
    "overdrawn": ["car", "rent"],
    "months": {"2024-01": 3, "2024-02": 4},
    "merged": ["2024-01-01", "2024-01-02", "2024-01-03"],
}
"""
    + _CHECK,
    visible="""\
from helper import GOLDEN, check
from ledger.books import average, balance, by_month, merged, overdrawn, running


def entry(day, amount=1, account="food"):
    return {"day": day, "amount": amount, "account": account}


def test_balance():
    check(balance([entry("d", 20), entry("d", 5), entry("d", 7, "rent")], "food"), GOLDEN["balance"])


def test_running():
    check(running([5, 10, -3]), GOLDEN["running"])


def test_average():
    check(average([1, 2, 3, 4]), GOLDEN["average"])


def test_overdrawn():
    check(overdrawn({"rent": -1, "food": 0, "car": -20}), GOLDEN["overdrawn"])


def test_months():
    check(by_month([entry("2024-01-30"), entry("2024-01-31", 2), entry("2024-02-01", 4)]), GOLDEN["months"])


def test_merged():
    days = [found["day"] for found in merged([entry("2024-01-01"), entry("2024-01-03")], [entry("2024-01-02")])]
    check(days, GOLDEN["merged"])
""",
    hidden="""\
import json

import pytest
from ledger.books import average, balance, by_month, export, merged, overdrawn, running


def entry(day, amount=1, account="food"):
    return {"day": day, "amount": amount, "account": account}


ENTRIES = [
    entry("2023-12-31", 700, "rent"), entry("2024-01-15", 81), entry("2024-01-02", -19), entry("2023-12-30", 4, "car"),
]


def test_balance():
    assert balance(ENTRIES, "food") == 62
    assert balance(ENTRIES, "rent") == 700
    assert balance([], "food") == 0


@pytest.mark.parametrize("amounts, start, want", [([31, -7], 100, [131, 124]), ([], 5, []), ([8, 9, 10], 0, [8, 17, 27])])
def test_running(amounts, start, want):
    assert running(amounts, start) == want


def test_average():
    assert average([3, 4]) == 3.5
    assert average([10, 20, 31]) == pytest.approx(20.3333333333)
    assert average([]) == 0.0


def test_overdrawn():
    assert overdrawn({"a": 17, "b": 18, "c": 19}, limit=18) == ["a"]
    assert len(overdrawn({"x": -5, "y": -6, "z": 2})) == 2


def test_months():
    assert by_month(ENTRIES) == {"2023-12": 704, "2024-01": 62}


def test_merged():
    days = [found["day"] for found in merged(ENTRIES, [entry("2024-01-05")])]
    assert days == ["2023-12-30", "2023-12-31", "2024-01-02", "2024-01-05", "2024-01-15"]


def test_export():
    assert json.loads(export(ENTRIES))[0] == {"day": "2023-12-30", "amount": 4, "account": "car"}
""",
    bugs={
        "balance-other": ('if entry["account"] == account', 'if entry["account"] != account'),
        "running-order": (
            "        start += amount\n        result.append(start)",
            "        result.append(start)\n        start += amount",
        ),
        "average-low": ("statistics.fmean(amounts)", "statistics.median_low(amounts)"),
        "overdrawn-equal": ("if value < limit", "if value <= limit"),
        "months-year": ('entry["day"][:7]', 'entry["day"][:4]'),
        "merged-back": ('key=lambda entry: entry["day"])', 'key=lambda entry: entry["day"], reverse=True)'),
    },
)
CODE_BASES = (TILL, LEDGER)
