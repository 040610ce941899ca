"""Problems about numbers: digits, factors, bases, rounding, interest, limits and search."""

from __future__ import annotations

from random import Random

from fix_python.problem import problem


@problem(
    examples=[(99,), (9,), (10,), (0,), (2999,)],
    cases=lambda rng: (rng.choice([0, 9, 10, 19, 99, 199, rng.randint(0, 30), rng.randint(0, 9999)]),),
)
def digit_sum_steps(number: int) -> tuple:
    """Sum digits until one is left (number >= 0): (steps, last digit)."""
    steps = 0
    while number > 9:
        total = 0
        while number > 0:
            total += number % 10
            number //= 10
        number = total
        steps += 1
    return (steps, number)


@problem(
    examples=[(6, -4), (-3, 9), (0, 5), (3, -1), (1, 0)],
    cases=lambda rng: (rng.randint(-12, 12), rng.choice([0, 1, -1, 2, 3, -4, -6, 8, 12])),
)
def reduce_fraction(top: int, bottom: int) -> tuple:
    """Lowest terms with bottom above 0; ValueError if bottom is 0."""
    if bottom == 0:
        raise ValueError("bottom is 0")
    big = abs(top)
    small = abs(bottom)
    while small > 0:
        big, small = small, big % small
    if bottom < 0:
        big = -big
    return (top // big, bottom // big)


@problem(
    examples=[(10, 2), (255, 16), (0, 3), (5, 1), (9, 17)],
    cases=lambda rng: (rng.choice([0, 1, 2, 15, 16, 31, rng.randint(0, 300)]), rng.choice([1, 2, 3, 8, 10, 16, 17])),
)
def to_base(number: int, base: int) -> str:
    """Digits of number >= 0 in base 2 to 16; ValueError on other bases."""
    if base < 2 or base > 16:
        raise ValueError("bad base")
    if number == 0:
        return "0"
    digits = ""
    while number > 0:
        digits = "0123456789abcdef"[number % base] + digits
        number //= base
    return digits


@problem(
    examples=[(7, 5), (8, 5), (6, 4), (-3, 2), (0, 3)],
    cases=lambda rng: (rng.randint(-12, 12), rng.randint(1, 6)),
)
def nearest_multiple(number: int, step: int) -> int:
    """Multiple of step > 0 nearest to number; the higher one on a tie."""
    low = number // step * step
    high = low + step
    if number - low < high - number:
        return low
    return high


@problem(
    examples=[(99, 10, 109), (100, 10, 233), (100, 10, 234), (5, 10, 6), (8, 0, 8)],
    cases=lambda rng: (
        rng.choice([8, 50, 99, 100, 100, 100]),
        rng.choice([0, 7, 10, 10, 50]),
        rng.choice([8, 50, 100, 109, 110, 121, 150, 225, 212, 213, 233, 234, 256]),
    ),
)
def years_until(balance: int, percent: int, target: int) -> int:
    """Years of interest, rounded down, to reach target; -1 if over 9."""
    years = 0
    while balance < target:
        if years == 9:
            return -1
        balance += balance * percent // 100
        years += 1
    return years


def _limits(rng: Random) -> tuple:
    low = rng.randint(-3, 3)
    return ([rng.randint(-6, 6) for _ in range(rng.randint(0, 5))], low, low + rng.randint(0, 4))


@problem(
    examples=[([1, 5, 9], 2, 7), ([-4, 0], -1, 0), ([], 0, 1), ([3, 3], 3, 3)],
    cases=_limits,
)
def clamp_in_place(values: list, low: int, high: int) -> int:
    """Limit values to low up to high in place; return how many changed."""
    changed = 0
    for index in range(len(values)):
        limited = max(low, min(values[index], high))
        if limited != values[index]:
            values[index] = limited
            changed += 1
    return changed


@problem(
    examples=[(12,), (1,), (7,), (45,), (8,)],
    cases=lambda rng: (rng.choice([1, 2, 4, 9, 25, 27, 49, rng.randint(1, 60), rng.randint(1, 60)]),),
)
def prime_factors(number: int) -> list:
    """Primes with product number >= 1, smallest first, with repeats."""
    factors = []
    divisor = 2
    while number > 1:
        if number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        else:
            divisor += 1
    return factors


def _tax(rng: Random) -> tuple:
    limits = sorted(rng.sample([5, 10, 20, 30, 50], rng.randint(0, 3)))
    income = rng.choice([0, 7, 10, 20, 33, 60, *limits])
    return (income, [(limit, rng.choice([0, 10, 20, 30])) for limit in limits])


@problem(
    examples=[(30, [(10, 5), (50, 20)]), (10, [(20, 10), (40, 30)]), (60, [(50, 10)]), (9, [])],
    cases=_tax,
)
def bracket_tax(income: int, brackets: list) -> int:
    """Tax in cents: percent of the part from the limit before to limit."""
    tax = 0
    start = 0
    for limit, percent in brackets:
        part = max(min(income, limit) - start, 0)
        tax += part * percent
        start = limit
    return tax


@problem(
    examples=[("7992",), ("15",), ("0",), ("846",)],
    cases=lambda rng: ("".join(rng.choice("0123456789") for _ in range(rng.randint(0, 6))),),
)
def luhn_check_digit(digits: str) -> int:
    """Luhn check digit: 1st, 3rd.. from right doubled (over 9: -9)."""
    total = 0
    for index, letter in enumerate(reversed(digits)):
        digit = int(letter)
        if index % 2 == 0:
            digit *= 2
            if digit > 9:
                digit -= 9
        total += digit
    return (10 - total % 10) % 10


@problem(
    examples=[(3, 5, 4), (2, 2, 2), (4, 1, 4), (1, 2, 3), (2, 5, 2)],
    cases=lambda rng: (rng.randint(1, 5), rng.randint(1, 5), rng.randint(1, 5)),
)
def triangle_kind(a: int, b: int, c: int) -> str:
    """How many sides match: all, two or no; flat if not a triangle."""
    small, middle, large = sorted([a, b, c])
    if small + middle <= large:
        return "flat"
    if small == large:
        return "all"
    if middle in (small, large):
        return "two"
    return "no"


@problem(
    examples=[(0,), (1,), (8,), (9,), (30,)],
    cases=lambda rng: (rng.choice([0, 1, 2, 3, 4, 15, 16, 24, 25, rng.randint(0, 120)]),),
)
def floor_root(number: int) -> int:
    """Largest integer whose square is at most number >= 0, by halving."""
    low = 0
    high = number + 1
    while high - low > 1:
        middle = (low + high) // 2
        if middle * middle <= number:
            low = middle
        else:
            high = middle
    return low


@problem(
    examples=[([4, 6],), ([2, 0, 5],), ([],), ([3, -2, 1],)],
    cases=lambda rng: ([rng.choice([-3, 0, 1, 2, 3, 4, 6, 9, 10]) for _ in range(rng.randint(0, 4))],),
)
def shared_period(periods: list) -> int:
    """Least common multiple of the periods above 0; 1 if none are."""
    import math

    result = 1
    for period in periods:
        if period > 0:
            common = math.gcd(result, period)
            result *= period // common
    return result
