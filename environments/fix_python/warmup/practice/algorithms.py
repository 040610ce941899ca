"""Small functions about algorithms and data structures."""


def binary_search(values: list, target: int) -> int:
    """Position of `target` in sorted `values`, or -1."""
    low = 0
    high = len(values) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if values[middle] > target:
            high = middle - 1
        else:
            low = middle
    return low if values and values[low] == target else -1


def lower_bound(values: list, limit: int) -> int:
    """First index whose value is at least `limit`."""
    left = 0
    right = len(values)
    while left < right:
        middle = (left + right) // 2
        if values[middle] < limit:
            left = middle + 1
        else:
            right = middle
    return left


def bubble_pass(values: list) -> bool:
    """One bubble pass in place; True when something moved."""
    swapped = False
    for index in range(len(values) - 1):
        if values[index] > values[index + 1]:
            keep = values[index]
            values[index] = values[index + 1]
            values[index + 1] = keep
            swapped = True
    return swapped


def insertion_sort(items: list) -> list:
    """Sorted copy, built by inserting one item after another."""
    result = list(items)
    for index in range(1, len(result)):
        current = result[index]
        place = index
        while place > 0 and result[place - 1] > current:
            result[place] = result[place - 1]
            place -= 1
        result[place] = current
    return result


def select_smallest(values: list, start: int) -> None:
    """Swap the smallest value from `start` on into place `start`."""
    best = start
    for index in range(start + 1, len(values)):
        if values[index] < values[best]:
            best = index
    values[start], values[best] = values[best], values[start]


def merge_sorted(left: list, right: list) -> list:
    """Merge two sorted lists into one sorted list."""
    result = []
    index = 0
    for value in left:
        while index < len(right) and right[index] < value:
            result.append(right[index])
            index += 1
        result.append(value)
    return result + right[index:]


def quick_sort(values: list) -> list:
    """Sorted copy by splitting around the first value."""
    if len(values) < 2:
        return values[:]
    pivot = values[0]
    small = [value for value in values[1:] if value < pivot]
    large = [value for value in values[1:] if value >= pivot]
    return quick_sort(small) + [pivot] + quick_sort(large)


def counting_sort(numbers: list, size: int) -> list:
    """Sort numbers from 0 to `size` - 1 by counting each."""
    counts = [0] * size
    for number in numbers:
        counts[number] += 1
    result = []
    for number in range(size):
        result.extend([number] * counts[number])
    return result


def brackets_match(text: str) -> bool:
    """True when every bracket is closed in the right order."""
    pairs = {")": "(", "]": "[", "}": "{"}
    stack = []
    for char in text:
        if char in "([{":
            stack.append(char)
        elif char in pairs:
            if not stack or stack.pop() != pairs[char]:
                return False
    return not stack


def deepest_nesting(text: str) -> int:
    """Greatest depth of round brackets in `text`."""
    depth = 0
    best = 0
    for char in text:
        if char == "(":
            depth += 1
            best = max(best, depth)
        elif char == ")":
            depth -= 1
    return best


def evaluate_postfix(words: list) -> int:
    """Value of a postfix sum such as ["2", "3", "+"]."""
    stack = []
    for word in words:
        if word.isdigit():
            stack.append(int(word))
            continue
        right = stack.pop()
        left = stack.pop()
        stack.append(left + right if word == "+" else left * right)
    return stack[-1]


def push_limited(stack: list, item: int, limit: int) -> bool:
    """Push `item` unless the stack already holds `limit` items."""
    if len(stack) >= limit:
        return False
    stack.append(item)
    return True


def rotate_queue(queue: list, steps: int) -> list:
    """Queue after moving the front to the back `steps` times."""
    result = list(queue)
    if not result:
        return result
    for _ in range(steps % len(result)):
        front = result.pop(0)
        result.append(front)
    return result


def last_survivor(size: int, step: int) -> int:
    """Who is left when every `step`-th in the ring goes out."""
    ring = list(range(1, size + 1))
    index = 0
    while len(ring) > 1:
        index = (index + step - 1) % len(ring)
        del ring[index]
    return ring[0]


