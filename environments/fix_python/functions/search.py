"""Problems about searching and sorting: bisection, selection, merging, two pointers, in-place passes."""

from __future__ import annotations

from random import Random

from fix_python.problem import problem


def _numbers(rng: Random, low: int, high: int, longest: int) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(0, longest))]


def _table(rng: Random) -> tuple:
    name, score = rng.choice("xyz"), rng.randint(0, 5)
    if rng.random() < 0.2:
        return (name, score)
    scores = sorted(_numbers(rng, 0, 5, 3), reverse=True)
    return name, score, [(rng.choice("abc"), points) for points in scores]


@problem(
    examples=[([1, 3, 3, 5], 3), ([2, 4, 6], 7), ([2, 4, 6], 1), ([1, 2, 3, 4, 5], 5), ([], 2)],
    cases=lambda rng: (sorted(_numbers(rng, 0, 9, 8)), rng.randint(-1, 10)),
)
def lower_bound(items: list, target: int) -> int:
    """Index of the first of the sorted items >= target, length if none."""
    left = 0
    right = len(items)
    while left < right:
        middle = (left + right) // 2
        if items[middle] < target:
            left = middle + 1
        else:
            right = middle
    return left


@problem(
    examples=[([9, 7, 4, 1], 1), ([9, 7, 4], 9), ([8, 6, 3, 2], 5), ([9, 7, 5, 3, 1], 5), ([8, 6], 6)],
    cases=lambda rng: (sorted(rng.sample(range(12), rng.randint(0, 7)), reverse=True), rng.randint(0, 11)),
)
def find_descending(items: list, target: int) -> int:
    """Index of target in falling, different items; -1 if it is missing."""
    low = 0
    high = len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        value = items[middle]
        if value == target:
            return middle
        if value > target:
            low = middle + 1
        else:
            high = middle - 1
    return -1


@problem(
    examples=[([5, 2, 9, 2], 3), ([4, 1], 1), ([7, 3, 8], 3), ([1], 0), ([6, 5], 3)],
    cases=lambda rng: ((items := _numbers(rng, 0, 6, 6)), rng.randint(0, len(items) + 1)),
)
def kth_smallest(items: list, k: int) -> int:
    """The k-th smallest item, counted from 1; ValueError if not there."""
    if k < 1 or k > len(items):
        raise ValueError("no such item")
    rest = list(items)
    while k > 1:
        rest.remove(min(rest))
        k -= 1
    return min(rest)


@problem(
    examples=[(["a", "bbb"], ["c", "dd"]), (["xx"], ["y", "zz", "www"]), ([], ["q"]), (["m", "n"], [])],
    cases=lambda rng: (
        sorted((rng.choice("abc") * rng.randint(1, 3) for _ in range(rng.randint(0, 4))), key=len),
        sorted((rng.choice("xyz") * rng.randint(1, 3) for _ in range(rng.randint(0, 4))), key=len),
    ),
)
def merge_by_length(first: list, second: list) -> list:
    """Merge two lists sorted by length; on a tie an item of first leads."""
    result = []
    left = 0
    right = 0
    while left < len(first) and right < len(second):
        if len(first[left]) <= len(second[right]):
            result.append(first[left])
            left += 1
        else:
            result.append(second[right])
            right += 1
    return result + first[left:] + second[right:]


@problem(
    examples=[([2, 7, 5, 1], 6), ([3, 3, 1], 4), ([4, 2], 8), ([4, 4], 8), ([], 0)],
    cases=lambda rng: (_numbers(rng, 0, 5, 6), rng.randint(0, 9)),
)
def two_sum_indices(items: list, target: int) -> tuple:
    """First j with an i < j summing to target: (last i, j) or (-1, -1)."""
    seen = {}
    for index, value in enumerate(items):
        need = target - value
        if need in seen:
            return seen[need], index
        seen[value] = index
    return -1, -1


@problem(
    examples=[([1, 4, 2, 5, 1],), ([2, 2, 1, 3, 0],), ([5, 3, 3, 4],), ([1, 3, 3, 2],), ([7, 9, 8],)],
    cases=lambda rng: (_numbers(rng, 0, 4, 7),),
)
def first_peak(items: list) -> int:
    """Index of the first inner item above both neighbours, -1 if none."""
    for index in range(1, len(items) - 1):
        value = items[index]
        if value > items[index - 1] and value > items[index + 1]:
            return index
    return -1


