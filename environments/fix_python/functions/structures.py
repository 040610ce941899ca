"""Problems about data structures: stacks, queues, dicts, graphs, trees, heaps, caches and intervals."""

from __future__ import annotations

from random import Random

from fix_python.problem import problem


def _postfix(rng: Random) -> tuple:
    tokens = [str(rng.randint(0, 9))]
    for _ in range(rng.randint(0, 2)):
        tokens += [str(rng.randint(1, 9)), rng.choice("+-")]
    if rng.random() < 0.3:
        tokens = [str(rng.randint(1, 9)), *tokens, rng.choice("+-")]
    if rng.random() < 0.15:
        tokens.append(rng.choice("+-"))
    return (" ".join(tokens),)


@problem(
    examples=[("5 3 -",), ("1 2 3 + -",), ("7",), ("4 +",), ("2 6 + 1 -",)],
    cases=_postfix,
)
def run_postfix(text: str) -> int:
    """Value of postfix text with + and -; ValueError if a number lacks."""
    stack = []
    for token in text.split():
        if token not in ("+", "-"):
            stack.append(int(token))
            continue
        if len(stack) < 2:
            raise ValueError("too few numbers")
        right = stack.pop()
        left = stack.pop()
        stack.append(left + right if token == "+" else left - right)
    return stack[-1]


@problem(
    examples=[({"a": 1, "b": 2, "c": 1},), ({"x": None, "y": 3},), ({"b": 5, "a": 5},), ({},)],
    cases=lambda rng: (
        {key: rng.choice([None, 0, 1, 2]) for key in rng.sample(["a", "b", "c", "d"], rng.randint(0, 4))},
    ),
)
def keys_by_value(data: dict) -> dict:
    """For each value of data its sorted keys; None values are left out."""
    groups = {}
    for key in sorted(data):
        value = data[key]
        if value is None:
            continue
        if value not in groups:
            groups[value] = []
        groups[value].append(key)
    return groups


