"""Problems about grids, geometry and games: neighbours, areas, boards, moves, dice and cards."""

# ruff: noqa: B905 - plain zip, as most people write it

from __future__ import annotations

from random import Random

from fix_python.problem import problem


def _grid(rng: Random, rows: int, cols: int, values: list) -> list[list]:
    return [[rng.choice(values) for _ in range(cols)] for _ in range(rows)]


def _points(rng: Random, fewest: int, most: int, low: int = -2, high: int = 3) -> list[tuple[int, int]]:
    return [(rng.randint(low, high), rng.randint(low, high)) for _ in range(rng.randint(fewest, most))]


def _life(rng: Random) -> tuple[list[list[int]], int, int]:
    rows, cols = rng.randint(1, 4), rng.randint(1, 4)
    return _grid(rng, rows, cols, [0, 1]), rng.randrange(rows), rng.randrange(cols)


def _columns(rng: Random) -> tuple[list[list[str]], int, str]:
    rows, cols = rng.randint(1, 3), rng.randint(1, 3)
    grid = [["."] * cols for _ in range(rows)]
    for col in range(cols):
        for row in range(rng.randint(0, rows)):
            grid[rows - 1 - row][col] = rng.choice("xo")
    return grid, rng.randrange(cols), rng.choice("xo")


@problem(
    examples=[
        ([[1, 0], [1, 0], [0, 0], [1, 1], [0, 1]], 2, 0),
        ([[1, 1, 0, 1, 0], [0, 0, 0, 1, 1]], 0, 2),
        ([[1, 0, 1], [0, 1, 1]], 0, 1),
        ([[1, 1], [1, 1]], 0, 1),
        ([[1, 1, 1], [0, 1, 1]], 1, 1),
    ],
    cases=_life,
)
def life_next(grid: list, row: int, col: int) -> int:
    """Next life state: 1 if the 3x3 block sums to 3, same if 4, else 0."""
    total = 0
    for line in grid[max(0, row - 1) : row + 2]:
        total += sum(line[max(0, col - 1) : col + 2])
    if total == 4:
        return grid[row][col]
    return 1 if total == 3 else 0


@problem(
    examples=[([(0, 0), (2, 1), (2, 5)],), ([(1, 4), (3, 2)],), ([(5, 5)],), ([],)],
    cases=lambda rng: (_points(rng, 0, 5),),
)
def walk_length(points: list) -> int:
    """Manhattan length of the walk from point to point, not back again."""
    total = 0
    for index in range(1, len(points)):
        x, y = points[index]
        last_x, last_y = points[index - 1]
        total += abs(x - last_x) + abs(y - last_y)
    return total


@problem(
    examples=[([[1, 2], [3, 4]],), ([[1, 2, 3]],), ([[1], [2]],)],
    cases=lambda rng: (_grid(rng, rng.randint(1, 3), rng.randint(1, 3), list(range(10))),),
)
def rotate_clockwise(grid: list) -> list:
    """The grid (at least one row) turned by 90 degrees to the right."""
    result = []
    for col in range(len(grid[0])):
        line = []
        for row in range(len(grid) - 1, -1, -1):
            line.append(grid[row][col])
        result.append(line)
    return result


@problem(
    examples=[([[1, 2], [4, 3]],), ([[1, 2, 3], [8, 9, 4], [7, 6, 5]],), ([[1], [2]],), ([],)],
    cases=lambda rng: (_grid(rng, rng.randint(0, 4), rng.randint(1, 4), list(range(10))),),
)
def spiral_order(grid: list) -> list:
    """Cells read clockwise from the top left corner, spiralling inwards."""
    result = []
    rest = list(grid)
    while rest:
        result += rest[0]
        columns = zip(*rest[1:])
        rest = list(columns)[::-1]
    return result


@problem(
    examples=[([(1, 2), (4, 0)],), ([(3, 3)],), ([(0, 5), (2, 7), (1, 1)],), ([],)],
    cases=lambda rng: (_points(rng, 0, 4),),
)
def bounding_box(cells: list) -> tuple | None:
    """Box (top, left, height, width) of (row, col) cells; None if none."""
    if not cells:
        return None
    rows = [row for row, col in cells]
    cols = [col for row, col in cells]
    top = min(rows)
    left = min(cols)
    return top, left, max(rows) - top + 1, max(cols) - left + 1


@problem(
    examples=[
        ([(1, 2), (3, 2), (2, 5)], (1, 2), (2, 3)),
        ([(2, 0), (2, 3), (4, 2)], (2, 0), (3, 3)),
        ([(1, 1), (1, 4), (0, 2)], (1, 2), (1, 3)),
    ],
    cases=lambda rng: (
        _points(rng, 0, 6, 0, 5),
        (rng.randint(0, 2), rng.randint(0, 2)),
        (rng.randint(0, 4), rng.randint(1, 4)),
    ),
)
def points_inside(points: list, corner: tuple, size: tuple) -> list:
    """Points (x, y) in the box; only left and top edges belong to it."""
    left, top = corner
    right = left + size[0]
    bottom = top + size[1]
    inside = []
    for x, y in points:
        if left <= x < right and top <= y < bottom:
            inside.append((x, y))
    return inside


