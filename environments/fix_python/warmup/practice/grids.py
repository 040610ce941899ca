"""Small functions on grids, geometry, games, time and intervals."""


def row_sums(grid: list) -> list:
    """Sum of each row of the grid."""
    result = []
    for row in grid:
        result.append(sum(row))
    return result


def column_sums(grid: list) -> list:
    """Sum of each column; an empty grid gives an empty list."""
    if not grid:
        return []
    totals = [0] * len(grid[0])
    for row in grid:
        for column, value in enumerate(row):
            totals[column] += value
    return totals


def transpose(grid: list) -> list:
    """The grid with rows and columns exchanged."""
    if not grid:
        return []
    result = []
    for column in range(len(grid[0])):
        result.append([row[column] for row in grid])
    return result


def rotate_right(grid: list) -> list:
    """The grid turned a quarter clockwise."""
    result = []
    for column in zip(*grid[::-1]):
        result.append(list(column))
    return result


def anti_diagonal_sum(grid: list) -> int:
    """Sum from the top right to the bottom left of a square."""
    size = len(grid)
    total = 0
    for row in range(size):
        total += grid[row][size - 1 - row]
    return total


def identity_matrix(size: int) -> list:
    """A square with ones on the diagonal and zeros elsewhere."""
    if size < 0:
        raise ValueError("size must not be negative")
    result = []
    for index in range(size):
        row = [0] * size
        row[index] = 1
        result.append(row)
    return result


def multiply_matrices(left: list, right: list) -> list:
    """The matrix product of `left` and `right`."""
    if left and len(left[0]) != len(right):
        raise ValueError("shapes do not match")
    columns = list(zip(*right))
    result = []
    for row in left:
        line = []
        for column in columns:
            line.append(sum(a * b for a, b in zip(row, column)))
        result.append(line)
    return result


def is_symmetric(grid: list) -> bool:
    """Whether a square equals its own transpose."""
    for row in range(len(grid)):
        for column in range(row):
            if grid[row][column] != grid[column][row]:
                return False
    return True


def side_neighbours(row: int, column: int, size: int) -> list:
    """Cells that share a side with a cell of a square board."""
    result = []
    for down, across in [(-1, 0), (0, 1), (1, 0), (0, -1)]:
        new_row = row + down
        new_column = column + across
        if 0 <= new_row < size and 0 <= new_column < size:
            result.append((new_row, new_column))
    return result


def count_around(grid: list, row: int, column: int) -> int:
    """Number of truthy cells among the eight around a cell."""
    count = 0
    for near in range(max(0, row - 1), min(len(grid), row + 2)):
        for other in range(column - 1, column + 2):
            if (near, other) == (row, column):
                continue
            if 0 <= other < len(grid[near]) and grid[near][other]:
                count += 1
    return count


def next_life_state(alive: bool, neighbours: int) -> bool:
    """Whether a cell lives in the next round of the life game."""
    if alive:
        return neighbours in (2, 3)
    return neighbours == 3


def spiral_order(grid: list) -> list:
    """Values read around the border and then inwards."""
    rows = [list(row) for row in grid]
    result = []
    while rows:
        result.extend(rows.pop(0))
        rows = [list(column) for column in zip(*rows)]
        rows.reverse()
    return result


def zigzag_rows(grid: list) -> list:
    """Values row by row, every second row read backwards."""
    result = []
    for index, row in enumerate(grid):
        if index % 2 == 1:
            result.extend(reversed(row))
        else:
            result.extend(row)
    return result


def find_cell(grid: list, target: int) -> tuple:
    """Row and column of the first match, or None."""
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            if value == target:
                return (row, column)
    return None


def search_sorted_grid(grid: list, target: int) -> bool:
    """Look for `target` where rows and columns both increase."""
    row, column = 0, len(grid[0]) - 1
    while row < len(grid) and column >= 0:
        value = grid[row][column]
        if value > target:
            column -= 1
        elif value < target:
            row += 1
        else:
            return True
    return False


def flip_rows(grid: list) -> None:
    """Mirror every row from left to right, in place."""
    for row in grid:
        row.reverse()


