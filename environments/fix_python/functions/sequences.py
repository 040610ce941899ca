"""Problems about sequences: windows, chunks, rotations, runs, prefix sums and positions in lists."""

from __future__ import annotations

from random import Random

from fix_python.problem import problem


def _numbers(rng: Random, longest: int = 6, low: int = -3, high: int = 4) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(0, longest))]


def _letters(rng: Random, longest: int = 6, letters: str = "abc") -> list[str]:
    return [rng.choice(letters) for _ in range(rng.randint(0, longest))]


@problem(
    examples=[([1, 2, 4, 8], 2), ([5, -1, 3], 3), ([1, 2], 3), ([7, 2, 5], 1), ([4], 0)],
    cases=lambda rng: (_numbers(rng, 6, -3, 9), rng.randint(0, 4)),
)
def window_sums(numbers: list, size: int) -> list:
    """Sums of all windows of `size` neighbours; [] if size < 1."""
    if size < 1 or size > len(numbers):
        return []
    total = sum(numbers[:size])
    result = [total]
    for index in range(size, len(numbers)):
        total += numbers[index] - numbers[index - size]
        result.append(total)
    return result


@problem(
    examples=[([1, 2, 3, 4, 5], 2), ([1, 2, 3], 3), ([7, 8], 1), ([], 4), ([1], 0)],
    cases=lambda rng: (_numbers(rng, 7, 0, 9), rng.choice([-1, 0, 1, 1, 2, 2, 3, 4])),
)
def split_in_chunks(items: list, size: int) -> list:
    """Lists of `size` items, last may be short; ValueError if size < 1."""
    if size < 1:
        raise ValueError("size must be at least 1")
    chunks = []
    start = 0
    while start < len(items):
        chunks.append(items[start : start + size])
        start += size
    return chunks


@problem(
    examples=[([1, 2, 3, 4], 1), ([1, 2, 3], -1), ([5, 6, 7], 5), ([], 2)],
    cases=lambda rng: (rng.sample(range(9), rng.randint(0, 5)), rng.randint(-6, 7)),
)
def rotate_in_place(items: list, steps: int) -> list:
    """Move items right by `steps` in place, wrapping; return items."""
    size = len(items)
    if size == 0:
        return items
    cut = size - steps % size
    items[:] = items[cut:] + items[:cut]
    return items


def _drop_repeats_case(rng: Random) -> tuple:
    if rng.random() < 0.5:
        return (_numbers(rng, 6, 0, 3),)
    return (_numbers(rng, 6, 0, 4), rng.sample(range(5), rng.randint(0, 2)))


@problem(
    examples=[([1, 2, 1, 1],), ([2, 1, 3, 3],), ([3, 4, 5, 4], [4, 6]), ([], [1])],
    cases=_drop_repeats_case,
)
def drop_repeats(items: list, seen: list | None = None) -> list:
    """First of each item not in `seen` (a new list if None); seen grows."""
    if seen is None:
        seen = []
    fresh = []
    for item in items:
        if item not in seen:
            seen.append(item)
            fresh.append(item)
    return fresh


@problem(
    examples=[(["a", "b", "b", "a"],), (["c", "c", "a", "a"],), ([],), (["a", "b", "c", "c", "c"],)],
    cases=lambda rng: (_letters(rng, 8, "ab"),),
)
def longest_run(items: list) -> tuple:
    """Item and length of the (first) longest run; (None, 0) if empty."""
    best = (None, 0)
    start = 0
    for index in range(len(items)):
        if items[index] != items[start]:
            start = index
        length = index - start + 1
        if length > best[1]:
            best = (items[index], length)
    return best


def _reverse_part_case(rng: Random) -> tuple:
    items = rng.sample(range(9), rng.randint(1, 6))
    return items, rng.randrange(len(items)), rng.randrange(len(items))


@problem(
    examples=[([1, 2, 3, 4], 0, 3), ([5, 6, 7, 8], 1, 3), ([1, 2], 1, 1), ([3, 4, 5], 2, 0)],
    cases=_reverse_part_case,
)
def reverse_part(items: list, left: int, right: int) -> int:
    """Reverse items from index left to right in place; count the swaps."""
    swaps = 0
    while left < right:
        kept = items[left]
        items[left] = items[right]
        items[right] = kept
        left += 1
        right -= 1
        swaps += 1
    return swaps


