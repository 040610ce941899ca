"""Problems about text: counting, shifting, casing, padding, wrapping, runs and palindromes."""

from __future__ import annotations

from random import Random

from fix_python.problem import problem


def _letters(rng: Random, alphabet: str, longest: int) -> str:
    """Draw a text of zero to `longest` letters."""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, longest)))


def _sentence(rng: Random, words: list[str], longest: int) -> str:
    """Draw zero to `longest` of the words, joined by single spaces."""
    return " ".join(rng.choice(words) for _ in range(rng.randint(0, longest)))


@problem(
    examples=[("az b!", 1), ("zoo", 3), ("b{", -2), ("", 5)],
    cases=lambda rng: (_letters(rng, "abmyz z`{Z!", 7), rng.choice([0, 1, 2, -1, -3, 13, 25, 26, 30])),
)
def caesar_shift(text: str, shift: int) -> str:
    """Move letters a to z by shift places, z wraps to a; keep the rest."""
    result = ""
    for letter in text:
        if "a" <= letter <= "z":
            place = ord(letter) - ord("a")
            place = (place + shift) % 26
            result += chr(place + ord("a"))
        else:
            result += letter
    return result


@problem(
    examples=[("queue",), ("Banana",), ("rhythm",), ("Iota",)],
    cases=lambda rng: (_letters(rng, "aeiouAEbcrtyT", rng.choice([2, 5, 9])),),
)
def count_syllables(word: str) -> int:
    """Number of vowel groups (a, e, i, o, u, any case), but at least 1."""
    groups = 0
    inside = False
    for letter in word.lower():
        vowel = letter in "aeiou"
        if vowel and not inside:
            groups += 1
        inside = vowel
    return max(groups, 1)


def _title_case(rng: Random) -> tuple:
    text = _sentence(rng, ["the", "of", "a", "cat", "sEA", "end"], 6)
    if rng.random() < 0.5:
        return (text,)
    return (text, rng.choice([None, [], ["a"], ["cat", "end"]]))


@problem(
    examples=[("the end of the sea",), ("a cat or a dog", ["a", "or"]), ("of the end", []), ("",)],
    cases=_title_case,
)
def title_case_words(text: str, small: list | None = None) -> str:
    """Capitalize the first word and all not in small (default of, the)."""
    if small is None:
        small = ["of", "the"]
    words = text.split()
    for index, word in enumerate(words):
        if index == 0 or word not in small:
            words[index] = word.capitalize()
    return " ".join(words)


@problem(
    examples=[("abc", 8), ("abcd", 4), ("abcde", 4), ("", 2)],
    cases=lambda rng: (_letters(rng, "abc", 5), rng.randint(1, 7)),
)
def center_or_cut(text: str, width: int) -> str:
    """Center with dots, odd one right; if too long cut and end in ~."""
    if len(text) > width:
        return text[: width - 1] + "~"
    space = width - len(text)
    left = space // 2
    right = space - left
    return "." * left + text + "." * right