def fill_border(grid: list, value: int) -> None:
    """Set all the cells of the outer edge, in place."""
    last = len(grid) - 1
    for index, row in enumerate(grid):
        if index == 0 or index == last:
            row[:] = [value] * len(row)
        elif row:
            row[0] = value
            row[-1] = value


def grid_from_text(text: str) -> list:
    """Read lines of numbers parted by spaces."""
    grid = []
    for line in text.splitlines():
        line = line.strip()
        if line:
            grid.append([int(word) for word in line.split()])
    return grid


def grid_to_text(grid: list, gap: str = " ") -> str:
    """Write the grid with one line for each row."""
    lines = []
    for row in grid:
        lines.append(gap.join(str(value) for value in row))
    return "\n".join(lines)


def split_into_rows(values: list, width: int) -> list:
    """Cut a flat list into rows of `width` values."""
    if width < 1:
        raise ValueError("width must be positive")
    rows = []
    for start in range(0, len(values), width):
        rows.append(values[start:start + width])
    return rows


def pad_rows(rows: list, filler: int = 0) -> list:
    """Lengthen short rows so that all have equal length."""
    width = max((len(row) for row in rows), default=0)
    result = []
    for row in rows:
        missing = width - len(row)
        result.append(row + [filler] * missing)
    return result


def largest_cell(grid: list) -> tuple:
    """Position of the greatest value, the first one on ties."""
    best = None
    place = None
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            if best is None or value > best:
                best = value
                place = (row, column)
    return place


def checkerboard(rows: int, columns: int) -> list:
    """Lines of a board with `#` and `.` taking turns."""
    lines = []
    for row in range(rows):
        line = ""
        for column in range(columns):
            line += "#" if (row + column) % 2 == 0 else "."
        lines.append(line)
    return lines


def flood_size(grid: list, row: int, column: int) -> int:
    """Number of joined cells with the same value as the start."""
    seen = set()
    stack = [(row, column)]
    while stack:
        r, c = stack.pop()
        if (r, c) in seen or not 0 <= r < len(grid):
            continue
        if 0 <= c < len(grid[r]) and grid[r][c] == grid[row][column]:
            seen.add((r, c))
            stack += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
    return len(seen)


def count_grid_paths(rows: int, columns: int) -> int:
    """Ways from corner to corner with moves right and down."""
    ways = [1] * columns
    for _ in range(1, rows):
        for column in range(1, columns):
            ways[column] += ways[column - 1]
    return ways[-1]


def cheapest_descent(grid: list) -> int:
    """Least total down the rows, at most one column aside a step."""
    costs = list(grid[0])
    for row in grid[1:]:
        previous = costs
        costs = []
        for column, value in enumerate(row):
            low = max(0, column - 1)
            costs.append(value + min(previous[low:column + 2]))
    return min(costs)


def saddle_points(grid: list) -> list:
    """Cells that are highest in their row, lowest in the column."""
    lows = [min(column) for column in zip(*grid)]
    result = []
    for row, values in enumerate(grid):
        high = max(values)
        for column, value in enumerate(values):
            if value == high and value == lows[column]:
                result.append((row, column))
    return result


def mine_hints(line: str) -> list:
    """Mines beside each cell of one line; -1 stands for a mine."""
    hints = []
    for index, mark in enumerate(line):
        if mark == "*":
            hints.append(-1)
            continue
        start = max(index - 1, 0)
        hints.append(line[start:index + 2].count("*"))
    return hints


def tic_tac_toe_winner(board: list) -> str:
    """The mark that fills a line of three, or an empty text."""
    lines = [list(row) for row in board]
    lines += [list(column) for column in zip(*board)]
    lines.append([board[index][index] for index in range(3)])
    lines.append([board[index][2 - index] for index in range(3)])
    for line in lines:
        if line[0] != " " and line.count(line[0]) == 3:
            return line[0]
    return ""


def is_latin_square(grid: list) -> bool:
    """Whether each row and column holds 1 to n exactly once."""
    expected = list(range(1, len(grid) + 1))
    for row in grid:
        if sorted(row) != expected:
            return False
    return all(sorted(column) == expected for column in zip(*grid))