@problem(
    examples=[("XXXXXXXXX", "X"), ("XXXOXOXXX", "X"), ("OX.OXXOX.", "O"), ("X.OXO.O.X", "O"), ("OXXXOXXXO", "O")],
    cases=lambda rng: ("".join(rng.choice(rng.choice(["X", "XXXO", "XO."])) for _ in range(9)), rng.choice("XXO")),
)
def count_lines(board: str, mark: str) -> int:
    """Number of rows, columns, diagonals of the 9 cells filled by mark."""
    lines = [board[:3], board[3:6], board[6:]]
    for col in range(3):
        lines.append(board[col::3])
    lines.append(board[::4])
    lines.append(board[2:7:2])
    return lines.count(mark * 3)


@problem(
    examples=[
        ([(1, 5), (0, 5), (0, 6), (3, 5)], (1, 5)),
        ([(4, 1), (5, 1), (5, 0), (3, 0)], (4, 1)),
        ([(1, 1), (2, 0)], (1, 1)),
        ([(0, 0)], (1, 0)),
    ],
    cases=lambda rng: (sorted(set(_points(rng, 0, 9, 0, 2))), (rng.randint(0, 2), rng.randint(0, 2))),
)
def area_size(cells: list, start: tuple) -> int:
    """Number of cells joined to start by sides; 0 if start is no cell."""
    seen = set()
    queue = [start]
    while queue:
        x, y = queue.pop()
        if (x, y) in cells and (x, y) not in seen:
            seen.add((x, y))
            queue += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
    return len(seen)


@problem(
    examples=[([1, 13],), ([1, 5, 6],), ([10, 11, 2],), ([12, 4, 7],), ([1, 1, 10],)],
    cases=lambda rng: ([rng.choice([1, 1, 2, 5, 9, 10, 11, 13]) for _ in range(rng.randint(0, 4))],),
)
def blackjack_score(cards: list) -> int:
    """Sum with 11 to 13 as 10, one 1 as 11 if it fits; 0 if above 21."""
    total = 0
    for card in cards:
        total += min(card, 10)
    if 1 in cards and total <= 11:
        total += 10
    if total > 21:
        return 0
    return total


@problem(
    examples=[([1, 1, 5, 2],), ([6, 6, 6, 1],), ([1, 1, 1, 5, 5],), ([2, 2, 4, 3, 3],), ([5, 5, 5, 5],)],
    cases=lambda rng: (rng.choices([1, 5, 6, 2, rng.randint(1, 6)], [3, 3, 2, 1, 3], k=rng.randint(0, 5)),),
)
def dice_points(dice: list) -> int:
    """100 times a face seen 3 or more times, else 20 per 1 and 5 per 5."""
    points = 0
    for face in range(1, 7):
        count = dice.count(face)
        if count >= 3:
            points += 100 * face
        elif face == 1:
            points += 20 * count
        elif face == 5:
            points += 5 * count
    return points


@problem(
    examples=[([(0, 0), (4, 0), (0, 3)],), ([(1, 1), (1, 3), (4, 3), (4, 1)],), ([(2, 2), (5, 1)],)],
    cases=lambda rng: (_points(rng, 0, 4),),
)
def polygon_area(points: list) -> float:
    """Area of the polygon with these corners in order (shoelace rule)."""
    doubled = 0
    for index in range(len(points)):
        x, y = points[index - 1]
        next_x, next_y = points[index]
        doubled += x * next_y - next_x * y
    return abs(doubled) / 2


@problem(
    examples=[
        ([[".", "."], [".", "x"]], 1, "o"),
        ([["."], ["."], ["."]], 0, "x"),
        ([[".", "o"], [".", "x"]], 1, "x"),
        ([[".", "o"], [".", "x"]], 0, "x"),
    ],
    cases=_columns,
)
def drop_disc(grid: list, col: int, mark: str) -> int:
    """Put mark on the lowest '.' of col in place; its row or ValueError."""
    row = len(grid) - 1
    while row >= 0:
        if grid[row][col] == ".":
            grid[row][col] = mark
            return row
        row -= 1
    raise ValueError("column is full")


@problem(
    examples=[("FFRF",), ("LFFLF",), ("RFRFF",), ("RLF",), ("",)],
    cases=lambda rng: ("".join(rng.choice("FFLR") for _ in range(rng.randint(0, 8))),),
)
def robot_position(moves: str) -> tuple:
    """Where F steps and L, R turns lead from (0, 0) facing (0, 1)."""
    x, y = 0, 0
    dx, dy = 0, 1
    for move in moves:
        if move == "L":
            dx, dy = -dy, dx
        elif move == "R":
            dx, dy = dy, -dx
        else:
            x += dx
            y += dy
    return x, y


@problem(
    examples=[(0, 0, 3), (1, 2, 4), (2, 2, 3), (0, 1, 2)],
    cases=lambda rng: ((size := rng.randint(1, 5)) and rng.randrange(size), rng.randrange(size), size),
)
def knight_targets(row: int, col: int, size: int) -> list:
    """Cells of the size x size board that a knight reaches in one move."""
    targets = []
    for to_row in range(size):
        for to_col in range(size):
            down = abs(to_row - row)
            across = abs(to_col - col)
            if down * across == 2:
                targets.append((to_row, to_col))
    return targets


@problem(
    examples=[([1, 3, 0, 2],), ([0, 2, 1],), ([3, 1, 3],), ([2, 0, 3, 4],), ([],)],
    cases=lambda rng: (
        rng.choice([[rng.randint(0, 4) for _ in range(rng.randint(0, 4))], rng.sample(range(5), rng.randint(2, 5))]),
    ),
)
def queens_clash(columns: list) -> bool:
    """True if two queens, one per row, share a column or a diagonal."""
    for row in range(len(columns)):
        for above in range(row):
            gap = abs(columns[row] - columns[above])
            if gap == 0 or gap == row - above:
                return True
    return False
