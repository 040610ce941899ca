"""Small functions about lists and numbers."""


def keep_between(values: list, low: int, high: int) -> list:
    """Values from `low` to `high`, both included."""
    result = []
    for value in values:
        if low <= value <= high:
            result.append(value)
    return result


def drop_every(items: list, step: int) -> list:
    """Items without every `step`-th one."""
    if step < 1:
        raise ValueError("step must be positive")
    result = []
    for index, item in enumerate(items, 1):
        if index % step != 0:
            result.append(item)
    return result


def sliding_sums(values: list, size: int) -> list:
    """Sum of each window of `size` neighbours."""
    if size > len(values):
        return []
    total = sum(values[:size])
    result = [total]
    for index in range(size, len(values)):
        total += values[index] - values[index - size]
        result.append(total)
    return result


def window_peaks(values: list, size: int) -> list:
    """Largest value of each window of `size` values."""
    peaks = []
    for start in range(len(values) - size + 1):
        peaks.append(max(values[start:start + size]))
    return peaks


def total_with_tax(prices: list, percent: int) -> float:
    """Sum of the prices plus tax, rounded to cents."""
    total = 0
    for price in prices:
        total += price * (100 + percent) / 100
    return round(total, 2)


def running_maximum(values: list) -> list:
    """Highest value seen so far at each position."""
    result = []
    best = None
    for value in values:
        if best is None or value > best:
            best = value
        result.append(best)
    return result


def running_average(values: list) -> list:
    """Average of all values up to each position."""
    averages = []
    total = 0
    for count, value in enumerate(values, start=1):
        total += value
        averages.append(total / count)
    return averages


def countdown_by(start: int, step: int) -> list:
    """Numbers from `start` down to zero or above, by `step`."""
    if step <= 0:
        raise ValueError("step must be above zero")
    numbers = []
    current = start
    while current >= 0:
        numbers.append(current)
        current -= step
    return numbers


def number_ranges(numbers: list) -> list:
    """Consecutive numbers folded into [start, end] pairs."""
    ranges = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def expand_ranges(pairs: list) -> list:
    """All numbers covered by the (start, end) pairs, ends included."""
    numbers = set()
    for start, end in pairs:
        for number in range(start, end + 1):
            numbers.add(number)
    return sorted(numbers)


def dense_ranks(scores: list) -> list:
    """Rank of each score, the best is 1 and ties share a rank."""
    order = sorted(set(scores), reverse=True)
    ranks = {}
    for index, score in enumerate(order):
        ranks[score] = index + 1
    return [ranks[score] for score in scores]


def competition_rank(scores: list, score: int) -> int:
    """One more than the number of scores above `score`."""
    rank = 1
    for other in scores:
        if other > score:
            rank += 1
    return rank


def count_values(items: list) -> dict:
    """How many times each item occurs."""
    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts


def count_above_average(values: list) -> int:
    """How many values are greater than the average."""
    if not values:
        return 0
    average = sum(values) / len(values)
    return sum(1 for value in values if value > average)


def split_even_odd(numbers: list) -> tuple:
    """Even numbers and odd numbers, each in order."""
    even = []
    odd = []
    for number in numbers:
        if number % 2 == 0:
            even.append(number)
        else:
            odd.append(number)
    return even, odd


def partition_in_place(values: list, limit: int) -> int:
    """Move values below `limit` to the front and count them."""
    index = 0
    for position in range(len(values)):
        if values[position] < limit:
            value = values[position]
            values[position] = values[index]
            values[index] = value
            index += 1
    return index


def merge_sorted(left: list, right: list) -> list:
    """One sorted list from two sorted lists."""
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    return result + left[i:] + right[j:]


def interleave(left: list, right: list) -> list:
    """Items taken in turn, then the rest of the longer list."""
    result = []
    size = min(len(left), len(right))
    for index in range(size):
        result.append(left[index])
        result.append(right[index])
    result.extend(left[size:])
    result.extend(right[size:])
    return result


def rotate_left(items: list, count: int) -> list:
    """Items moved `count` places to the left, wrapping round."""
    if not items:
        return []
    start = count % len(items)
    return items[start:] + items[:start]