def sudoku_box(row: int, column: int) -> int:
    """Number of the box, 0 to 8, that holds a sudoku cell."""
    if row not in range(9) or column not in range(9):
        raise ValueError("cell outside the board")
    return row // 3 * 3 + column // 3


def sudoku_choices(grid: list, row: int, column: int) -> list:
    """Digits still free for a cell; zeros are empty cells."""
    used = set(grid[row])
    for line in grid:
        used.add(line[column])
    top = row - row % 3
    left = column - column % 3
    for line in grid[top:top + 3]:
        used.update(line[left:left + 3])
    return [digit for digit in range(1, 10) if digit not in used]


def queens_clash(first: tuple, second: tuple) -> bool:
    """Whether two queens stand on one line or diagonal."""
    rows = abs(first[0] - second[0])
    columns = abs(first[1] - second[1])
    return rows == 0 or columns == 0 or rows == columns


def knight_moves(square: str) -> list:
    """Squares a knight reaches from a square such as `b1`."""
    column = "abcdefgh".index(square[0])
    row = int(square[1])
    result = []
    for across in (-2, -1, 1, 2):
        for down in (abs(across) - 3, 3 - abs(across)):
            if 0 <= column + across < 8 and 1 <= row + down <= 8:
                name = "abcdefgh"[column + across]
                result.append(name + str(row + down))
    return result


def square_colour(square: str) -> str:
    """Colour of a chess square given as a letter and a digit."""
    column = ord(square[0].lower()) - ord("a") + 1
    if (column + int(square[1])) % 2 == 0:
        return "dark"
    return "light"


def material_score(pieces: str) -> int:
    """White's points less black's; capitals are white pieces."""
    points = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9}
    score = 0
    for piece in pieces:
        value = points.get(piece.lower(), 0)
        if piece.isupper():
            score += value
        else:
            score -= value
    return score


def walk(moves: str) -> tuple:
    """End position after moves up, down, left and right."""
    steps = {"U": (0, 1), "D": (0, -1), "L": (-1, 0), "R": (1, 0)}
    x = 0
    y = 0
    for move in moves:
        across, up = steps[move]
        x += across
        y += up
    return (x, y)


def turn_heading(heading: str, turns: str) -> str:
    """Compass letter after turning left `L` or right `R`."""
    points = "NESW"
    index = points.index(heading)
    for turn in turns:
        if turn == "R":
            index += 1
        elif turn == "L":
            index -= 1
    return points[index % 4]


def slide_left(row: list) -> list:
    """Push numbers left and join equal pairs; zeros are gaps."""
    values = [value for value in row if value != 0]
    result = []
    while values:
        value = values.pop(0)
        if values and values[0] == value:
            value += values.pop(0)
        result.append(value)
    return result + [0] * (len(row) - len(result))


def clear_full_lines(board: list) -> int:
    """Remove full rows, add empty ones on top; count them."""
    kept = [row for row in board if not all(row)]
    count = len(board) - len(kept)
    width = len(board[0]) if board else 0
    empty = [[0] * width for _ in range(count)]
    board[:] = empty + kept
    return count


def visited_cells(path: list) -> int:
    """Number of different cells on a path of (down, across) steps."""
    row, column = 0, 0
    seen = {(row, column)}
    for down, across in path:
        row += down
        column += across
        seen.add((row, column))
    return len(seen)


def rock_paper_scissors(left: str, right: str) -> int:
    """1 when left wins, -1 when right wins, 0 for a draw."""
    beats = {"rock": "scissors", "paper": "rock", "scissors": "paper"}
    if left not in beats or right not in beats:
        raise ValueError("unknown choice")
    if left == right:
        return 0
    return 1 if beats[left] == right else -1


def bowling_score(rolls: list) -> int:
    """Total of a complete game of ten frames."""
    total = 0
    index = 0
    for _ in range(10):
        bonus = rolls[index] == 10
        pins = rolls[index] + rolls[index + 1]
        if bonus or pins == 10:
            pins += rolls[index + 2]
        total += pins
        index += 1 if bonus else 2
    return total


