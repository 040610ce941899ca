"""Problems about parsing and formatting: pairs, fields, versions, numerals, times, brackets and colours."""

# ruff: noqa: T201  (a problem may print)
from __future__ import annotations

from random import Random

from fix_python.problem import problem


def _joined(rng: Random, parts: list[str], longest: int, mark: str) -> str:
    """Draw zero to `longest` of the parts, joined by `mark`."""
    return mark.join(rng.choice(parts) for _ in range(rng.randint(0, longest)))


@problem(
    examples=[("a=1; b = 22",), ("x;=3;y=",), ("k=v=w;k=z",), ("",)],
    cases=lambda rng: (_joined(rng, ["a=1", " b = 22", "a=xy ", "=3", "y=", "c", "", "k=v=w"], 5, ";"),),
)
def parse_key_values(text: str) -> dict:
    """Dict of stripped key=value parts; no = or = first means skip."""
    result = {}
    for part in text.split(";"):
        place = part.find("=")
        if place > 0:
            key = part[:place].strip()
            result[key] = part[place + 1 :].strip()
    return result


@problem(
    examples=[("a,'b,c',d",), ("",), ("x,,y",), ("'a'b,",)],
    cases=lambda rng: ("".join(rng.choice("ab,,'") for _ in range(rng.randint(0, 9))),),
)
def split_quoted_fields(line: str) -> list:
    """Split at commas outside of ' quotes; the quotes are dropped."""
    fields = [""]
    quoted = False
    for letter in line:
        if letter == "'":
            quoted = not quoted
        elif letter == "," and not quoted:
            fields.append("")
        else:
            fields[-1] += letter
    return fields


def _versions(rng: Random) -> tuple:
    first = [rng.choice([0, 1, 2, 10]) for _ in range(rng.randint(1, 2))]
    second = list(first)
    if rng.random() < 0.4:
        second[rng.randrange(len(second))] = rng.choice([0, 1, 9])
    second += [rng.choice([0, 0, 0, 1]) for _ in range(rng.randint(0, 2))]
    pair = [".".join(map(str, first)), ".".join(map(str, second))]
    rng.shuffle(pair)
    return tuple(pair)


@problem(
    examples=[("1.2", "1.10"), ("2", "2.0"), ("1.0.0", "1"), ("3.1", "3.0.5"), ("1", "1.0.1")],
    cases=_versions,
)
def compare_versions(left: str, right: str) -> int:
    """-1, 0 or 1 if left is below, same or above; 1.0 is same as 1."""
    first = [int(part) for part in left.split(".")]
    second = [int(part) for part in right.split(".")]
    size = max(len(first), len(second))
    first += [0] * (size - len(first))
    second += [0] * (size - len(second))
    if first < second:
        return -1
    if first > second:
        return 1
    return 0


def _roman(rng: Random) -> tuple:
    tens = rng.choice(["", "", "X", "XX", "XL", "L", "LX"])
    return (tens + rng.choice(["", "I", "II", "III", "IV", "V", "VI", "IX"]),)


@problem(
    examples=[("XIV",), ("VIII",), ("XL",), ("",), ("LIX",)],
    cases=_roman,
)
def roman_to_int(text: str) -> int:
    """Value of a roman numeral; less before more is taken off."""
    values = {"I": 1, "V": 5, "X": 10, "L": 50}
    total = 0
    before = 0
    for letter in reversed(text):
        value = values[letter]
        if value < before:
            total -= value
        else:
            total += value
        before = value
    return total


@problem(
    examples=[("1h2m3s",), ("12m",), ("",), ("2s1h",), ("3d",)],
    cases=lambda rng: (_joined(rng, ["1h", "2h", "3m", "15m", "4s", "30s", "0m", "20s", "7", "1d"], 3, ""),),
)
def parse_duration(text: str) -> int:
    """Seconds in text like 1h2m3s; ValueError on any other unit."""
    units = {"h": 3600, "m": 60, "s": 1}
    total = 0
    number = 0
    for letter in text:
        if letter.isdigit():
            number = number * 10 + int(letter)
        elif letter in units:
            total += number * units[letter]
            number = 0
        else:
            raise ValueError("bad unit")
    return total