@problem(
    examples=[("a bb ccc d", 4), ("one two six", 7), ("long a b", 3), ("", 5)],
    cases=lambda rng: (_sentence(rng, ["a", "bb", "ccc", "longer"], 7), rng.randint(1, 9)),
)
def wrap_words(text: str, width: int) -> list:
    """Fill lines up to width; a word that is longer gets its own line."""
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def _palindrome(rng: Random) -> tuple:
    half = _letters(rng, "ab", 4)
    if rng.random() < 0.3:  # it reaches the first letter of the text, or the last one
        text, center = half + rng.choice("abc") + half[::-1] + rng.choice("ab"), len(half)
        return (text, center) if rng.random() < 0.5 else (text[::-1], len(text) - 1 - center)
    text = _letters(rng, "ab", 2) + half + rng.choice("abc") + half[::-1] + _letters(rng, "ab", 2)
    if rng.random() < 0.5:
        return (text, rng.randrange(len(text)))
    return (text, len(text) // 2)


@problem(
    examples=[("xabcbay", 3), ("aba", 1), ("aaa", 0), ("abab", 2), ("baab", 3)],
    cases=_palindrome,
)
def palindrome_around(text: str, center: int) -> str:
    """Longest palindrome of odd length with its middle at index center."""
    left = center
    right = center
    while left > 0 and right < len(text) - 1:
        if text[left - 1] != text[right + 1]:
            break
        left -= 1
        right += 1
    return text[left : right + 1]


@problem(
    examples=[("aaabcc",), ("ab",), ("",), ("bbbb",)],
    cases=lambda rng: (_letters(rng, rng.choice(["ab", "abc", "aaab"]), 9),),
)
def rle_encode(text: str) -> str:
    """Each run as its letter, then its length if that is more than 1."""
    result = ""
    index = 0
    while index < len(text):
        end = index + 1
        while end < len(text) and text[end] == text[index]:
            end += 1
        result += text[index]
        if end - index > 1:
            result += str(end - index)
        index = end
    return result


@problem(
    examples=[("maxSpeed",), ("Name",), ("aBC",), ("",)],
    cases=lambda rng: (_letters(rng, "abcABCx1", 8),),
)
def snake_from_camel(name: str) -> str:
    """Lower-case name with _ before each capital that is not first."""
    result = ""
    for index, letter in enumerate(name):
        if letter.isupper() and index > 0:
            result += "_"
        result += letter.lower()
    return result


def _prefixed(rng: Random) -> tuple:
    start = _letters(rng, "abc", 3)
    return ([start + _letters(rng, "ab", 3) for _ in range(rng.randint(0, 4))],)


@problem(
    examples=[(["cabs", "cabin", "cable"],), (["ab", "abc"],), (["x", "y"],), ([],), (["bb"],)],
    cases=_prefixed,
)
def common_prefix(words: list) -> str:
    """Longest start that all words share; empty if there are no words."""
    if not words:
        return ""
    first = min(words)
    last = max(words)
    size = 0
    while size < len(first) and first[size] == last[size]:
        size += 1
    return first[:size]


def _tally(rng: Random) -> tuple:
    text = _letters(rng, "aabc 1-", 7)
    if rng.random() < 0.6:
        return (text,)
    return (text, rng.choice([None, {}, {"a": 2}, {"b": 1, "z": 3}]))


@problem(
    examples=[("a1 bab",), ("ca", {"a": 3}), ("b-",), ("", {"x": 1})],
    cases=_tally,
)
def tally_letters(text: str, counts: dict | None = None) -> dict:
    """Add 1 to counts (default a new dict) per letter; return counts."""
    if counts is None:
        counts = {}
    for letter in text:
        if letter.isalpha():
            counts[letter] = counts.get(letter, 0) + 1
    return counts


@problem(
    examples=[("#Red and #blue #red", 5), ("#a #bb #c", 2), ("none", 3), ("#x", 0)],
    cases=lambda rng: (_sentence(rng, ["#a", "#A", "#bb", "#c1", "dog", "x#y", "#"], 6), rng.randint(0, 4)),
)
def find_hashtags(text: str, limit: int) -> list:
    """First limit different #tags without the #, lower case, in order."""
    import re

    tags = []
    for tag in re.findall(r"#(\w+)", text.lower()):
        if len(tags) < limit and tag not in tags:
            tags.append(tag)
    return tags


@problem(
    examples=[(["ab", "abc", "xyzw"], 2), (["no"], 2), ([], 0), (["", "ad"], 0)],
    cases=lambda rng: ([_letters(rng, "abc", 4) for _ in range(rng.randint(0, 4))], rng.randint(0, 4)),
)
def reverse_long_words(words: list, limit: int) -> int:
    """Reverse in place each word longer than limit; return how many."""
    changed = 0
    for index, word in enumerate(words):
        if len(word) > limit:
            words[index] = word[::-1]
            changed += 1
    return changed