def rotate_right_in_place(items: list, count: int) -> None:
    """Move the last item to the front `count` times."""
    if len(items) < 2:
        return
    for _ in range(count % len(items)):
        last = items.pop()
        items.insert(0, last)


def neighbour_differences(values: list) -> list:
    """Difference of each value from the one before."""
    result = []
    for left, right in zip(values, values[1:]):
        result.append(right - left)
    return result


def restore_values(start: int, steps: list) -> list:
    """Values found by adding each step to the last value."""
    values = [start]
    for step in steps:
        values.append(values[-1] + step)
    return values


def largest_jump(values: list) -> int:
    """Largest absolute change between neighbours, 0 if none."""
    best = 0
    for index in range(1, len(values)):
        jump = abs(values[index] - values[index - 1])
        best = max(best, jump)
    return best


def even_steps(low: float, high: float, count: int) -> list:
    """Equally spaced numbers from `low` to `high`, both included."""
    if count < 2:
        raise ValueError("count must be at least 2")
    step = (high - low) / (count - 1)
    return [low + index * step for index in range(count)]


def first_above(values: list, limit: int) -> int:
    """Index of the first value above `limit`, or -1."""
    for index, value in enumerate(values):
        if value > limit:
            return index
    return -1


def last_below(values: list, limit: int) -> int:
    """Index of the last value below `limit`, or -1."""
    index = len(values) - 1
    while index >= 0 and values[index] >= limit:
        index -= 1
    return index


def threshold_crossings(values: list, limit: int) -> int:
    """How often the values go from below `limit` to at least it."""
    count = 0
    below = False
    for value in values:
        if below and value >= limit:
            count += 1
        below = value < limit
    return count


def average(values: list) -> float:
    """Mean of the values, 0.0 for an empty list."""
    if len(values) == 0:
        return 0.0
    return sum(values) / len(values)


def weighted_average(values: list, weights: list) -> float:
    """Mean of the values, each counted by its weight."""
    if len(values) != len(weights):
        raise ValueError("values and weights differ in length")
    total = 0
    for value, weight in zip(values, weights):
        total += value * weight
    return total / sum(weights)


def trimmed_average(values: list) -> float:
    """Mean without the lowest and the highest value."""
    if len(values) < 3:
        raise ValueError("need at least three values")
    total = sum(values) - min(values) - max(values)
    return total / (len(values) - 2)