def league_table(games: list) -> dict:
    """Points by team from (home, away, goals, against) games."""
    table = {}
    for home, away, goals, against in games:
        table.setdefault(home, 0)
        table.setdefault(away, 0)
        if goals == against:
            table[home] += 1
            table[away] += 1
        else:
            table[home if goals > against else away] += 3
    return table


def shared_ranks(scores: list) -> list:
    """Rank of each score, highest first; equal scores share it."""
    ordered = sorted(scores, reverse=True)
    ranks = []
    for score in scores:
        ranks.append(ordered.index(score) + 1)
    return ranks


def top_players(scores: dict, limit: int = 3) -> list:
    """Names with the most points, ties in the order of names."""
    names = sorted(scores, key=lambda name: (-scores[name], name))
    return names[:limit]


def longest_win_streak(results: str) -> int:
    """Length of the longest run of `W` in a season."""
    best = 0
    current = 0
    for result in results:
        current = current + 1 if result == "W" else 0
        best = max(best, current)
    return best


def guess_marks(secret: str, guess: str) -> tuple:
    """Count of exact places and of right signs elsewhere."""
    exact = 0
    for left, right in zip(secret, guess):
        if left == right:
            exact += 1
    common = 0
    for letter in set(guess):
        common += min(secret.count(letter), guess.count(letter))
    return (exact, common - exact)


def is_full_house(dice: list) -> bool:
    """Whether five dice show a triple and a pair."""
    counts = {}
    for value in dice:
        counts[value] = counts.get(value, 0) + 1
    return sorted(counts.values()) == [2, 3]


def player_on_turn(players: list, turn: int, skipped: set = None) -> str:
    """Name of the player for a turn, leaving out skipped ones."""
    if skipped is None:
        skipped = set()
    active = [name for name in players if name not in skipped]
    if not active:
        raise ValueError("nobody left to play")
    return active[turn % len(active)]


def last_in_circle(count: int, step: int) -> int:
    """Number left when every `step`-th of the circle leaves."""
    people = list(range(1, count + 1))
    index = 0
    while len(people) > 1:
        index = (index + step - 1) % len(people)
        people.pop(index)
    return people[0]


def round_robin(names: list) -> list:
    """All the pairs of names, each once."""
    pairs = []
    for index, name in enumerate(names):
        for other in names[index + 1:]:
            pairs.append((name, other))
    return pairs


def move_on_ladder(place: int, roll: int, jumps: dict) -> int:
    """New place after a roll; rolls past 100 do not count."""
    target = place + roll
    if target > 100:
        return place
    return jumps.get(target, target)


def take_stones(piles: list, index: int, count: int) -> bool:
    """Take stones from a pile in place; True when none remain."""
    if count < 1 or count > piles[index]:
        raise ValueError("move not allowed")
    piles[index] -= count
    return not any(piles)


def nim_move(piles: list) -> tuple:
    """Pile and count of a winning move, or None."""
    total = 0
    for pile in piles:
        total ^= pile
    for index, pile in enumerate(piles):
        wanted = pile ^ total
        if wanted < pile:
            return (index, pile - wanted)
    return None


def block_distance(first: tuple, second: tuple) -> int:
    """Distance between points when walking along the axes."""
    x1, y1 = first
    x2, y2 = second
    return abs(x1 - x2) + abs(y1 - y2)


def nearest_point(points: list, target: tuple) -> tuple:
    """The point closest to the target in a straight line."""
    best = None
    limit = float("inf")
    for x, y in points:
        size = (x - target[0]) ** 2 + (y - target[1]) ** 2
        if size < limit:
            limit = size
            best = (x, y)
    return best


def path_length(points: list) -> float:
    """Length of the line through the points in their order."""
    total = 0.0
    for start, end in zip(points, points[1:]):
        across = end[0] - start[0]
        up = end[1] - start[1]
        total += (across * across + up * up) ** 0.5
    return total