def _edges_case(rng: Random) -> tuple:
    edges = [(rng.choice("abc"), rng.choice("abc")) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.5:
        return (edges,)
    return edges, {key: [rng.choice("xyz")] for key in rng.sample(["a", "b", "d"], rng.randint(0, 2))}


@problem(
    examples=[([("a", "b"), ("c", "a")],), ([("b", "b")],), ([("a", "c")], {"a": ["d"], "d": ["a"]}), ([], {})],
    cases=_edges_case,
)
def link_both_ways(edges: list, graph: dict | None = None) -> dict:
    """Add edges to the graph (new if None) from both ends, loops once."""
    if graph is None:
        graph = {}
    for left, right in edges:
        graph.setdefault(left, []).append(right)
        if left != right:
            graph.setdefault(right, []).append(left)
    return graph


def _graph(rng: Random) -> dict[str, list[str]]:
    nodes = ["a", "b", "c", "d"]
    graph = {}
    for node in nodes:
        if rng.random() < 0.8:
            graph[node] = rng.sample(nodes, rng.randint(0, 2))
    return graph


@problem(
    examples=[
        ({"a": ["b", "c"], "b": ["d"], "c": ["a"]}, "a", "d"),
        ({"a": ["b"], "b": ["c", "a"], "c": ["b"]}, "a", "d"),
        ({"a": ["b", "c"], "b": ["a", "d"], "c": ["b"]}, "c", "d"),
        ({}, "a", "a"),
    ],
    cases=lambda rng: (_graph(rng), rng.choice("abcd"), rng.choice("abcd")),
)
def hops_between(graph: dict, start: str, goal: str) -> int:
    """Fewest edges from start to goal in the graph; -1 if out of reach."""
    queue = [(start, 0)]
    seen = {start}
    for node, hops in queue:
        if node == goal:
            return hops
        for other in graph.get(node, []):
            if other not in seen:
                seen.add(other)
                queue.append((other, hops + 1))
    return -1


def _nested(rng: Random, depth: int) -> list:
    items: list = []
    for _ in range(rng.randint(0, 3)):
        if depth > 0 and rng.random() < 0.6:
            items.append(_nested(rng, depth - 1))
        else:
            items.append(rng.randint(0, 9))
    return items


@problem(
    examples=[([1, [2, [3]], [4]],), ([],), ([5, 6],), ([[], [[7]], [8]],)],
    cases=lambda rng: (_nested(rng, 3),),
)
def nesting_depth(items: list) -> int:
    """How deep lists are nested in items; a list without lists counts 1."""
    deepest = 0
    for item in items:
        if isinstance(item, list):
            depth = nesting_depth(item)
            deepest = max(deepest, depth)
    return deepest + 1


def _tree(rng: Random, depth: int) -> tuple | None:
    if depth == 0 or rng.random() < 0.25:
        return None
    return _tree(rng, depth - 1), rng.randint(1, 9), _tree(rng, depth - 1)


@problem(
    examples=[
        (((None, 2, None), 1, (None, 3, None)),),
        ((None, 5, (None, 4, None)),),
        (((None, 6, None), 7, None),),
        (None,),
    ],
    cases=lambda rng: (_tree(rng, 3),),
)
def leaf_sum(tree: tuple | None) -> int:
    """Sum of the leaf values of a tree of (left, value, right) or None."""
    total = 0
    stack = [tree]
    while stack:
        node = stack.pop()
        if node is not None:
            left, value, right = node
            if left is None and right is None:
                total += value
            stack.append(left)
            stack.append(right)
    return total


@problem(
    examples=[("abac", 2), ("abcab", 2), ("abaca", 2), ("aab", 1), ("abbca", 3)],
    cases=lambda rng: ("".join(rng.choice("abcd") for _ in range(rng.randint(0, 9))), rng.randint(1, 3)),
)
def cache_misses(keys: str, capacity: int) -> int:
    """Misses of a cache that drops the least recently used when full."""
    recent = []
    misses = 0
    for key in keys:
        if key in recent:
            recent.remove(key)
        else:
            misses += 1
        recent.append(key)
        if len(recent) > capacity:
            recent.pop(0)
    return misses


def _ranges(rng: Random) -> tuple:
    ranges = []
    for _ in range(rng.randint(0, 4)):
        start = rng.randint(0, 9)
        ranges.append((start, start + rng.randint(0, 4)))
    return (ranges,)


@problem(
    examples=[([(5, 7), (6, 8), (1, 3)],), ([(1, 3), (3, 4)],), ([(1, 9), (2, 5), (6, 8)],), ([],)],
    cases=_ranges,
)
def join_ranges(ranges: list) -> list:
    """Sorted [start, end] lists, ranges that meet or overlap are joined."""
    joined = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return joined


def _links(rng: Random) -> tuple:
    size = rng.randint(1, 6)
    links = [(rng.randrange(size), rng.randrange(size)) for _ in range(rng.randint(0, 5))]
    return size, links


@problem(
    examples=[
        (4, [(0, 1), (1, 2), (0, 2)]),
        (5, [(0, 1), (2, 3), (0, 3), (1, 2)]),
        (3, [(2, 1), (1, 0), (0, 2)]),
        (2, []),
    ],
    cases=_links,
)
def count_groups(size: int, links: list) -> int:
    """Number of connected groups of the nodes 0 to size - 1."""
    parent = list(range(size))
    groups = size
    for link in links:
        left, right = link
        while parent[left] != left:
            left = parent[left]
        while parent[right] != right:
            right = parent[right]
        if left != right:
            parent[left] = right
            groups -= 1
    return groups


def _heap(rng: Random) -> tuple:
    return sorted(rng.randint(0, 9) for _ in range(rng.randint(0, 7))), rng.randint(0, 9)


@problem(
    examples=[([1, 3, 2, 7], 0), ([2, 5, 4, 9], 5), ([1, 6, 3], 4), ([1, 4, 8, 6, 5], 2), ([], 8)],
    cases=_heap,
)
def heap_insert(heap: list, value: int) -> int:
    """Add value to the min-heap in place, rise while smaller; its index."""
    heap.append(value)
    index = len(heap) - 1
    while index > 0:
        parent = (index - 1) // 2
        if heap[parent] <= value:
            break
        heap[index] = heap[parent]
        heap[parent] = value
        index = parent
    return index


def _jobs(rng: Random) -> tuple:
    return [(name, rng.randint(1, 6)) for name in "abcd"[: rng.randint(0, 4)]], rng.randint(1, 3)


@problem(
    examples=[([("a", 3), ("b", 1)], 2), ([("a", 5), ("b", 4), ("c", 2)], 2), ([("a", 2), ("b", 1)], 1), ([], 1)],
    cases=_jobs,
)
def round_robin(jobs: list, turn: int) -> list:
    """Finish times of (name, work) jobs in turns of at most `turn`."""
    queue = list(jobs)
    clock = 0
    done = []
    while queue:
        name, work = queue.pop(0)
        clock += min(turn, work)
        if work > turn:
            queue.append((name, work - turn))
        else:
            done.append((name, clock))
    return done


def _nested_put(rng: Random) -> tuple:
    data: dict = {}
    if rng.random() < 0.7:
        data["a"] = {"b": {"c": 1}} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        data["b"] = {"b": 2}
    path = rng.choice(["a", "a.b", "b", "a.c", "a.b.c", "b.a", "c.a.b", "ab", "b.ca"])
    return data, path, rng.randint(3, 9)


@problem(
    examples=[({}, "ab.c", 1), ({"a": {"c": 2}}, "a.b", 3), ({"x": 1}, "xy", 5), ({"b": {"d": 1}}, "b.a.c", 4)],
    cases=_nested_put,
)
def put_at_path(data: dict, path: str, value: int) -> dict:
    """Store value under dotted keys, adding dicts; return data."""
    keys = path.split(".")
    node = data
    for key in keys[:-1]:
        if key not in node:
            node[key] = {}
        node = node[key]
    node[keys[-1]] = value
    return data


def _needs(rng: Random) -> tuple:
    names = ["a", "b", "c", "d"][: rng.randint(0, 4)]
    order = rng.sample(names, len(names))
    needs = {name: [need for need in order[: order.index(name)] if rng.random() < 0.5] for name in names}
    if names and rng.random() < 0.15:
        needs[order[0]] = [order[-1]]
        needs[order[-1]] = [order[0]]
    return (needs,)


@problem(
    examples=[
        ({"a": ["c"], "b": [], "c": []},),
        ({"a": ["b"], "b": ["a"]},),
        ({"a": ["b", "c"], "b": ["c"], "c": []},),
        ({},),
    ],
    cases=_needs,
)
def task_order(needs: dict) -> list:
    """Tasks after all they need, by name if free; ValueError on a cycle."""
    order = []
    waiting = sorted(needs)
    while waiting:
        for task in waiting:
            if all(need in order for need in needs[task]):
                break
        else:
            raise ValueError("cycle")
        waiting.remove(task)
        order.append(task)
    return order
