"""Problems about records: invoices, stock, grades, votes, fees, taxes and other small business rules."""

# ruff: noqa: T201 - one of the functions prints; a comment in its body would become part of the problem

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from fix_python.problem import problem

NAMES = ["ann", "bob", "cy", "dan"]


def _stock(rng: Random, low: int, high: int) -> dict[str, int]:
    return {name: rng.randint(low, high) for name in rng.sample(NAMES, rng.randint(0, 4))}


def _sale(rng: Random) -> tuple[dict[str, int], str, int]:
    stock = _stock(rng, 1, 4)
    name = rng.choice([*stock, *stock, *stock, *NAMES])
    return stock, name, rng.choice([0, 1, 1, 1, 2, 2, 3, stock.get(name, 1), stock.get(name, -1)])


def _scores(rng: Random) -> tuple[list[int]]:
    edges = [0, 1, 50, 74, 75, 76, 89, 90, 91, 99, 100]
    scores = [rng.choice(edges) for _ in range(rng.randint(0, 6))]
    if rng.random() < 0.25:
        scores.insert(rng.randint(0, len(scores)), rng.choice([-1, -2, 101, 102]))
    return (scores,)


def _bands(rng: Random) -> tuple[int, list[tuple[int, int]]]:
    limits = sorted(rng.sample([100, 200, 300, 500, 800], rng.randint(0, 3)))
    income = rng.choice([0, 50, 100, 200, 250, 300, 500, 777, 900])
    return income, [(limit, rng.choice([0, 10, 15, 20, 33])) for limit in limits]


def _dates(rng: Random) -> tuple[str, str]:
    due = rng.choice(["2024-02-27", "2023-02-27", "2023-12-30", "2024-05-31"])
    days = rng.choice([-40, -1, 0, 2, 3, 4, 5, 9, 10, 15, 16, 17, 40])
    return due, (date.fromisoformat(due) + timedelta(days=days)).isoformat()


@problem(
    examples=[([(10, 10), (25, 2)],), ([(7, 9), (3, 11)],), ([],)],
    cases=lambda rng: ([(rng.randint(0, 30), rng.choice([0, 1, 9, 10, 11, 25])) for _ in range(rng.randint(0, 4))],),
)
def invoice_total(lines: list) -> int:
    """Sum of price times quantity; 10 or more: a tenth (floored) off."""
    total = 0
    for price, quantity in lines:
        amount = price * quantity
        if quantity >= 10:
            amount -= amount // 10
        total += amount
    return total


@problem(
    examples=[({"pen": 4, "ink": 0, "cup": 3}, 4), ({"b": 1, "a": 2}, 3), ({}, 5)],
    cases=lambda rng: (_stock(rng, 0, 6), rng.randint(0, 6)),
)
def items_to_reorder(stock: dict, minimum: int) -> list:
    """Sorted (name, amount) that fill items below minimum to twice it."""
    orders = []
    for name in sorted(stock):
        level = stock[name]
        if level < minimum:
            orders.append((name, 2 * minimum - level))
    return orders


@problem(
    examples=[([100, 90, 89, 75],), ([74, 0],), ([91, 76, -1],), ([101],), ([],)],
    cases=_scores,
)
def grade_letters(scores: list) -> str:
    """A from 90, B from 75, else C, joined; ValueError outside 0 to 100."""
    letters = ""
    for score in scores:
        if score < 0 or score > 100:
            raise ValueError("bad score")
        if score >= 90:
            letters += "A"
        elif score >= 75:
            letters += "B"
        else:
            letters += "C"
    return letters


@problem(
    examples=[(["bob", "ann", "bob"],), (["cy", "bob", "cy", "bob", "dan"],), (["a", "b", "b"],), ([],)],
    cases=lambda rng: ([rng.choice(NAMES) for _ in range(rng.randint(0, 6))],),
)
def election_winner(votes: list) -> tuple:
    """Most voted (name, count), alphabet breaks ties; ('', 0) if none."""
    counts = {}
    for name in votes:
        counts[name] = counts.get(name, 0) + 1
    winner = ""
    most = 0
    for name in sorted(counts):
        if counts[name] > most:
            winner = name
            most = counts[name]
    return winner, most


@problem(
    examples=[([30, 50, 30, 10],), ([5, 5],), ([1, 2, 3],), ([],)],
    cases=lambda rng: ([rng.randint(0, 4) for _ in range(rng.randint(0, 6))],),
)
def competition_ranks(scores: list) -> list:
    """Rank of each score, best is 1; ties share it and use up the next."""
    ranks = []
    for score in scores:
        better = [other for other in scores if other > score]
        ranks.append(len(better) + 1)
    return ranks


