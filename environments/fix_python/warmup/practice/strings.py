"""Small functions on strings and parsing."""


def longest_word(text: str) -> str:
    """First of the longest words of `text`, or an empty string."""
    best = ""
    for word in text.split():
        if len(word) > len(best):
            best = word
    return best


def count_vowels(text: str) -> int:
    """Number of vowels in `text`, in either case."""
    total = 0
    for letter in text.lower():
        if letter in "aeiou":
            total += 1
    return total


def letter_counts(text: str) -> dict:
    """How often each letter occurs, ignoring case and other signs."""
    counts = {}
    for letter in text.lower():
        if not letter.isalpha():
            continue
        counts[letter] = counts.get(letter, 0) + 1
    return counts


def common_prefix(left: str, right: str) -> str:
    """Longest text that both `left` and `right` begin with."""
    size = 0
    limit = min(len(left), len(right))
    while size < limit and left[size] == right[size]:
        size += 1
    return left[:size]


def common_suffix(left: str, right: str) -> str:
    """Longest text that both `left` and `right` end with."""
    size = 0
    while size < len(left) and size < len(right):
        if left[-1 - size] != right[-1 - size]:
            break
        size += 1
    return left[len(left) - size:]


def is_palindrome(text: str) -> bool:
    """Whether `text` reads the same from both ends."""
    low = 0
    high = len(text) - 1
    while low < high:
        if text[low] != text[high]:
            return False
        low += 1
        high -= 1
    return True


def mask_number(number: str, shown: int) -> str:
    """Stars for all but the last `shown` digits of `number`."""
    if shown < 0:
        raise ValueError("shown must not be negative")
    hidden = max(len(number) - shown, 0)
    return "*" * hidden + number[hidden:]


def pad_left(text: str, size: int, fill: str = " ") -> str:
    """`text` with `fill` in front until it is `size` long."""
    result = text
    while len(result) < size:
        result = fill + result
    return result


def center_text(text: str, size: int) -> str:
    """`text` between dots, the odd dot going to the right."""
    space = size - len(text)
    if space <= 0:
        return text
    left = space // 2
    right = space - left
    return "." * left + text + "." * right


def shift_letter(letter: str, step: int) -> str:
    """The lower-case letter `step` places on, round the alphabet."""
    if not "a" <= letter <= "z":
        return letter
    index = ord(letter) - ord("a")
    return chr((index + step) % 26 + ord("a"))


def caesar_encode(text: str, step: int) -> str:
    """Shift every letter by `step`, keeping case and other signs."""
    result = ""
    for letter in text:
        if letter.isupper():
            letter = chr((ord(letter) - 65 + step) % 26 + 65)
        elif letter.islower():
            letter = chr((ord(letter) - 97 + step) % 26 + 97)
        result += letter
    return result


