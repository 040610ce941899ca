"""Problems about dates and times kept as integers, tuples and text."""

from __future__ import annotations

from random import Random

from fix_python.problem import problem


@problem(
    examples=[(2000,), (1900,), (2024,), (2023,), (2022,)],
    cases=lambda rng: (rng.choice([rng.randint(15, 22) * 100, rng.randint(1990, 2030), rng.randint(490, 510) * 4]),),
)
def is_leap_year(year: int) -> bool:
    """True if year divides by 4, centuries only if they do by 400."""
    if year % 400 == 0:
        return True
    if year % 100 == 0:
        return False
    return year % 4 == 0


@problem(
    examples=[(2, True), (7, False), (12, False), (13, True), (0, True)],
    cases=lambda rng: (rng.choice([0, 1, 2, 2, 2, 7, 8, 12, 13, rng.randint(3, 11)]), rng.random() < 0.5),
)
def month_length(month: int, leap: bool) -> int:
    """Days in the month of a (leap) year; ValueError unless 1 to 12."""
    if month < 1 or month > 12:
        raise ValueError("no such month")
    if month == 2:
        return 29 if leap else 28
    if month > 7:
        month -= 7
    return 30 + month % 2


def _clock(rng: Random) -> tuple:
    hour = rng.choice([0, 9, 23, 24, rng.randint(0, 25)])
    minute = rng.choice([0, 59, 60, 5, rng.randint(0, 62)])
    return (f"{hour:02d}:{minute:02d}",)


@problem(
    examples=[("01:05",), ("23:59",), ("00:00",), ("24:00",), ("12:60",)],
    cases=_clock,
)
def minutes_since_midnight(text: str) -> int:
    """Minutes from 00:00 to "HH:MM"; ValueError if after 23 or after 59."""
    hour, minute = text.split(":")
    hour = int(hour)
    minute = int(minute)
    if hour > 23 or minute > 59:
        raise ValueError("no such time")
    return hour * 60 + minute


@problem(
    examples=[(0,), (725,), (719,), (1510,), (1439,)],
    cases=lambda rng: (
        rng.choice([0, 59, 60, 719, 720, 779, 780, 1439, 1440, 1505, rng.randint(0, 1439), rng.randint(0, 3000)]),
    ),
)
def twelve_hour_clock(minutes: int) -> str:
    """Time like "12:05 PM" after so many minutes from midnight."""
    hour = minutes // 60 % 24
    minute = minutes % 60
    half = "AM"
    if hour >= 12:
        half = "PM"
        hour -= 12
    if hour == 0:
        hour = 12
    return f"{hour}:{minute:02d} {half}"


def _shift(rng: Random) -> tuple[int, int]:
    start = rng.randint(0, 9)
    return start, start + rng.randint(1, 5)


def _covered_hours_case(rng: Random) -> tuple:
    start, end = _shift(rng)
    return [_shift(rng) for _ in range(rng.randint(0, 3))], start, end


@problem(
    examples=[([(1, 4), (6, 9)], 3, 8), ([(2, 3)], 5, 7), ([(0, 9)], 2, 4), ([(5, 6)], 4, 9), ([], 1, 2)],
    cases=_covered_hours_case,
)
def covered_hours(shifts: list, start: int, end: int) -> int:
    """Sum of hours that the (begin, finish) shifts share with start-end."""
    total = 0
    for begin, finish in shifts:
        left = max(begin, start)
        right = min(finish, end)
        total += max(0, right - left)
    return total


def _age_case(rng: Random) -> tuple:
    born = (rng.randint(1998, 2002), rng.randint(5, 7), rng.randint(10, 12))
    today = (rng.randint(1997, 2008), rng.randint(5, 7), rng.randint(10, 12))
    if rng.random() < 0.3:
        today = (rng.choice([born[0], today[0]]), born[1], born[2] + rng.randint(-1, 1))
    return born, today


@problem(
    examples=[
        ((2000, 5, 9), (2012, 5, 9)),
        ((2000, 5, 9), (2012, 5, 8)),
        ((2000, 9, 1), (2010, 3, 20)),
        ((2001, 4, 7), (2001, 4, 7)),
        ((2001, 4, 7), (1999, 12, 30)),
    ],
    cases=_age_case,
)
def age_on_date(born: tuple, today: tuple) -> int:
    """Full years between (year, month, day) dates; -1 if not yet born."""
    if today < born:
        return -1
    years = today[0] - born[0]
    if today[1:] < born[1:]:
        years -= 1
    return years