@problem(
    examples=[(2, False), (2.5, True), (4, False), (0, True), (1, True)],
    cases=lambda rng: (rng.choice([-1, 0, 0.5, 1, 2, 2.5, 3, 3.25, 4, 7]), rng.random() < 0.5),
)
def parcel_fee(weight: float, express: bool) -> int:
    """5 up to 2 kg, else 6 plus 3 per started extra kg; express doubles."""
    import math

    if weight <= 0:
        return 0
    fee = 5
    if weight > 2:
        fee = 6 + 3 * math.ceil(weight - 2)
    if express:
        fee *= 2
    return fee


@problem(
    examples=[(250, [(100, 10), (200, 20), (300, 40)]), (50, [(100, 30), (200, 10)]), (900, [(500, 15)]), (9, [])],
    cases=_bands,
)
def banded_tax(income: int, bands: list) -> int:
    """Tax in cents; each rising (limit, percent) taxes up to its limit."""
    tax = 0
    lower = 0
    for limit, percent in bands:
        part = min(income, limit) - lower
        tax += max(0, part) * percent
        lower = limit
    return tax


@problem(
    examples=[(100, 10, 60), (51, 0, 25), (200, 10, 20), (0, 5, 1), (30, 10, 4)],
    cases=lambda rng: (
        rng.choice([0, 1, 10, 50, 100, 150, 199, 200]),
        rng.choice([0, 1, 5, 10, 20]),
        rng.choice([5, 10, 11, 20, 25, 50, 100]),
    ),
)
def months_to_pay(debt: int, percent: int, payment: int) -> int:
    """Months to pay, interest first; -1 once it reaches the payment."""
    months = 0
    while debt > 0:
        interest = debt * percent // 100
        if interest >= payment:
            return -1
        debt += interest - payment
        months += 1
    return months


@problem(
    examples=[
        ({"pen": 5, "ink": 2}, "pen", 3),
        ({"ink": 1}, "ink", 1),
        ({"cup": 1}, "cup", 2),
        ({"a": 4}, "a", 0),
        ({"a": 4}, "b", 1),
    ],
    cases=_sale,
)
def sell_item(stock: dict, name: str, amount: int) -> dict:
    """Sell in place, drop items at 0; ValueError if below 1 or too few."""
    left = stock.get(name, 0) - amount
    if amount < 1 or left < 0:
        raise ValueError("cannot sell")
    if left == 0:
        del stock[name]
    else:
        stock[name] = left
    return stock


@problem(
    examples=[
        ("pen", 2),
        ("ink", -3, {"ink": 4, "pen": 1}),
        ("cup", 8, {"cup": 2}),
        ("pen", -1, {"pen": 1}),
        ("a", -1),
    ],
    cases=lambda rng: (
        (rng.choice(NAMES), rng.choice([-2, -1, 0, 1, 2, 9, 10]))
        if rng.random() < 0.3
        else (rng.choice(NAMES), rng.choice([-3, -2, -1, 1, 5, 8]), _stock(rng, 1, 5))
    ),
)
def add_to_cart(name: str, count: int, cart: dict | None = None) -> dict:
    """Cart (new if None) with count more, at most 9; removed if below 1."""
    if cart is None:
        cart = {}
    amount = cart.get(name, 0) + count
    if amount > 0:
        cart[name] = min(amount, 9)
    else:
        cart.pop(name, None)
    return cart


@problem(
    examples=[([("tea", 3), ("bun", 2)],), ([("gift", 0), ("cup", 5)],), ([("back", -4)],), ([],)],
    cases=lambda rng: ([(rng.choice(NAMES), rng.randint(-2, 4)) for _ in range(rng.randint(0, 4))],),
)
def print_receipt(items: list) -> int:
    """Print number, name, price of non-free items, then the total."""
    total = 0
    number = 1
    for name, price in items:
        if price == 0:
            continue
        print(number, name, price)
        total += price
        number += 1
    print("total", total)
    return total


@problem(
    examples=[([("a", 2), ("b", 5), ("a", 4)],), ([("x", 0), ("x", 3), ("x", 3)],), ([],)],
    cases=lambda rng: ([(rng.choice("abc"), rng.randint(-3, 9)) for _ in range(rng.randint(0, 6))],),
)
def average_by_group(rows: list) -> dict:
    """Mean value of each group in rows of (group, value)."""
    groups = {}
    for group, value in rows:
        if group not in groups:
            groups[group] = []
        groups[group].append(value)
    result = {}
    for group, values in groups.items():
        result[group] = sum(values) / len(values)
    return result


@problem(
    examples=[("2024-02-27", "2024-03-02"), ("2023-02-27", "2023-03-02"), ("2024-01-01", "2024-02-01")],
    cases=_dates,
)
def late_fee(due: str, paid: str) -> int:
    """0 up to 3 days late, else 4 plus 2 per day beyond 3, at most 30."""
    from datetime import date

    gap = date.fromisoformat(paid) - date.fromisoformat(due)
    days = gap.days - 3
    if days <= 0:
        return 0
    return min(4 + 2 * days, 30)