def _range_sums_case(rng: Random) -> tuple:
    numbers = [rng.randint(-4, 9) for _ in range(rng.randint(1, 6))]
    queries = []
    for _ in range(rng.randint(0, 3)):
        first = rng.randrange(len(numbers))
        queries.append((first, rng.randint(first, len(numbers) - 1)))
    return numbers, queries


@problem(
    examples=[([1, 2, 4, 8], [(0, 1), (1, 3)]), ([5, -2, 3], [(1, 1), (0, 2)]), ([7], [(0, 0)]), ([3, 4], [])],
    cases=_range_sums_case,
)
def range_sums(numbers: list, queries: list) -> list:
    """For each (first, last) query the sum of that part, last included."""
    prefix = [0]
    for number in numbers:
        prefix.append(prefix[-1] + number)
    result = []
    for first, last in queries:
        result.append(prefix[last + 1] - prefix[first])
    return result


@problem(
    examples=[([1, 2, 3], [7, 8]), ([1], [4, 5, 6]), ([], [9]), ([3, 4], [])],
    cases=lambda rng: (_numbers(rng, 4, 0, 4), _numbers(rng, 4, 5, 9)),
)
def interleave_lists(left: list, right: list) -> list:
    """Items of left and right in turn, left first, then what remains."""
    shared = min(len(left), len(right))
    result = []
    for index in range(shared):
        result.append(left[index])
        result.append(right[index])
    result.extend(left[shared:])
    result.extend(right[shared:])
    return result


def _balance_index_case(rng: Random) -> tuple:
    left = _numbers(rng, 3, -1, 3)
    right = rng.sample(left, len(left))
    if rng.random() < 0.4:
        right.append(rng.randint(0, 2))
    return ([*left, rng.randint(-1, 3), *right],)


@problem(
    examples=[([1, 4, 9, 5],), ([2, 1, 1],), ([0, 3],), ([3, 0],), ([],)],
    cases=_balance_index_case,
)
def balance_index(numbers: list) -> int:
    """First index where the sums before and after it are equal, else -1."""
    before = 0
    after = sum(numbers)
    for index, number in enumerate(numbers):
        after -= number
        if before == after:
            return index
        before += number
    return -1


def _rotation_offset_case(rng: Random) -> tuple:
    first = _letters(rng, 5)
    cut = rng.randint(0, len(first))
    second = first[cut:] + first[:cut]
    if rng.random() < 0.3:
        second = [*second[:-1], rng.choice("abc")]
    if rng.random() < 0.2:
        second = [*second, "a"]
    return "".join(first), "".join(second)


@problem(
    examples=[("abcd", "cdab"), ("aab", "baa"), ("ab", "ab"), ("abc", "acb"), ("", "")],
    cases=_rotation_offset_case,
)
def rotation_offset(first: str, second: str) -> int:
    """Smallest cut of first whose swapped parts spell second, else -1."""
    cut = 0
    while cut <= len(first):
        swapped = first[cut:] + first[:cut]
        if swapped == second:
            return cut
        cut += 1
    return -1


@problem(
    examples=[([4, 1, 4, 2],), ([1, 5, 3],), ([2, 1],), ([],), ([3, 3],)],
    cases=lambda rng: (_numbers(rng, 6, 0, 4),),
)
def last_argmax(numbers: list) -> int:
    """Index of the largest number, the last one if tied; -1 if empty."""
    best = len(numbers) - 1
    index = best - 1
    while index >= 0:
        if numbers[index] > numbers[best]:
            best = index
        index -= 1
    return best


@problem(
    examples=[([3, 5, 1, 3, 2], 3), ([2, 9, 7], 4), ([1, 1], 1), ([], 0)],
    cases=lambda rng: (_numbers(rng, 6, 0, 5), rng.randint(0, 5)),
)
def partition_around(numbers: list, pivot: int) -> list:
    """Three lists in order: numbers below, equal to and above the pivot."""
    parts = [[], [], []]
    for number in numbers:
        if number < pivot:
            parts[0].append(number)
        elif number == pivot:
            parts[1].append(number)
        else:
            parts[2].append(number)
    return parts