@problem(
    examples=[(3725,), (60,), (59,), (90000,), (0,)],
    cases=lambda rng: (
        rng.choice([0, 1, 86400, 86399, 3600, 3599, 59, 60])
        if rng.random() < 0.4
        else rng.randint(0, 2) * 86400 + rng.randint(0, 23) * 3600 + rng.randint(0, 3) * 60 + rng.randint(0, 2),
    ),
)
def duration_label(seconds: int) -> str:
    """Duration like "1d 2h 3m 4s" without the zero parts; "0s" if none."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count = seconds // size
        seconds %= size
        if count > 0:
            parts.append(f"{count}{unit}")
    if not parts:
        return "0s"
    return " ".join(parts)


@problem(
    examples=[(12, 31, False), (3, 1, True), (2, 28, True), (1, 5, False), (3, 4, False)],
    cases=lambda rng: (rng.choice([1, 2, 3, 12, rng.randint(1, 12)]), rng.randint(1, 28), rng.random() < 0.6),
)
def day_of_year(month: int, day: int, leap: bool) -> int:
    """Number of the day in its (leap) year; 1 for January 1."""
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30]
    if leap:
        lengths[1] = 29
    total = day
    for index in range(month - 1):
        total += lengths[index]
    return total


@problem(
    examples=[(2024, 2, 29), (1999, 12, 31), (2000, 3, 1), (2023, 1, 1), (1875, 7, 14)],
    cases=lambda rng: (rng.randint(1800, 2099), rng.choice([1, 2, 3, 12, rng.randint(1, 12)]), rng.randint(1, 28)),
)
def weekday_number(year: int, month: int, day: int) -> int:
    """Weekday of a Gregorian date, 0 for Monday to 6 for Sunday."""
    if month < 3:
        month += 12
        year -= 1
    century = year // 100
    rest = year % 100
    total = day + 13 * (month + 1) // 5
    total += rest + rest // 4
    total += century // 4 - 2 * century
    return (total + 5) % 7


@problem(
    examples=[(0, 3), (4, 1), (3, 7), (5, 1), (2, 0)],
    cases=lambda rng: (rng.randint(0, 6), rng.randint(0, 12)),
)
def working_days_wait(weekday: int, count: int) -> int:
    """Days until `count` more working days (Monday 0 to Friday 4) came."""
    days = 0
    while count > 0:
        days += 1
        weekday = (weekday + 1) % 7
        if weekday < 5:
            count -= 1
    return days


@problem(
    examples=[("2024-11", 3), ("2024-01", -1), ("1999-12", 0), ("2023-05", 24)],
    cases=lambda rng: (
        f"{rng.randint(1995, 2025)}-{rng.choice([1, 12, 11, rng.randint(1, 12)]):02d}",
        rng.randint(-15, 26),
    ),
)
def shift_year_month(text: str, months: int) -> str:
    """Text "YYYY-MM" moved by so many months, back if negative."""
    year, month = text.split("-")
    index = int(year) * 12 + int(month) - 1 + months
    year = index // 12
    month = index % 12 + 1
    return f"{year}-{month:02d}"


def _worked_case(rng: Random) -> tuple:
    shifts = []
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        start = rng.randint(0, 23) * 60
        length = rng.choice([0, 60, 359, 360, 361, 480, 700, 1439])
        shifts.append((start, (start + length) % 1440))
    return (shifts,)


@problem(
    examples=[([(480, 960)],), ([(1380, 60), (0, 90)],), ([(540, 900)],), ([(540, 901)],), ([(60, 60)],)],
    cases=_worked_case,
)
def minutes_worked(shifts: list) -> int:
    """Sum of (start, end) shifts, may pass midnight; 30 off if over 360."""
    total = 0
    for start, end in shifts:
        length = end - start
        if length < 0:
            length += 1440
        if length > 360:
            length -= 30
        total += length
    return total


def _free_slots_case(rng: Random) -> tuple:
    meetings = []
    for _ in range(rng.randint(0, 3)):
        start = rng.randint(8, 15)
        meetings.append((start, rng.randint(start + 1, 16)))
    return meetings, 8, 16


@problem(
    examples=[([(12, 13), (9, 10)], 8, 17), ([(8, 11), (9, 10)], 8, 12), ([(10, 12)], 9, 12), ([], 1, 5)],
    cases=_free_slots_case,
)
def free_slots(meetings: list, start: int, end: int) -> list:
    """Gaps of start-end free of all (begin, finish) meetings, in order."""
    slots = []
    for begin, finish in sorted(meetings):
        if begin > start:
            slots.append((start, begin))
        start = max(start, finish)
    if start < end:
        slots.append((start, end))
    return slots


def _birthday_case(rng: Random) -> tuple:
    month = rng.randint(1, 12)
    day = rng.randint(2, 27)
    if rng.random() < 0.5:
        today = (rng.randint(2019, 2025), month, day + rng.randint(-1, 1))
    else:
        today = (rng.randint(2019, 2025), rng.randint(1, 12), rng.randint(1, 28))
    return today, month, day


@problem(
    examples=[((2023, 5, 1), 5, 4), ((2023, 5, 4), 5, 4), ((2023, 5, 5), 5, 4), ((2024, 1, 1), 12, 31)],
    cases=_birthday_case,
)
def days_to_birthday(today: tuple, month: int, day: int) -> int:
    """Days from (year, month, day) to the next such day, 0 if today."""
    from datetime import date

    now = date(*today)
    target = date(now.year, month, day)
    if target < now:
        target = date(now.year + 1, month, day)
    return (target - now).days