def polygon_area(points: list) -> float:
    """Area of a simple polygon from its corners."""
    total = 0
    x1, y1 = points[-1]
    for x2, y2 in points:
        total += x1 * y2 - x2 * y1
        x1, y1 = x2, y2
    return abs(total) / 2


def bounding_box(points: list) -> tuple:
    """Least and greatest x and y: (left, bottom, right, top)."""
    if not points:
        raise ValueError("no points given")
    xs = [x for x, _ in points]
    ys = [y for _, y in points]
    return (min(xs), min(ys), max(xs), max(ys))


def rectangle_overlap(first: tuple, second: tuple) -> int:
    """Common area of two (left, bottom, right, top) boxes."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0
    return width * height


def triangle_kind(a: int, b: int, c: int) -> str:
    """Name of a triangle's kind by its sides."""
    low, middle, high = sorted([a, b, c])
    if low <= 0 or low + middle <= high:
        return "none"
    if low == high:
        return "equilateral"
    if low == middle or middle == high:
        return "isosceles"
    return "scalene"


def points_in_circle(points: list, centre: tuple, radius: int) -> int:
    """Number of points inside the circle or on its edge."""
    count = 0
    for x, y in points:
        across = x - centre[0]
        up = y - centre[1]
        if across ** 2 + up ** 2 <= radius ** 2:
            count += 1
    return count


def angle_between(first: int, second: int) -> int:
    """Smaller angle in degrees between two directions."""
    turn = abs(first - second) % 360
    if turn > 180:
        turn = 360 - turn
    return turn


def rotate_point(point: tuple, turns: int) -> tuple:
    """The point after quarter turns to the left about zero."""
    x, y = point
    for _ in range(turns % 4):
        x, y = -y, x
    return (x, y)


def clock_angle(hours: int, minutes: int) -> float:
    """Angle between the two hands of a clock in degrees."""
    short = (hours % 12) * 30 + minutes * 0.5
    long = minutes * 6
    size = abs(short - long)
    return min(size, 360 - size)


def minutes_of_day(text: str) -> int:
    """Minutes since midnight for a time such as `07:45`."""
    hours, minutes = text.split(":")
    total = int(hours) * 60 + int(minutes)
    if not 0 <= total < 24 * 60:
        raise ValueError("time out of range")
    return total


def clock_text(minutes: int) -> str:
    """Time of day for minutes since midnight, past days dropped."""
    minutes %= 1440
    hours = minutes // 60
    return f"{hours:02d}:{minutes % 60:02d}"


def twelve_hour(hour: int) -> str:
    """Hour of the day, 0 to 23, with am or pm."""
    suffix = "am" if hour < 12 else "pm"
    hour = hour % 12
    if hour == 0:
        hour = 12
    return str(hour) + " " + suffix


def spell_duration(seconds: int) -> str:
    """Seconds as hours, minutes and seconds, zeros left out."""
    parts = []
    for size, unit in [(3600, "h"), (60, "m"), (1, "s")]:
        count, seconds = divmod(seconds, size)
        if count > 0:
            parts.append(str(count) + unit)
    if not parts:
        return "0s"
    return " ".join(parts)


def parse_duration(text: str) -> int:
    """Seconds in a text such as `1h30m5s`."""
    units = {"h": 3600, "m": 60, "s": 1}
    total = 0
    number = ""
    for letter in text:
        if letter.isdigit():
            number += letter
        elif letter in units:
            total += int(number) * units[letter]
            number = ""
    return total


def minutes_until(now: int, then: int) -> int:
    """Minutes from now to the next time of day `then`."""
    if then >= now:
        return then - now
    return then + 1440 - now


def is_leap_year(year: int) -> bool:
    """Whether the year has a 29th of February."""
    if year % 400 == 0:
        return True
    return year % 4 == 0 and year % 100 != 0


def days_in_month(year: int, month: int) -> int:
    """Number of days in a month from 1 to 12."""
    if month < 1 or month > 12:
        raise ValueError("month must be 1 to 12")
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    if month in (4, 6, 9, 11):
        return 30
    return 31