@problem(
    examples=[("a(b[c])",), ("(]",), ("([",), (")",), ("[](a)]",)],
    cases=lambda rng: (_joined(rng, ["(", ")", "[", "]", "()", "[]", "([x])", "a", ""], 4, ""),),
)
def first_bad_bracket(text: str) -> int:
    """Index of the first wrong ) or ]; len if one stays open; else -1."""
    stack = []
    for index, letter in enumerate(text):
        if letter in "([":
            stack.append(letter)
        elif letter in ")]":
            before = stack.pop() if stack else ""
            if before + letter not in ["()", "[]"]:
                return index
    if stack:
        return len(text)
    return -1


def _query(rng: Random) -> tuple:
    query = _joined(rng, ["a=1", "a=x+y", "b=2", "c", "b=", "", "a=k=v"], 4, "&")
    if rng.random() < 0.6:
        return (query,)
    return (query, rng.choice([None, {}, {"a": ["0"]}, {"z": []}]))


@problem(
    examples=[("a=1&b=x+y&a=2",), ("b&&c=k=v",), ("a=3", {"a": ["0"]}), ("",)],
    cases=_query,
)
def parse_query(query: str, result: dict | None = None) -> dict:
    """Add value lists by key to result (or a new dict); + means space."""
    if result is None:
        result = {}
    for part in query.replace("+", " ").split("&"):
        if part == "":
            continue
        key, _, value = part.partition("=")
        result.setdefault(key, []).append(value)
    return result


def _colour(rng: Random) -> tuple:
    size = rng.choice([3, 3, 6, 6, 6, rng.randint(0, 8)])
    return (rng.choice(["#", "#", ""]) + "".join(rng.choice("0179afF") for _ in range(size)),)


@problem(
    examples=[("#ff8001",), ("#1af",), ("0a141e",), ("#abcde",)],
    cases=_colour,
)
def hex_to_rgb(color: str) -> tuple:
    """(red, green, blue) of 3 or 6 hex digits; ValueError otherwise."""
    digits = color.lstrip("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    if len(digits) != 6:
        raise ValueError("bad color")
    red = int(digits[:2], 16)
    green = int(digits[2:4], 16)
    blue = int(digits[4:], 16)
    return (red, green, blue)


@problem(
    examples=[(3725,), (59,), (3600,), (-1,), (0,)],
    cases=lambda rng: (
        rng.choice([0, 1, 59, 60, 61, 3599, 3600, 3661, 7322, rng.randint(0, 9999)]) * rng.choice([1, 1, -1]),
    ),
)
def format_clock(seconds: int) -> str:
    """h:mm:ss, or m:ss below one hour; - in front if negative."""
    sign = ""
    if seconds < 0:
        sign = "-"
        seconds = -seconds
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours > 0:
        return f"{sign}{hours}:{minutes:02d}:{seconds:02d}"
    return f"{sign}{minutes}:{seconds:02d}"


@problem(
    examples=[(1234567890,), (999,), (-1000,), (0,), (-1,)],
    cases=lambda rng: (
        rng.choice([0, 1, 1, 12, 999, 1000, 54321, 123456, 9876543, 1234567890]) * rng.choice([1, 1, -1])
        + rng.choice([0, 1]),
    ),
)
def format_thousands(number: int) -> str:
    """Decimal text with a comma before each three digits from the right."""
    digits = str(abs(number))
    groups = []
    while len(digits) > 3:
        groups.insert(0, digits[-3:])
        digits = digits[:-3]
    groups.insert(0, digits)
    if number < 0:
        groups[0] = "-" + groups[0]
    return ",".join(groups)


@problem(
    examples=[("1-3,5",), ("7,2-2,7",), ("",), ("4,1-2",)],
    cases=lambda rng: (_joined(rng, ["1-3", "2-2", "4-3", "5", "7", "2", "", "10", "8-11"], 4, ","),),
)
def parse_page_ranges(text: str) -> list:
    """Sorted pages of text like 1-3,5 (ends included), each page once."""
    pages = set()
    for part in text.split(","):
        if "-" in part:
            first, last = part.split("-")
            pages.update(range(int(first), int(last) + 1))
        elif part:
            pages.add(int(part))
    return sorted(pages)


@problem(
    examples=[([("a", 1), ("bcd", 20)],), ([("xy", 3), ("z", 4)],), ([],)],
    cases=lambda rng: (
        [(rng.choice(["", "a", "bc", "def", "long"]), rng.randint(0, 20)) for _ in range(rng.randint(0, 4))],
    ),
)
def print_columns(rows: list) -> int:
    """Print name and value per row, values in one column; return width."""
    width = 0
    for name, _ in rows:
        width = max(width, len(name))
    for name, value in rows:
        gap = " " * (width + 1 - len(name))
        print(name + gap + str(value))
    return width