@problem(
    examples=[([3, 1, 2],), ([1, 2, 2],), ([2, 2, 1, 0],), ([],)],
    cases=lambda rng: (_numbers(rng, 0, 4, 6),),
)
def bubble_pass(items: list) -> int:
    """One bubble sort pass in place; return the number of swaps."""
    swaps = 0
    for index in range(len(items) - 1):
        value = items[index]
        if value > items[index + 1]:
            items[index] = items[index + 1]
            items[index + 1] = value
            swaps += 1
    return swaps


@problem(
    examples=[([1, 8, 4], 5), ([7, 3], 5), ([3, 7], 5), ([-2, 9], 0), ([], 1)],
    cases=lambda rng: (_numbers(rng, -4, 6, 5), rng.randint(-4, 6)),
)
def nearest_value(items: list, target: int) -> int | None:
    """Item nearest to target, the larger on a tie; None for no items."""
    best = None
    for value in sorted(items):
        if best is None or abs(value - target) <= abs(best - target):
            best = value
    return best


@problem(
    examples=[([1, 2, 4, 7], 7), ([0, 0, 1], 1), ([3, 5], 8), ([2, 3, 5], 9), ([], 4)],
    cases=lambda rng: (sorted(_numbers(rng, -1, 5, 6)), rng.randint(-1, 9)),
)
def count_pairs_below(items: list, limit: int) -> int:
    """Number of pairs in sorted items whose sum is less than limit."""
    count = 0
    left = 0
    right = len(items) - 1
    while left < right:
        if items[left] + items[right] < limit:
            count += right - left
            left += 1
        else:
            right -= 1
    return count


@problem(
    examples=[([3, -1, 2],), ([-2, 2, 1, -2],), ([0, -5, 4, 5],), ([],)],
    cases=lambda rng: (_numbers(rng, -4, 4, 6),),
)
def sort_by_size(numbers: list) -> list:
    """New list, sorted by absolute value; ties keep their order."""
    result = []
    for number in numbers:
        index = len(result)
        while index > 0 and abs(result[index - 1]) > abs(number):
            index -= 1
        result.insert(index, number)
    return result


@problem(
    examples=[("3190",), ("0070",), ("9889",), ("",)],
    cases=lambda rng: ("".join(rng.choice("0012345678899") for _ in range(rng.randint(0, 6))),),
)
def largest_from_digits(text: str) -> str:
    """The digits of text from high to low, sorted by counting."""
    counts = [0] * 10
    for digit in text:
        counts[int(digit)] += 1
    result = ""
    for digit in range(9, -1, -1):
        result += str(digit) * counts[digit]
    return result


@problem(
    examples=[("x", 3), ("y", 4, [("a", 4), ("b", 1)]), ("z", 5, [("a", 4)]), ("x", 1, [("a", 3), ("b", 2), ("c", 1)])],
    cases=_table,
)
def insert_high_score(name, score, table=None) -> list:
    """Put (name, score) into the falling table, ties last; its first 3."""
    if table is None:
        table = []
    index = 0
    while index < len(table) and table[index][1] >= score:
        index += 1
    table.insert(index, (name, score))
    return table[:3]


@problem(
    examples=[([4, 7, 9, 1],), ([5, 5, 2],), ([8, 3, 6, 1],), ([2, 2],), ([],)],
    cases=lambda rng: (_numbers(rng, 0, 6, 6),),
)
def second_largest(items: list) -> int | None:
    """Second largest of the different values, None if fewer than two."""
    best = None
    second = None
    for value in items:
        if best is None or value > best:
            second = best
            best = value
        elif value < best and (second is None or value > second):
            second = value
    return second


@problem(
    examples=[([3, -1, 2, -4],), ([0, -2],), ([-3, 1],), ([],)],
    cases=lambda rng: (_numbers(rng, -2, 2, 6),),
)
def negatives_first(items: list) -> int:
    """Swap negatives to the front in place, in order; return how many."""
    place = 0
    for index, value in enumerate(items):
        if value < 0:
            items[index] = items[place]
            items[place] = value
            place += 1
    return place