def day_of_common_year(month: int, day: int) -> int:
    """Place of a date in a year without a leap day."""
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return sum(lengths[:month - 1]) + day


def add_months(year: int, month: int, count: int) -> tuple:
    """Year and month after moving `count` months ahead or back."""
    index = year * 12 + (month - 1) + count
    return (index // 12, index % 12 + 1)


def weekday_after(day: str, count: int) -> str:
    """Name of the weekday `count` days after another."""
    names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    if day not in names:
        raise ValueError("unknown day: " + day)
    return names[(names.index(day) + count) % 7]


def month_weeks(first: int, days: int) -> list:
    """Weeks of a month that begins on weekday `first`, 0 to 6."""
    week = [0] * first
    weeks = []
    for day in range(1, days + 1):
        week.append(day)
        if len(week) == 7:
            weeks.append(week)
            week = []
    if week:
        weeks.append(week + [0] * (7 - len(week)))
    return weeks


def overlap_length(first: tuple, second: tuple) -> int:
    """Length of the part that two intervals share."""
    start = max(first[0], second[0])
    end = min(first[1], second[1])
    return max(0, end - start)


def merge_intervals(pairs: list) -> list:
    """Join intervals that touch or overlap."""
    result = []
    for start, end in sorted(pairs):
        if result and start <= result[-1][1]:
            last = result.pop()
            result.append((last[0], max(last[1], end)))
        else:
            result.append((start, end))
    return result


def free_gaps(busy: list, start: int, end: int) -> list:
    """Free intervals between busy ones within a working day."""
    gaps = []
    current = start
    for left, right in sorted(busy):
        if left > current:
            gaps.append((current, min(left, end)))
        current = max(current, right)
        if current >= end:
            return gaps
    gaps.append((current, end))
    return gaps


def most_at_once(visits: list) -> int:
    """Greatest number of visits going on at the same time."""
    events = []
    for start, end in visits:
        events.append((start, 1))
        events.append((end, -1))
    best = current = 0
    for _, change in sorted(events):
        current += change
        best = max(best, current)
    return best


def pick_meetings(meetings: list) -> list:
    """As many meetings as fit without an overlap."""
    chosen = []
    free = None
    for start, end in sorted(meetings, key=lambda pair: pair[1]):
        if free is None or start >= free:
            chosen.append((start, end))
            free = end
    return chosen


def common_intervals(left: list, right: list) -> list:
    """Shared parts of two lists of intervals."""
    result = []
    for first, last in left:
        for other, close in right:
            start = max(first, other)
            end = min(last, close)
            if start < end:
                result.append((start, end))
    return result


def number_ranges(values: list) -> list:
    """Runs of whole numbers in a row as (first, last) pairs."""
    ranges = []
    for value in sorted(set(values)):
        if ranges and ranges[-1][1] == value - 1:
            ranges[-1] = (ranges[-1][0], value)
        else:
            ranges.append((value, value))
    return ranges


def next_departure(times: list, now: int) -> int:
    """First time in a sorted list not before now, or -1."""
    low = 0
    high = len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < now:
            low = middle + 1
        else:
            high = middle
    return times[low] if low < len(times) else -1


def shift_pay(start: int, end: int, rate: int) -> int:
    """Pay for a shift in hours, double rate beyond eight."""
    hours = end - start
    if hours < 0:
        hours += 24
    extra = max(hours - 8, 0)
    return (hours + extra) * rate


def light_colour(second: int) -> str:
    """Colour of a light: 30 green, 5 yellow, 25 red, again."""
    phase = second % 60
    for colour, length in [("green", 30), ("yellow", 5), ("red", 25)]:
        if phase < length:
            return colour
        phase -= length


def lap_times(marks: list) -> list:
    """Time of each lap from the clock at every crossing."""
    laps = []
    for index in range(1, len(marks)):
        laps.append(marks[index] - marks[index - 1])
    return laps


def too_soon(times: list, gap: int) -> list:
    """Times that come less than `gap` after the last kept one."""
    rejected = []
    last = None
    for time in times:
        if last is not None and time - last < gap:
            rejected.append(time)
            continue
        last = time
    return rejected