def median(values: list) -> float:
    """Middle value, or the mean of the two middle values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def most_common(items: list) -> object:
    """Item that occurs most, the earliest one on a tie."""
    best = None
    high = 0
    for item in items:
        count = items.count(item)
        if count > high:
            high = count
            best = item
    return best


def chunks(items: list, size: int) -> list:
    """Items cut into lists of at most `size` items."""
    if size < 1:
        raise ValueError("size must be at least 1")
    result = []
    for start in range(0, len(items), size):
        result.append(items[start:start + size])
    return result


def split_at_value(items: list, mark: object) -> list:
    """Items cut into groups wherever `mark` occurs."""
    groups = [[]]
    for item in items:
        if item == mark:
            groups.append([])
        else:
            groups[-1].append(item)
    return groups


def group_by_remainder(numbers: list, size: int) -> dict:
    """Numbers listed under their remainder by `size`."""
    groups = {}
    for number in numbers:
        key = number % size
        if key not in groups:
            groups[key] = []
        groups[key].append(number)
    return groups


def unique_in_order(items: list) -> list:
    """Items without repeats, first occurrences kept."""
    seen = set()
    result = []
    for item in items:
        if item in seen:
            continue
        seen.add(item)
        result.append(item)
    return result


def collapse_repeats(items: list) -> list:
    """Items with each run of equal neighbours kept once."""
    result = []
    for item in items:
        if not result or result[-1] != item:
            result.append(item)
    return result


def run_lengths(items: list) -> list:
    """Pairs of each item and the length of its run."""
    pairs = []
    start = 0
    for end in range(1, len(items) + 1):
        if end == len(items) or items[end] != items[start]:
            pairs.append((items[start], end - start))
            start = end
    return pairs


def repeat_items(pairs: list) -> list:
    """List built from (item, count) pairs."""
    result = []
    for item, count in pairs:
        result.extend([item] * count)
    return result


def longest_rise(values: list) -> int:
    """Length of the longest run of strictly rising values."""
    if not values:
        return 0
    best = 1
    current = 1
    for index in range(1, len(values)):
        rises = values[index] > values[index - 1]
        current = current + 1 if rises else 1
        if current > best:
            best = current
    return best


def longest_streak(values: list, limit: int) -> int:
    """Length of the longest run of values of at least `limit`."""
    best = 0
    current = 0
    for value in values:
        if value >= limit:
            current += 1
            best = max(best, current)
        else:
            current = 0
    return best


def best_slice_sum(values: list) -> int:
    """Largest sum of any run of neighbours, 0 for no run."""
    best = 0
    current = 0
    for value in values:
        current = max(0, current + value)
        if current > best:
            best = current
    return best


def best_profit(prices: list) -> int:
    """Best gain from buying once and selling later."""
    profit = 0
    lowest = None
    for price in prices:
        if lowest is None or price < lowest:
            lowest = price
        elif price - lowest > profit:
            profit = price - lowest
    return profit


def find_pair(numbers: list, total: int) -> tuple:
    """Two sorted numbers that add up to `total`, or None."""
    left = 0
    right = len(numbers) - 1
    while left < right:
        current = numbers[left] + numbers[right]
        if current == total:
            return numbers[left], numbers[right]
        if current < total:
            left += 1
        else:
            right -= 1


def count_pairs(numbers: list, gap: int) -> int:
    """How many pairs of positions differ in value by `gap`."""
    count = 0
    for left in range(len(numbers)):
        for right in range(left + 1, len(numbers)):
            if abs(numbers[left] - numbers[right]) == gap:
                count += 1
    return count


def insert_position(values: list, value: int) -> int:
    """First index where `value` keeps the list sorted."""
    low = 0
    high = len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def insert_sorted(values: list, value: int) -> list:
    """Put `value` into its place in a sorted list."""
    index = len(values)
    while index > 0 and values[index - 1] > value:
        index -= 1
    values.insert(index, value)
    return values


def is_sorted(values: list) -> bool:
    """Whether no value is smaller than the one before."""
    for index in range(len(values) - 1):
        if values[index] > values[index + 1]:
            return False
    return True


def reverse_in_place(items: list) -> None:
    """Turn the list round by swapping its ends inwards."""
    left = 0
    right = len(items) - 1
    while left < right:
        items[left], items[right] = items[right], items[left]
        left += 1
        right -= 1


def reverse_part(items: list, start: int, end: int) -> list:
    """Items with those from `start` up to `end` reversed."""
    if start < 0 or end > len(items):
        raise ValueError("part is outside the list")
    part = items[start:end]
    part.reverse()
    return items[:start] + part + items[end:]


def zeros_to_end(values: list) -> None:
    """Shift zeros to the end and keep the others in order."""
    target = 0
    for value in list(values):
        if value != 0:
            values[target] = value
            target += 1
    while target < len(values):
        values[target] = 0
        target += 1


def clamp_all(values: list, low: int, high: int) -> list:
    """Values moved into the range from `low` to `high`."""
    if low > high:
        raise ValueError("low is above high")
    return [min(max(value, low), high) for value in values]


def scale_to_one(values: list) -> list:
    """Values mapped so that the lowest is 0 and the highest is 1."""
    low = min(values)
    size = max(values) - low
    if size == 0:
        return [0.0] * len(values)
    result = []
    for value in values:
        result.append((value - low) / size)
    return result


def percent_shares(counts: dict) -> dict:
    """Share of each key in percent, one decimal."""
    total = sum(counts.values())
    shares = {}
    for key, count in counts.items():
        if total > 0:
            shares[key] = round(100 * count / total, 1)
        else:
            shares[key] = 0.0
    return shares


def second_largest(values: list) -> int:
    """Second largest distinct value, or None."""
    best = None
    second = None
    for value in values:
        if best is None or value > best:
            second = best
            best = value
        elif value != best and (second is None or value > second):
            second = value
    return second


def top_values(values: list, count: int) -> list:
    """The `count` largest values, largest first."""
    rest = list(values)
    result = []
    while rest and len(result) < count:
        best = max(rest)
        rest.remove(best)
        result.append(best)
    return result


def lowest_indexes(values: list) -> list:
    """All positions where the smallest value occurs."""
    if not values:
        return []
    low = min(values)
    return [i for i, value in enumerate(values) if value == low]


def local_peaks(values: list) -> list:
    """Positions higher than both of their neighbours."""
    peaks = []
    for index in range(1, len(values) - 1):
        left = values[index - 1]
        right = values[index + 1]
        if values[index] > left and values[index] > right:
            peaks.append(index)
    return peaks


def balance_index(values: list) -> int:
    """Index with equal sums on its left and right, or -1."""
    right = sum(values)
    left = 0
    for index, value in enumerate(values):
        right -= value
        if left == right:
            return index
        left += value
    return -1


def prefix_sums(values: list) -> list:
    """Sums of the first 0, 1, 2, ... values."""
    sums = [0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums


def range_totals(values: list, queries: list) -> list:
    """Sum of values[start:end] for each (start, end) query."""
    totals = []
    for start, end in queries:
        if start >= end:
            totals.append(0)
        else:
            totals.append(sum(values[start:end]))
    return totals


def products_of_others(values: list) -> list:
    """For each position the product of all other values."""
    result = []
    for index in range(len(values)):
        product = 1
        for other in range(len(values)):
            if other != index:
                product *= values[other]
        result.append(product)
    return result


def missing_numbers(numbers: list) -> list:
    """Numbers between the least and the greatest that are absent."""
    if not numbers:
        return []
    known = set(numbers)
    missing = []
    for number in range(min(numbers) + 1, max(numbers)):
        if number not in known:
            missing.append(number)
    return missing


def smallest_free(numbers: list) -> int:
    """Smallest positive number that is not in the list."""
    used = set(numbers)
    number = 1
    while number in used:
        number += 1
    return number


def first_repeat(items: list) -> object:
    """First item that was seen before, or None."""
    seen = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


def common_sorted(left: list, right: list) -> list:
    """Values found in both of two sorted lists."""
    result = []
    index = 0
    for value in left:
        while index < len(right) and right[index] < value:
            index += 1
        if index < len(right) and right[index] == value:
            result.append(value)
            index += 1
    return result


def only_in_left(left: list, right: list) -> list:
    """Items of `left`, less one for each equal item of `right`."""
    result = left[:]
    for item in right:
        if item in result:
            result.remove(item)
    return result


def merge_intervals(pairs: list) -> list:
    """Overlapping (low, high) pairs joined, in order."""
    merged = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1]:
            start, end = merged.pop()
            merged.append((start, max(end, high)))
        else:
            merged.append((low, high))
    return merged


def free_gaps(pairs: list, start: int, end: int) -> list:
    """Gaps from `start` to `end` left by the sorted pairs."""
    gaps = []
    current = start
    for low, high in pairs:
        if low > current:
            gaps.append((current, low))
        current = max(current, high)
    if current < end:
        gaps.append((current, end))
    return gaps


def overlap_length(left: tuple, right: tuple) -> int:
    """Length shared by two (start, end) ranges."""
    start = max(left[0], right[0])
    end = min(left[1], right[1])
    if end <= start:
        return 0
    return end - start


def bucket_counts(values: list, limits: list) -> list:
    """Counts of values below each rising limit, then the rest."""
    counts = [0] * (len(limits) + 1)
    for value in values:
        index = 0
        while index < len(limits) and value >= limits[index]:
            index += 1
        counts[index] += 1
    return counts


def histogram_lines(values: list, size: int) -> list:
    """One line of stars for each bin of width `size`."""
    counts = {}
    for value in values:
        low = value // size * size
        counts[low] = counts.get(low, 0) + 1
    lines = []
    for low in sorted(counts):
        lines.append(str(low) + ": " + "*" * counts[low])
    return lines


def grade_for(score: int) -> str:
    """Letter for a score from 0 to 100."""
    if score < 0 or score > 100:
        raise ValueError("score out of range")
    for limit, letter in [(90, "A"), (75, "B"), (60, "C")]:
        if score >= limit:
            return letter
    return "D"


def fill_gaps(values: list) -> list:
    """Replace each None with the last known value, 0 at first."""
    result = []
    last = 0
    for value in values:
        if value is not None:
            last = value
        result.append(last)
    return result


def smooth(values: list) -> list:
    """Average of each value with its direct neighbours."""
    result = []
    for index in range(len(values)):
        start = max(0, index - 1)
        part = values[start:index + 2]
        result.append(sum(part) / len(part))
    return result


def add_lists(left: list, right: list) -> list:
    """Sums by position, a shorter list counts as zeros."""
    size = max(len(left), len(right))
    result = [0] * size
    for index, value in enumerate(left):
        result[index] += value
    for index, value in enumerate(right):
        result[index] += value
    return result


def dot_product(left: list, right: list) -> int:
    """Sum of the products by position."""
    if len(left) != len(right):
        raise ValueError("lists differ in length")
    total = 0
    for index in range(len(left)):
        total += left[index] * right[index]
    return total


def digits_of(number: int, base: int = 10) -> list:
    """Digits of a number from the highest to the lowest."""
    number = abs(number)
    digits = [number % base]
    while number >= base:
        number //= base
        digits.insert(0, number % base)
    return digits


def number_from_digits(digits: list) -> int:
    """Number written by a list of decimal digits."""
    number = 0
    for digit in digits:
        if digit < 0 or digit > 9:
            raise ValueError("not a digit: " + str(digit))
        number = number * 10 + digit
    return number


def add_one(digits: list) -> list:
    """Digits of the next number, with carries."""
    result = list(digits)
    for index in range(len(result) - 1, -1, -1):
        if result[index] < 9:
            result[index] += 1
            return result
        result[index] = 0
    return [1] + result


def primes_up_to(limit: int) -> list:
    """Prime numbers not above `limit`."""
    primes = []
    for number in range(2, limit + 1):
        if all(number % prime != 0 for prime in primes):
            primes.append(number)
    return primes


def divisors(number: int) -> list:
    """Divisors of a positive number, smallest first."""
    small = []
    large = []
    step = 1
    while step * step <= number:
        if number % step == 0:
            small.append(step)
            if step != number // step:
                large.append(number // step)
        step += 1
    return small + large[::-1]


def common_divisor(numbers: list) -> int:
    """Greatest number that divides all the numbers."""
    result = 0
    for number in numbers:
        left = abs(number)
        while left:
            result, left = left, result % left
    return result


def collect_until(values: list, limit: int, result=None) -> list:
    """Append values while their sum stays within `limit`."""
    if result is None:
        result = []
    total = sum(result)
    for value in values:
        if total + value > limit:
            break
        total += value
        result.append(value)
    return result


def days_to_reach(amounts: list, goal: int) -> int:
    """Number of days until the total reaches `goal`, or -1."""
    total = 0
    days = 0
    while total < goal:
        if days == len(amounts):
            return -1
        total += amounts[days]
        days += 1
    return days


def share_out(total: int, count: int) -> list:
    """Parts of `total` that differ by at most one."""
    if count <= 0:
        raise ValueError("count must be positive")
    part, extra = divmod(total, count)
    parts = [part] * count
    for index in range(extra):
        parts[index] += 1
    return parts


def pack_boxes(weights: list, limit: int) -> int:
    """How many boxes are filled when packing in order."""
    boxes = 0
    space = 0
    for weight in weights:
        if weight > limit:
            raise ValueError("item is too heavy")
        if weight > space:
            boxes += 1
            space = limit
        space -= weight
    return boxes


def make_change(amount: int, coins: list) -> dict:
    """Count of each coin, largest coins taken first."""
    counts = {}
    for coin in sorted(coins, reverse=True):
        if amount >= coin:
            counts[coin] = amount // coin
            amount %= coin
    if amount != 0:
        raise ValueError("amount cannot be paid")
    return counts


def next_greater(values: list) -> list:
    """For each value the next larger one to its right, or None."""
    result = [None] * len(values)
    waiting = []
    for index, value in enumerate(values):
        while waiting and values[waiting[-1]] < value:
            result[waiting.pop()] = value
        waiting.append(index)
    return result


def column_totals(rows: list) -> list:
    """Sum of each column of equally long rows."""
    if not rows:
        return []
    totals = [0] * len(rows[0])
    for row in rows:
        for column, value in enumerate(row):
            totals[column] += value
    return totals