def heap_push(heap: list, value: int) -> None:
    """Add `value` to a smallest-first heap, in place."""
    heap.append(value)
    index = len(heap) - 1
    while index > 0:
        parent = (index - 1) // 2
        if heap[parent] <= heap[index]:
            break
        heap[parent], heap[index] = heap[index], heap[parent]
        index = parent


def sift_down(heap: list, index: int) -> None:
    """Move the value at `index` down to its place in the heap."""
    size = len(heap)
    child = 2 * index + 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[index] <= heap[child]:
            return
        heap[index], heap[child] = heap[child], heap[index]
        index = child
        child = 2 * index + 1


def is_heap(values: list) -> bool:
    """True when no value is smaller than its parent."""
    for index in range(1, len(values)):
        if values[(index - 1) // 2] > values[index]:
            return False
    return True


def heap_children(values: list, index: int) -> list:
    """The one or two children of a place in a list heap."""
    left = 2 * index + 1
    return values[left:left + 2]


def reachable(graph: dict, start: str) -> set:
    """All nodes that can be reached from `start`."""
    seen = {start}
    stack = [start]
    while stack:
        node = stack.pop()
        for other in graph.get(node, []):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def hops_from(graph: dict, start: str) -> dict:
    """Fewest steps from `start` to each node it can reach."""
    steps = {start: 0}
    queue = [start]
    while queue:
        node = queue.pop(0)
        for other in graph[node]:
            if other not in steps:
                steps[other] = steps[node] + 1
                queue.append(other)
    return steps


def path_back(parents: dict, end: str) -> list:
    """Path from the root to `end`, following the parents back."""
    path = [end]
    while path[-1] in parents:
        path.append(parents[path[-1]])
    path.reverse()
    return path


def in_degrees(graph: dict) -> dict:
    """How many arrows point at each node."""
    counts = {node: 0 for node in graph}
    for targets in graph.values():
        for target in targets:
            counts[target] = counts.get(target, 0) + 1
    return counts


def reverse_graph(graph: dict) -> dict:
    """Graph with every arrow turned around."""
    result = {}
    for node in graph:
        result.setdefault(node, [])
        for target in graph[node]:
            result.setdefault(target, []).append(node)
    return result


def add_edge(graph: dict, left: str, right: str) -> None:
    """Join two nodes in both directions, in place."""
    if left == right:
        raise ValueError("an edge needs two nodes")
    graph.setdefault(left, set()).add(right)
    graph.setdefault(right, set()).add(left)


def count_groups(graph: dict) -> int:
    """Number of connected groups in an undirected graph."""
    left = set(graph)
    count = 0
    while left:
        stack = [left.pop()]
        count += 1
        while stack:
            joined = left & set(graph[stack.pop()])
            left -= joined
            stack.extend(joined)
    return count


def order_tasks(needs: dict) -> list:
    """Tasks in an order where each comes after its needs."""
    result = []
    while len(result) < len(needs):
        ready = []
        for name in sorted(needs):
            if name not in result and set(needs[name]) <= set(result):
                ready.append(name)
        if not ready:
            raise ValueError("tasks wait for each other")
        result.extend(ready)
    return result


def path_cost(costs: dict, path: list) -> int:
    """Total cost of a path, or -1 when an edge is missing."""
    total = 0
    for left, right in zip(path, path[1:]):
        if (left, right) not in costs:
            return -1
        total += costs[(left, right)]
    return total


def find_root(parents: list, index: int) -> int:
    """Root of `index`, shortening the way for the next time."""
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def color_two(graph: dict, start: int) -> dict:
    """Two-colour the nodes from `start`; empty when impossible."""
    colors = {start: 0}
    queue = [start]
    for node in queue:
        for other in graph[node]:
            if other not in colors:
                colors[other] = 1 - colors[node]
                queue.append(other)
            elif colors[other] == colors[node]:
                return {}
    return colors


def tree_size(tree: tuple) -> int:
    """Number of nodes in a (left, value, right) tree."""
    if tree is None:
        return 0
    left, value, right = tree
    return tree_size(left) + 1 + tree_size(right)


def tree_height(tree: tuple) -> int:
    """Levels in a (left, value, right) tree; 0 when empty."""
    if not tree:
        return 0
    return 1 + max(tree_height(tree[0]), tree_height(tree[2]))


def tree_insert(tree: tuple, value: int) -> tuple:
    """Search tree with `value` added where it belongs."""
    if tree is None:
        return (None, value, None)
    left, middle, right = tree
    if value < middle:
        return (tree_insert(left, value), middle, right)
    if value > middle:
        return (left, middle, tree_insert(right, value))
    return tree


def tree_contains(tree: tuple, value: int) -> bool:
    """True when the search tree holds `value`."""
    while tree is not None:
        left, current, right = tree
        if value == current:
            return True
        tree = left if value < current else right
    return False


def tree_in_order(tree: tuple) -> list:
    """Values of a search tree from smallest to largest."""
    if tree is None:
        return []
    left, value, right = tree
    return tree_in_order(left) + [value] + tree_in_order(right)


def tree_largest(tree: tuple) -> int:
    """Largest value of a search tree."""
    if tree is None:
        raise ValueError("empty tree")
    while tree[2] is not None:
        tree = tree[2]
    return tree[1]


def mirror_tree(tree: tuple) -> tuple:
    """Tree with left and right swapped all the way down."""
    if tree is None:
        return None
    return (mirror_tree(tree[2]), tree[1], mirror_tree(tree[0]))


def tree_levels(tree: tuple) -> list:
    """Values of a (left, value, right) tree, level by level."""
    result = []
    level = [tree] if tree else []
    while level:
        result.append([node[1] for node in level])
        below = []
        for left, _, right in level:
            below += [child for child in (left, right) if child]
        level = below
    return result


def sum_nested(items: list) -> int:
    """Sum of the numbers in lists inside lists."""
    total = 0
    for item in items:
        if isinstance(item, list):
            total += sum_nested(item)
        else:
            total += item
    return total


def flatten(items: list) -> list:
    """All items of nested lists in one flat list."""
    result = []
    stack = list(reversed(items))
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        else:
            result.append(item)
    return result


def digit_sum(number: int) -> int:
    """Sum of the decimal digits of `number`."""
    number = abs(number)
    total = 0
    while number > 0:
        total += number % 10
        number //= 10
    return total


def digital_root(number: int) -> int:
    """Sum the digits again and again until one is left."""
    while number >= 10:
        number = sum(int(digit) for digit in str(number))
    return number


def reverse_digits(number: int) -> int:
    """Number with its digits in reverse, keeping the sign."""
    sign = -1 if number < 0 else 1
    rest = abs(number)
    result = 0
    while rest:
        result = result * 10 + rest % 10
        rest //= 10
    return sign * result


def to_base(number: int, base: int) -> str:
    """Digits of `number` written in a base from 2 to 10."""
    if number == 0:
        return "0"
    text = ""
    while number > 0:
        number, digit = divmod(number, base)
        text = str(digit) + text
    return text


def from_base(text: str, base: int) -> int:
    """Number that the digits in `text` mean in `base`."""
    result = 0
    for char in text:
        digit = int(char)
        if digit >= base:
            raise ValueError("digit too large: " + char)
        result = result * base + digit
    return result


def count_ones(number: int) -> int:
    """How many bits of `number` are set."""
    count = 0
    while number:
        count += number & 1
        number >>= 1
    return count


def luhn_valid(text: str) -> bool:
    """True when the last digit makes the card sum end in 0."""
    total = 0
    for index, char in enumerate(reversed(text)):
        digit = int(char)
        if index % 2 == 1:
            digit *= 2
        if digit > 9:
            digit -= 9
        total += digit
    return total % 10 == 0


def divisors(number: int) -> list:
    """All divisors of `number` in rising order."""
    small = []
    large = []
    value = 1
    while value * value <= number:
        if number % value == 0:
            small.append(value)
            if value * value != number:
                large.append(number // value)
        value += 1
    return small + large[::-1]


def common_divisor(left: int, right: int) -> int:
    """Greatest number that divides both."""
    while right != 0:
        left, right = right, left % right
    return abs(left)


def common_multiple(numbers: list) -> int:
    """Smallest number that all the numbers divide."""
    result = 1
    for number in numbers:
        step = result
        while result % number != 0:
            result += step
    return result


def is_prime(number: int) -> bool:
    """True when only 1 and the number itself divide it."""
    if number < 2:
        return False
    for divisor in range(2, int(number ** 0.5) + 1):
        if number % divisor == 0:
            return False
    return True


def prime_factors(number: int) -> list:
    """Prime factors in rising order, with repeats."""
    result = []
    factor = 2
    while factor * factor <= number:
        while number % factor == 0:
            result.append(factor)
            number //= factor
        factor += 1
    if number > 1:
        result.append(number)
    return result


def sieve(limit: int) -> list:
    """All primes below `limit`."""
    prime = [True] * limit
    result = []
    for number in range(2, limit):
        if not prime[number]:
            continue
        result.append(number)
        for multiple in range(number * number, limit, number):
            prime[multiple] = False
    return result


def is_perfect(number: int) -> bool:
    """True when the smaller divisors add up to the number."""
    total = 0
    for value in range(1, number // 2 + 1):
        if number % value == 0:
            total += value
    return number > 1 and total == number


def collatz(number: int) -> list:
    """Collatz sequence from `number` down to 1."""
    if number < 1:
        raise ValueError("number must be positive")
    result = [number]
    while number != 1:
        if number % 2 == 0:
            number //= 2
        else:
            number = 3 * number + 1
        result.append(number)
    return result


def longest_collatz(limit: int) -> int:
    """Start up to `limit` that takes the most steps to reach 1."""
    best = (0, 1)
    for start in range(1, limit + 1):
        value = start
        steps = 0
        while value > 1:
            value = 3 * value + 1 if value % 2 else value // 2
            steps += 1
        best = max(best, (steps, start))
    return best[1]


def triangular_numbers(count: int) -> list:
    """The first `count` triangular numbers: 1, 3, 6, 10, ..."""
    result = []
    total = 0
    for step in range(1, count + 1):
        total += step
        result.append(total)
    return result


def is_triangular(number: int) -> bool:
    """True when 1 + 2 + 3 + ... reaches `number` exactly."""
    step = 1
    while number > 0:
        number -= step
        step += 1
    return number == 0


def fibonacci_below(limit: int) -> list:
    """Fibonacci numbers smaller than `limit`, from 0 and 1."""
    result = []
    current = 0
    following = 1
    while current < limit:
        result.append(current)
        current, following = following, current + following
    return result


def pascal_row(index: int) -> list:
    """Row of Pascal's triangle; row 0 is [1]."""
    row = [1]
    for _ in range(index):
        middle = [row[i] + row[i + 1] for i in range(len(row) - 1)]
        row = [1] + middle + [1]
    return row


def look_and_say(text: str) -> str:
    """Read the runs aloud: "1121" gives "211211"."""
    result = ""
    start = 0
    while start < len(text):
        end = start
        while end < len(text) and text[end] == text[start]:
            end += 1
        result += str(end - start) + text[start]
        start = end
    return result


def power_mod(base: int, exponent: int, modulus: int) -> int:
    """base ** exponent % modulus by repeated squaring."""
    result = 1
    base %= modulus
    while exponent > 0:
        if exponent % 2 == 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent //= 2
    return result % modulus


def whole_root(number: int) -> int:
    """Largest whole number whose square fits in `number`."""
    low = 0
    high = number + 1
    while high - low > 1:
        middle = (low + high) // 2
        if middle * middle <= number:
            low = middle
        else:
            high = middle
    return low


def make_change(amount: int, coins: list) -> list:
    """Coins for `amount`, always taking the largest that fits."""
    result = []
    for coin in sorted(coins, reverse=True):
        while amount >= coin:
            result.append(coin)
            amount -= coin
    if amount > 0:
        raise ValueError("no exact change")
    return result


def fewest_coins(amount: int, coins: list) -> int:
    """Fewest coins that make `amount`, or -1."""
    best = [0] + [amount + 1] * amount
    for value in range(1, amount + 1):
        for coin in coins:
            if coin <= value:
                best[value] = min(best[value], best[value - coin] + 1)
    return best[amount] if best[amount] <= amount else -1


def ways_to_pay(amount: int, coins: list) -> int:
    """In how many ways the coins can add up to `amount`."""
    ways = [1] + [0] * amount
    for coin in coins:
        for value in range(coin, amount + 1):
            ways[value] += ways[value - coin]
    return ways[amount]


def pick_meetings(meetings: list) -> list:
    """Most (start, end) meetings that do not overlap."""
    chosen = []
    free = 0
    for start, end in sorted(meetings, key=lambda pair: pair[1]):
        if start >= free:
            chosen.append((start, end))
            free = end
    return chosen


def rooms_needed(starts: list, ends: list) -> int:
    """Most meetings that run at the same time."""
    best = 0
    for start in starts:
        open_now = sum(1 for value in starts if value <= start)
        closed = sum(1 for value in ends if value <= start)
        best = max(best, open_now - closed)
    return best


def merge_ranges(ranges: list) -> list:
    """Join the (start, end) ranges that touch or overlap."""
    result = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            last = result[-1]
            result[-1] = (last[0], max(last[1], end))
        else:
            result.append((start, end))
    return result


def boats_needed(weights: list, limit: int) -> int:
    """Boats for all, two to a boat, within the weight limit."""
    order = sorted(weights)
    left = 0
    right = len(order) - 1
    count = 0
    while left <= right:
        if order[left] + order[right] <= limit:
            left += 1
        right -= 1
        count += 1
    return count


def fill_bags(sizes: list, space: int) -> list:
    """Put each size into the first bag with room for it."""
    bags = []
    for size in sizes:
        for bag in bags:
            if sum(bag) + size <= space:
                bag.append(size)
                break
        else:
            bags.append([size])
    return bags


def best_profit(prices: list) -> int:
    """Best gain from one buy and one later sale."""
    best = 0
    lowest = None
    for price in prices:
        if lowest is None or price < lowest:
            lowest = price
        best = max(best, price - lowest)
    return best


def best_run_sum(values: list) -> int:
    """Largest sum of neighbouring values."""
    if not values:
        raise ValueError("no values")
    best = values[0]
    current = 0
    for value in values:
        current = max(current + value, value)
        best = max(best, current)
    return best


def pair_with_sum(values: list, target: int) -> tuple:
    """Two values of a sorted list that add up to `target`."""
    left = 0
    right = len(values) - 1
    while left < right:
        gap = target - values[left] - values[right]
        if gap == 0:
            return (values[left], values[right])
        left += gap > 0
        right -= gap < 0
    return None


def next_greater(values: list) -> list:
    """For each value the next larger one to its right, or -1."""
    result = [-1] * len(values)
    waiting = []
    for index, value in enumerate(values):
        while waiting and values[waiting[-1]] < value:
            result[waiting.pop()] = value
        waiting.append(index)
    return result


def longest_unique(text: str) -> int:
    """Length of the longest piece without a repeated letter."""
    last = {}
    start = 0
    best = 0
    for index, char in enumerate(text):
        if last.get(char, -1) >= start:
            start = last[char] + 1
        last[char] = index
        best = max(best, index - start + 1)
    return best


def majority(items: list) -> str:
    """Item that fills more than half of the list, or None."""
    current = None
    count = 0
    for item in items:
        if count == 0:
            current = item
        count += 1 if item == current else -1
    if items.count(current) * 2 > len(items):
        return current
    return None


def edit_distance(left: str, right: str) -> int:
    """Fewest single-letter changes from `left` to `right`."""
    row = list(range(len(right) + 1))
    for i, first in enumerate(left, 1):
        above = row
        row = [i]
        for j, second in enumerate(right, 1):
            swap = above[j - 1] + (first != second)
            row.append(min(swap, above[j] + 1, row[-1] + 1))
    return row[-1]


def is_subsequence(short: str, text: str) -> bool:
    """True when `short` can be read in order inside `text`."""
    index = 0
    for char in text:
        if index < len(short) and char == short[index]:
            index += 1
    return index == len(short)


def wildcard_match(pattern: str, text: str) -> bool:
    """Match where "?" is any letter and "*" is any piece."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        if wildcard_match(pattern[1:], text):
            return True
        return text != "" and wildcard_match(pattern, text[1:])
    if not text or pattern[0] not in ("?", text[0]):
        return False
    return wildcard_match(pattern[1:], text[1:])


def find_all(text: str, word: str) -> list:
    """Every index where `word` begins in `text`."""
    size = len(word)
    places = []
    for start in range(len(text) - size + 1):
        if text[start:start + size] == word:
            places.append(start)
    return places


def match_partners(wishes: dict) -> list:
    """Pairs of names, each taking the first wish still free."""
    pairs = []
    taken = set()
    for name, choices in wishes.items():
        for choice in choices:
            if choice not in taken:
                taken.add(choice)
                pairs.append((name, choice))
                break
    return pairs


def run_program(steps: list) -> int:
    """Run ("add", 3) or ("jump", -2) steps until one repeats."""
    total = 0
    index = 0
    seen = set()
    while index < len(steps) and index not in seen:
        seen.add(index)
        name, value = steps[index]
        if name == "add":
            total += value
        index += value if name == "jump" else 1
    return total


def walk_robot(moves: str) -> tuple:
    """Final (row, column) after moves such as "UDLR"."""
    row = 0
    column = 0
    steps = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
    for move in moves:
        if move not in steps:
            raise ValueError("unknown move: " + move)
        row += steps[move][0]
        column += steps[move][1]
    return (row, column)


def run_states(table: dict, start: str, text: str) -> str:
    """State of a machine after reading `text`; "fail" if stuck."""
    state = start
    for char in text:
        key = (state, char)
        if key not in table:
            return "fail"
        state = table[key]
    return state


def vending_change(coins: list, price: int) -> int:
    """Money given back once the coins reach the price."""
    paid = 0
    for coin in coins:
        if coin not in (5, 10, 20, 50):
            continue
        paid += coin
        if paid >= price:
            return paid - price
    return paid


def next_cells(cells: list) -> list:
    """Next row of cells: alive when exactly one neighbour is."""
    size = len(cells)
    result = []
    for index in range(size):
        left = cells[index - 1] if index > 0 else 0
        right = cells[index + 1] if index < size - 1 else 0
        result.append(1 if left + right == 1 else 0)
    return result


def flood_fill(grid: list, row: int, column: int, color: int) -> None:
    """Recolour the area around a cell, in place."""
    old = grid[row][column]
    stack = [(row, column)] if old != color else []
    while stack:
        r, c = stack.pop()
        if not (0 <= r < len(grid) and 0 <= c < len(grid[0])):
            continue
        if grid[r][c] == old:
            grid[r][c] = color
            stack += [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]


def move_disks(count: int, start: str, end: str, spare: str) -> list:
    """Moves that bring a tower of disks from `start` to `end`."""
    if count == 0:
        return []
    first = move_disks(count - 1, start, spare, end)
    last = move_disks(count - 1, spare, end, start)
    return first + [(start, end)] + last


def all_subsets(items: list) -> list:
    """Every way to choose some of the items."""
    result = [[]]
    for item in items:
        larger = []
        for subset in result:
            larger.append(subset + [item])
        result += larger
    return result


def arrangements(text: str) -> list:
    """All orders of the letters of `text`."""
    if len(text) <= 1:
        return [text]
    result = []
    for index, char in enumerate(text):
        rest = text[:index] + text[index + 1:]
        for tail in arrangements(rest):
            result.append(char + tail)
    return result