def mirror_cipher(text: str) -> str:
    """Swap a with z, b with y and so on in lower-case text."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    result = []
    for letter in text:
        index = alphabet.find(letter)
        if index >= 0:
            letter = alphabet[25 - index]
        result.append(letter)
    return "".join(result)


def parse_pairs(text: str) -> dict:
    """Read `a=1;b=2` into a dict of texts."""
    result = {}
    for part in text.split(";"):
        if "=" not in part:
            continue
        key, value = part.split("=", 1)
        result[key.strip()] = value.strip()
    return result


def format_pairs(pairs: dict) -> str:
    """Write a dict as `key=value` parts in order of the keys."""
    parts = []
    for key in sorted(pairs):
        parts.append(f"{key}={pairs[key]}")
    return "&".join(parts)


def numbers_in_text(text: str) -> list:
    """All runs of digits in `text`, as whole numbers."""
    numbers = []
    current = ""
    for letter in text + " ":
        if letter in "0123456789":
            current += letter
        elif current:
            numbers.append(int(current))
            current = ""
    return numbers


def digit_sum(text: str) -> int:
    """Sum of the single digits found in `text`."""
    total = 0
    for letter in text:
        if "0" <= letter <= "9":
            total += ord(letter) - ord("0")
    return total


def brackets_match(text: str) -> bool:
    """Whether round brackets open and close in a proper order."""
    depth = 0
    for letter in text:
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


def mixed_brackets_match(text: str) -> bool:
    """Whether all three kinds of brackets are closed as opened."""
    pairs = {")": "(", "]": "[", "}": "{"}
    stack = []
    for letter in text:
        if letter in "([{":
            stack.append(letter)
        elif letter in pairs:
            if not stack or stack.pop() != pairs[letter]:
                return False
    return len(stack) == 0


def deepest_level(text: str) -> int:
    """Greatest number of square brackets open at once."""
    depth = 0
    best = 0
    for letter in text:
        if letter == "[":
            depth += 1
            best = max(best, depth)
        elif letter == "]":
            depth -= 1
    return best


def inside_brackets(text: str) -> str:
    """Text between the first `<` and the next `>`, if any."""
    start = text.find("<")
    if start < 0:
        return ""
    end = text.find(">", start + 1)
    if end < 0:
        return ""
    return text[start + 1:end]


def initials(name: str) -> str:
    """First letters of a full name, each followed by a dot."""
    result = ""
    for word in name.split():
        result += word[0].upper() + "."
    return result


def acronym(words: list, skip: list = None) -> str:
    """Capital first letters of `words` that are not in `skip`."""
    if skip is None:
        skip = ["of", "the", "and"]
    letters = []
    for word in words:
        if word and word.lower() not in skip:
            letters.append(word[0].upper())
    return "".join(letters)


def shorten(text: str, limit: int) -> str:
    """Cut `text` to `limit` signs, ending in dots when cut."""
    if len(text) <= limit:
        return text
    if limit < 3:
        return text[:limit]
    return text[:limit - 3] + "..."


def wrap_words(text: str, limit: int) -> list:
    """Lines of whole words, none above `limit` where possible."""
    lines = []
    current = ""
    for word in text.split():
        if current and len(current) + 1 + len(word) > limit:
            lines.append(current)
            current = word
        else:
            current = (current + " " + word).strip()
    return lines + [current] if current else lines


def join_with_and(items: list) -> str:
    """List `items` with commas and a final `and`."""
    if not items:
        return ""
    if len(items) == 1:
        return items[0]
    start = ", ".join(items[:-1])
    return start + " and " + items[-1]


def run_lengths(text: str) -> list:
    """Pairs of each letter and how often it stands in a row."""
    pairs = []
    for letter in text:
        if pairs and pairs[-1][0] == letter:
            pairs[-1] = (letter, pairs[-1][1] + 1)
        else:
            pairs.append((letter, 1))
    return pairs


def expand_runs(text: str) -> str:
    """Turn counts before letters, as in `3a12b`, into full text."""
    result = ""
    count = 0
    for letter in text:
        if letter.isdigit():
            count = count * 10 + int(letter)
        else:
            result += letter * max(count, 1)
            count = 0
    return result


def is_pangram(text: str) -> bool:
    """Whether every letter of the alphabet occurs in `text`."""
    seen = set(text.lower())
    for letter in "abcdefghijklmnopqrstuvwxyz":
        if letter not in seen:
            return False
    return True


def missing_letters(text: str) -> str:
    """Letters of the alphabet that `text` does not use."""
    result = ""
    for code in range(ord("a"), ord("z") + 1):
        letter = chr(code)
        if letter not in text.lower():
            result += letter
    return result


def first_unique_letter(text: str) -> int:
    """Index of the first letter that occurs only once, or -1."""
    counts = {}
    for letter in text:
        counts[letter] = counts.get(letter, 0) + 1
    for index, letter in enumerate(text):
        if counts[letter] == 1:
            return index
    return -1


def snake_to_camel(name: str) -> str:
    """Turn `file_name_size` into `fileNameSize`."""
    parts = name.split("_")
    result = parts[0]
    for part in parts[1:]:
        result += part[:1].upper() + part[1:]
    return result


def camel_to_snake(name: str) -> str:
    """Turn `fileNameSize` into `file_name_size`."""
    result = ""
    for index, letter in enumerate(name):
        if letter.isupper() and index > 0:
            result += "_"
        result += letter.lower()
    return result


def slug(text: str) -> str:
    """Lower-case words and digits joined by single dashes."""
    result = []
    for letter in text.lower():
        if letter.isalnum():
            result.append(letter)
        elif result and result[-1] != "-":
            result.append("-")
    return "".join(result).strip("-")


def column_number(label: str) -> int:
    """Number of a sheet column such as `A`, `Z` or `AB`."""
    number = 0
    for letter in label.upper():
        if not "A" <= letter <= "Z":
            raise ValueError("letters only")
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def column_label(number: int) -> str:
    """Sheet column of a positive `number`: 1 is A, 27 is AA."""
    if number < 1:
        raise ValueError("number must be positive")
    label = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        label = chr(ord("A") + rest) + label
    return label


def roman_value(text: str) -> int:
    """Value of a Roman number."""
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "M": 1000}
    total = 0
    last = 0
    for letter in reversed(text):
        value = values[letter]
        total += value if value >= last else -value
        last = max(last, value)
    return total


def binary_value(text: str) -> int:
    """Whole number written as zeros and ones in `text`."""
    value = 0
    for letter in text:
        if letter not in "01":
            raise ValueError("not a binary digit: " + letter)
        value = value * 2 + int(letter)
    return value


def to_base(number: int, base: int) -> str:
    """Write a number of zero or more in a base from 2 to 16."""
    digits = "0123456789abcdef"
    if number == 0:
        return "0"
    result = ""
    while number > 0:
        result = digits[number % base] + result
        number //= base
    return result


def group_digits(number: int) -> str:
    """Write a number of zero or more with commas by thousands."""
    text = str(number)
    parts = []
    while len(text) > 3:
        parts.insert(0, text[-3:])
        text = text[:-3]
    parts.insert(0, text)
    return ",".join(parts)


def parse_clock(text: str) -> int:
    """Minutes since midnight for a time such as `07:45`."""
    hours, minutes = text.split(":")
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError("no such time: " + text)
    return int(hours) * 60 + int(minutes)


def format_seconds(seconds: int) -> str:
    """Write seconds as `h:mm:ss`, or `m:ss` below one hour."""
    hours = seconds // 3600
    minutes = seconds % 3600 // 60
    rest = seconds % 60
    if hours == 0:
        return f"{minutes}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}"


def parse_duration(text: str) -> int:
    """Seconds in a text such as `2h 5m 10s`."""
    sizes = {"h": 3600, "m": 60, "s": 1}
    total = 0
    for part in text.split():
        unit = part[-1]
        if unit not in sizes:
            raise ValueError("unknown unit: " + unit)
        total += int(part[:-1]) * sizes[unit]
    return total


def parse_ranges(text: str) -> list:
    """Numbers named by a text such as `1-3,7,9-10`."""
    numbers = []
    for part in text.split(","):
        if "-" in part:
            low, high = part.split("-")
            numbers.extend(range(int(low), int(high) + 1))
        else:
            numbers.append(int(part))
    return numbers


def format_ranges(numbers: list) -> str:
    """Write sorted numbers with runs as `low-high`."""
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{a}-{b}" if a < b else str(a) for a, b in runs]
    return ",".join(parts)


def split_csv_line(line: str) -> list:
    """Split at commas that do not stand between quotes."""
    cells = [""]
    quoted = False
    for letter in line:
        if letter == "'":
            quoted = not quoted
        elif letter == "," and not quoted:
            cells.append("")
        else:
            cells[-1] += letter
    return cells


def without_comments(text: str) -> list:
    """Lines of `text` with `#` comments and empty lines dropped."""
    lines = []
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if line:
            lines.append(line)
    return lines


def indent_of(line: str) -> int:
    """Number of leading blanks, with a tab counted as four."""
    count = 0
    for letter in line:
        if letter == " ":
            count += 1
        elif letter == "\t":
            count += 4
        else:
            break
    return count


def remove_indent(lines: list) -> list:
    """Take away the blanks that all filled lines begin with."""
    sizes = []
    for line in lines:
        if line.strip():
            sizes.append(len(line) - len(line.lstrip()))
    size = min(sizes, default=0)
    return [line[size:] for line in lines]


def number_lines(lines: list, start: int = 1) -> list:
    """Put a right-aligned number in front of every line."""
    last = start + len(lines) - 1
    size = len(str(last))
    result = []
    for index, line in enumerate(lines, start):
        result.append(str(index).rjust(size) + ": " + line)
    return result


def read_sections(lines: list) -> dict:
    """Group lines under the `[name]` line that they follow."""
    sections = {}
    name = ""
    for line in lines:
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
            sections[name] = []
        elif line and name:
            sections[name].append(line)
    return sections


def words_by_length(words: list) -> dict:
    """Lists of words under their length, in the order given."""
    groups = {}
    for word in words:
        size = len(word)
        if size not in groups:
            groups[size] = []
        groups[size].append(word)
    return groups


def group_anagrams(words: list) -> list:
    """Lists of words that use the same letters."""
    groups = {}
    for word in words:
        key = "".join(sorted(word))
        groups.setdefault(key, []).append(word)
    return list(groups.values())


def are_anagrams(left: str, right: str) -> bool:
    """Whether two different texts use the same letters."""
    if left == right:
        return False
    left = left.replace(" ", "").lower()
    right = right.replace(" ", "").lower()
    return sorted(left) == sorted(right)


def can_write(message: str, letters: str) -> bool:
    """Whether `message` can be laid with the given `letters`."""
    stock = list(letters)
    for letter in message:
        if letter == " ":
            continue
        if letter not in stock:
            return False
        stock.remove(letter)
    return True


def is_subsequence(short: str, text: str) -> bool:
    """Whether `short` can be had by striking letters of `text`."""
    index = 0
    for letter in text:
        if index == len(short):
            break
        if letter == short[index]:
            index += 1
    return index == len(short)


def count_overlapping(text: str, part: str) -> int:
    """How often `part` begins anywhere in `text`."""
    if not part:
        raise ValueError("part must not be empty")
    count = 0
    for start in range(len(text) - len(part) + 1):
        if text[start:start + len(part)] == part:
            count += 1
    return count


def find_all(text: str, part: str) -> list:
    """Places where `part` stands in `text`, without overlaps."""
    places = []
    index = text.find(part)
    while index != -1 and part:
        places.append(index)
        index = text.find(part, index + len(part))
    return places


def difference_count(left: str, right: str) -> int:
    """Number of places where two equally long texts differ."""
    if len(left) != len(right):
        raise ValueError("lengths differ")
    return sum(1 for a, b in zip(left, right) if a != b)


def is_rotation(left: str, right: str) -> bool:
    """Whether `right` is `left` turned round by some places."""
    if len(left) != len(right):
        return False
    return right in left + left


def rotate_text(text: str, step: int) -> str:
    """Move the first `step` letters of `text` to its end."""
    if not text:
        return text
    step %= len(text)
    return text[step:] + text[:step]


def rail_encode(text: str) -> str:
    """Letters at even places, then those at odd places."""
    even = ""
    odd = ""
    for index in range(len(text)):
        if index % 2 == 0:
            even += text[index]
        else:
            odd += text[index]
    return even + odd


def rail_decode(text: str) -> str:
    """Take one letter in turn from each half of `text`."""
    middle = (len(text) + 1) // 2
    result = []
    for index in range(middle):
        result.append(text[index])
        if middle + index < len(text):
            result.append(text[middle + index])
    return "".join(result)


def key_cipher(text: str, key: str) -> str:
    """Shift lower-case letters by the letters of `key` in turn."""
    result = ""
    count = 0
    for letter in text:
        if letter.islower():
            step = ord(key[count % len(key)]) - 97
            letter = chr((ord(letter) - 97 + step) % 26 + 97)
            count += 1
        result += letter
    return result


def invert_table(table: dict) -> dict:
    """Turn a table of letter codes round, refusing doubles."""
    result = {}
    for letter, code in table.items():
        if code in result:
            raise ValueError("code used twice: " + code)
        result[code] = letter
    return result


def decode_signals(text: str, table: dict) -> str:
    """Letters for the codes in `text`; unknown codes become `?`."""
    words = []
    for part in text.split(" / "):
        word = ""
        for code in part.split():
            word += table.get(code, "?")
        words.append(word)
    return " ".join(words)


def column_cipher(text: str, width: int) -> str:
    """Write `text` in rows of `width` and read it by columns."""
    if width <= 0:
        raise ValueError("width must be positive")
    result = ""
    for column in range(width):
        for index in range(column, len(text), width):
            result += text[index]
    return result


def split_chunks(text: str, size: int) -> list:
    """Parts of `text`, `size` long except for the last."""
    parts = []
    start = 0
    while start < len(text):
        parts.append(text[start:start + size])
        start += max(size, 1)
    return parts


def reverse_words(text: str) -> str:
    """The words of `text` from last to first."""
    words = text.split()
    left = 0
    right = len(words) - 1
    while left < right:
        words[left], words[right] = words[right], words[left]
        left += 1
        right -= 1
    return " ".join(words)


def reverse_each_word(text: str) -> str:
    """Turn round every word but keep the words in order."""
    result = []
    for word in text.split(" "):
        result.append(word[::-1])
    return " ".join(result)


def title_case(text: str, small: set) -> str:
    """Capital first letters, except for `small` words inside."""
    words = text.lower().split()
    for index, word in enumerate(words):
        if index == 0 or word not in small:
            words[index] = word[0].upper() + word[1:]
    return " ".join(words)


def alternate_case(text: str) -> str:
    """Upper and lower case in turn, counting letters only."""
    result = ""
    upper = True
    for letter in text:
        if letter.isalpha():
            letter = letter.upper() if upper else letter.lower()
            upper = not upper
        result += letter
    return result


def squeeze_blanks(text: str) -> str:
    """Keep one blank of every run of blanks."""
    result = ""
    for letter in text:
        if letter == " " and result.endswith(" "):
            continue
        result += letter
    return result


def remove_repeats(text: str) -> str:
    """Keep only the first of each letter."""
    seen = set()
    result = []
    for letter in text:
        if letter not in seen:
            seen.add(letter)
            result.append(letter)
    return "".join(result)


def cancel_pairs(text: str) -> str:
    """Strike equal neighbours again and again until none is left."""
    stack = []
    for letter in text:
        if stack and stack[-1] == letter:
            stack.pop()
        else:
            stack.append(letter)
    return "".join(stack)


def apply_backspaces(text: str) -> str:
    """Typed text where `<` takes away the letter before it."""
    result = ""
    for letter in text:
        if letter != "<":
            result += letter
        elif result:
            result = result[:-1]
    return result


def matches_mask(text: str, mask: str) -> bool:
    """Whether `text` fits: `9` digit, `A` letter, else as is."""
    if len(text) != len(mask):
        return False
    for letter, sign in zip(text, mask):
        if sign == "9" and not letter.isdigit():
            return False
        if sign == "A" and not letter.isalpha():
            return False
        if sign not in "9A" and letter != sign:
            return False
    return True


def fill_mask(mask: str, digits: str) -> str:
    """Put `digits` in turn in the place of each `#` of `mask`."""
    if mask.count("#") != len(digits):
        raise ValueError("wrong number of digits")
    index = 0
    result = ""
    for sign in mask:
        if sign == "#":
            sign = digits[index]
            index += 1
        result += sign
    return result


def mask_email(address: str) -> str:
    """Hide the name before `@` except for its first letter."""
    name, sign, host = address.partition("@")
    if not sign or not name:
        return address
    return name[0] + "*" * (len(name) - 1) + sign + host


def reveal_word(word: str, guesses: list) -> str:
    """Guessed letters of `word`, with `_` for all others."""
    result = []
    for letter in word:
        if letter in guesses:
            result.append(letter)
        else:
            result.append("_")
    return " ".join(result)


def fill_template(text: str, values: dict) -> str:
    """Replace every `{key}` by its value."""
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    if "{" in text:
        raise ValueError("a value is missing")
    return text


def check_digit(code: str) -> int:
    """Digit that brings the 3-1 weighted sum to a full ten."""
    total = 0
    weight = 3
    for digit in reversed(code):
        total += weight * int(digit)
        weight = 4 - weight
    return (10 - total % 10) % 10


def valid_card(number: str) -> bool:
    """Whether doubling every other digit gives a full ten."""
    total = 0
    for index, letter in enumerate(reversed(number)):
        digit = int(letter)
        if index % 2 == 1:
            digit *= 2
            if digit > 9:
                digit -= 9
        total += digit
    return total % 10 == 0


def next_code(code: str) -> str:
    """Code after one such as `AB099`, keeping its width."""
    end = len(code)
    while end > 0 and code[end - 1].isdigit():
        end -= 1
    if end == len(code):
        return code + "1"
    number = int(code[end:]) + 1
    return code[:end] + str(number).zfill(len(code) - end)


def compare_versions(left: str, right: str) -> int:
    """-1, 0 or 1 as `left` is older, equal or newer."""
    a = [int(part) for part in left.split(".")]
    b = [int(part) for part in right.split(".")]
    size = max(len(a), len(b))
    a += [0] * (size - len(a))
    b += [0] * (size - len(b))
    if a == b:
        return 0
    return -1 if a < b else 1


def with_prefix(words: list, prefix: str, limit: int = 5) -> list:
    """At most `limit` words that begin with `prefix`, sorted."""
    found = []
    for word in sorted(words):
        if len(found) == limit:
            break
        if word.startswith(prefix):
            found.append(word)
    return found


def shortest_prefixes(words: list) -> dict:
    """For each word the shortest start that no other word has."""
    result = {}
    for word in words:
        size = 1
        others = [other for other in words if other != word]
        while any(o.startswith(word[:size]) for o in others):
            if size >= len(word):
                break
            size += 1
        result[word] = word[:size]
    return result


def align_table(rows: list) -> list:
    """Lines of text with the cells of each column equally wide."""
    sizes = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = []
        for cell, size in zip(row, sizes):
            cells.append(cell.ljust(size))
        lines.append(" | ".join(cells).rstrip())
    return lines


def expand_words(text: str, short: dict) -> str:
    """Write abbreviations in `text` in full."""
    words = text.split()
    for index in range(len(words)):
        key = words[index].rstrip(".").lower()
        if key in short:
            words[index] = short[key]
    return " ".join(words)


def resolve_path(path: str) -> str:
    """Path without `.` and `..` parts."""
    parts = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def longest_without_repeat(text: str) -> int:
    """Size of the longest part in which no letter comes twice."""
    last = {}
    start = 0
    best = 0
    for index, letter in enumerate(text):
        if letter in last and last[letter] >= start:
            start = last[letter] + 1
        last[letter] = index
        best = max(best, index - start + 1)
    return best
