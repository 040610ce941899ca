"""Small functions on dictionaries, sets, records and business rules."""


def group_by_length(words: list) -> dict:
    """Words grouped by how many letters they have."""
    result = {}
    for word in words:
        size = len(word)
        if size not in result:
            result[size] = []
        result[size].append(word)
    return result


def invert_unique(mapping: dict) -> dict:
    """Swap keys and values; a repeated value is an error."""
    result = {}
    for key, value in mapping.items():
        if value in result:
            raise ValueError("repeated value")
        result[value] = key
    return result


def invert_to_lists(mapping: dict) -> dict:
    """Each value with the sorted list of keys that hold it."""
    result = {}
    for key in sorted(mapping):
        result.setdefault(mapping[key], []).append(key)
    return result


def merge_adding(left: dict, right: dict) -> dict:
    """Merge two dictionaries, adding the values of shared keys."""
    result = dict(left)
    for key, value in right.items():
        result[key] = result.get(key, 0) + value
    return result


def merge_keep_larger(left: dict, right: dict) -> dict:
    """Merge two dictionaries, keeping the larger value of a shared key."""
    result = left.copy()
    for key in right:
        if key not in result or right[key] > result[key]:
            result[key] = right[key]
    return result


def count_letters(text: str) -> dict:
    """How often each letter occurs, ignoring case and other signs."""
    counts = {}
    for char in text.lower():
        if not char.isalpha():
            continue
        counts[char] = counts.get(char, 0) + 1
    return counts


def most_common_value(values: list):
    """The value seen most often; the first one wins a tie."""
    counts = {}
    best = None
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    for value, count in counts.items():
        if best is None or count > counts[best]:
            best = value
    return best


def invoice_total(lines: list, tax: int) -> float:
    """Sum of quantity times price, plus `tax` percent, in cents."""
    total = 0
    for quantity, price in lines:
        total += quantity * price
    return round(total * (100 + tax) / 100, 2)


def bulk_price(quantity: int, price: int) -> int:
    """Price of an order: every tenth item is free."""
    if quantity < 0:
        raise ValueError("negative quantity")
    free = quantity // 10
    return (quantity - free) * price


def tiered_discount(total: int) -> int:
    """Discount in percent: 5 from 100, 10 from 500, 20 from 1000."""
    if total >= 1000:
        return 20
    if total >= 500:
        return 10
    if total >= 100:
        return 5
    return 0


def remove_stock(stock: dict, name: str, count: int) -> bool:
    """Take `count` of an item out of stock, if there is enough."""
    current = stock.get(name, 0)
    if count > current:
        return False
    stock[name] = current - count
    if stock[name] == 0:
        del stock[name]
    return True


def items_to_reorder(stock: dict, minimum: dict) -> list:
    """Names below their minimum with the missing count, sorted."""
    result = []
    for name in sorted(minimum):
        missing = minimum[name] - stock.get(name, 0)
        if missing > 0:
            result.append((name, missing))
    return result


def can_fill_order(order: dict, stock: dict) -> bool:
    """Whether every item of the order is in stock."""
    for name, count in order.items():
        if stock.get(name, 0) < count:
            return False
    return True


def letter_grade(score: int) -> str:
    """Grade from A to F for a score between 0 and 100."""
    if score < 0 or score > 100:
        raise ValueError("score out of range")
    grades = [(90, "A"), (80, "B"), (70, "C"), (60, "D")]
    for low, grade in grades:
        if score >= low:
            return grade
    return "F"


def drop_lowest_average(scores: list) -> float:
    """Average of the scores after the lowest one is dropped."""
    if len(scores) < 2:
        return 0.0
    total = sum(scores) - min(scores)
    return total / (len(scores) - 1)


def weighted_grade(scores: dict, weights: dict) -> float:
    """Weighted average over the parts that were graded."""
    total = 0
    weight = 0
    for name, score in scores.items():
        part = weights.get(name, 1)
        total += score * part
        weight += part
    if weight == 0:
        return 0.0
    return total / weight


def election_winner(votes: list):
    """Candidate with over half of the votes, or None."""
    counts = {}
    for name in votes:
        counts[name] = counts.get(name, 0) + 1
        if counts[name] * 2 > len(votes):
            return name
    return None


def ranked_points(ballots: list) -> dict:
    """Points by place: the last name of a ballot gets one point."""
    points = {}
    for ballot in ballots:
        size = len(ballot)
        for index, name in enumerate(ballot):
            points[name] = points.get(name, 0) + size - index
    return points


def drop_candidate(ballots: list, name: str) -> list:
    """Ballots without one candidate; empty ballots are left out."""
    result = []
    for ballot in ballots:
        rest = [other for other in ballot if other != name]
        if rest:
            result.append(rest)
    return result


def has_permission(roles: dict, user: list, action: str) -> bool:
    """Whether any role of the user allows the action."""
    for role in user:
        allowed = roles.get(role, set())
        if action in allowed or "all" in allowed:
            return True
    return False


def missing_permissions(needed: list, granted: set) -> list:
    """Needed permissions not granted, in order and only once."""
    result = []
    for name in needed:
        if name not in granted and name not in result:
            result.append(name)
    return result


def all_roles(role: str, parents: dict) -> set:
    """The role and every role it inherits from."""
    seen = set()
    waiting = [role]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        waiting.extend(parents.get(current, []))
    return seen


def first_conflict(meetings: list):
    """First pair of neighbouring meetings that overlap, or None."""
    ordered = sorted(meetings)
    for index in range(1, len(ordered)):
        before = ordered[index - 1]
        if ordered[index][0] < before[1]:
            return before, ordered[index]
    return None


def free_slots(busy: list, start: int, end: int) -> list:
    """Gaps between sorted busy slots within a day."""
    result = []
    current = start
    for low, high in busy:
        if low > current:
            result.append((current, low))
        current = max(current, high)
    if current < end:
        result.append((current, end))
    return result


def hours_by_person(shifts: list) -> dict:
    """Hours of each person; a shift may go past midnight."""
    hours = {}
    for name, start, end in shifts:
        length = end - start
        if length < 0:
            length += 24
        hours[name] = hours.get(name, 0) + length
    return hours


def over_budget(spent: dict, budget: dict) -> dict:
    """By how much each entry is over its budget."""
    result = {}
    for name, amount in spent.items():
        limit = budget.get(name, 0)
        if amount > limit:
            result[name] = amount - limit
    return result


def budget_left(budget: int, costs: list) -> int:
    """What is left after paying costs in order while they fit."""
    left = budget
    for cost in costs:
        if cost > left:
            break
        left -= cost
    return left


def share_evenly(amount: int, names: list) -> dict:
    """Split an amount; the first names get one more if needed."""
    if not names:
        return {}
    share, extra = divmod(amount, len(names))
    result = {}
    for index, name in enumerate(names):
        result[name] = share + 1 if index < extra else share
    return result


def filter_values(mapping: dict, low: int, high: int) -> dict:
    """Entries whose value lies between low and high, both included."""
    return {
        key: value
        for key, value in mapping.items()
        if low <= value <= high
    }


def key_of_largest(mapping: dict):
    """Key with the largest value, or None when empty."""
    best = None
    for key, value in mapping.items():
        if best is None or value > mapping[best]:
            best = key
    return best


def top_keys(mapping: dict, size: int) -> list:
    """The `size` keys with the highest values, ties by name."""
    pairs = [(-value, key) for key, value in mapping.items()]
    pairs.sort()
    return [key for value, key in pairs[:size]]


def common_keys(mappings: list) -> set:
    """Keys that occur in every dictionary of the list."""
    if not mappings:
        return set()
    result = set(mappings[0])
    for mapping in mappings[1:]:
        result &= set(mapping)
    return result


def changed_keys(before: dict, after: dict) -> list:
    """Sorted keys whose value differs between two dictionaries."""
    changed = []
    for key in sorted(set(before) | set(after)):
        if key not in before or key not in after:
            changed.append(key)
        elif before[key] != after[key]:
            changed.append(key)
    return changed


def rename_keys(record: dict, names: dict) -> dict:
    """Record with some keys renamed and the others kept."""
    result = {}
    for key in record:
        result[names.get(key, key)] = record[key]
    return result


def pick_fields(records: list, fields: list) -> list:
    """Rows with only the given fields, None where missing."""
    rows = []
    for record in records:
        row = []
        for field in fields:
            row.append(record.get(field))
        rows.append(row)
    return rows


def index_by_field(records: list, field: str) -> dict:
    """First record for every value of the field."""
    result = {}
    for record in records:
        key = record.get(field)
        if key is not None and key not in result:
            result[key] = record
    return result


def rows_to_records(header: list, rows: list) -> list:
    """Turn rows into dictionaries; a row of another size is skipped."""
    records = []
    for row in rows:
        if len(row) != len(header):
            continue
        records.append(dict(zip(header, row)))
    return records


def columns_from_records(records: list) -> dict:
    """One list of values for every key, in record order."""
    columns = {}
    for record in records:
        for key, value in record.items():
            if key in columns:
                columns[key].append(value)
            else:
                columns[key] = [value]
    return columns


def get_path(data: dict, path: str, default=None):
    """Value at a dotted path of nested dictionaries."""
    current = data
    for name in path.split("."):
        if not isinstance(current, dict) or name not in current:
            return default
        current = current[name]
    return current


def set_path(data: dict, names: list, value) -> None:
    """Store a value in nested dictionaries, making them as needed."""
    if not names:
        raise ValueError("empty path")
    current = data
    for name in names[:-1]:
        current = current.setdefault(name, {})
    current[names[-1]] = value


def flatten_nested(data: dict, prefix: str = "") -> dict:
    """Nested dictionaries as one, with dotted keys."""
    result = {}
    for key, value in data.items():
        name = prefix + key
        if isinstance(value, dict):
            result.update(flatten_nested(value, name + "."))
        else:
            result[name] = value
    return result


def parse_settings(text: str) -> dict:
    """Read lines like `name = value`; lines with # are comments."""
    result = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#") or "=" not in line:
            continue
        key, value = line.split("=", 1)
        result[key.strip()] = value.strip()
    return result


def join_query(params: dict) -> str:
    """Build `a=1&b=2` from a dictionary, keys in order."""
    parts = []
    for key in sorted(params):
        if params[key] is not None:
            parts.append(f"{key}={params[key]}")
    return "&".join(parts)


def duplicates_in_order(items: list) -> list:
    """Items that occur more than once, by their second occurrence."""
    seen = set()
    result = []
    for item in items:
        if item in seen and item not in result:
            result.append(item)
        seen.add(item)
    return result


def only_once(items: list) -> list:
    """Items that occur exactly once."""
    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return [item for item in items if counts[item] == 1]


def first_pair_with_sum(numbers: list, total: int):
    """First two positions whose numbers add up to total, or None."""
    seen = {}
    for index, number in enumerate(numbers):
        if total - number in seen:
            return seen[total - number], index
        if number not in seen:
            seen[number] = index
    return None


def last_positions(values: list) -> dict:
    """Last index of every value."""
    result = {}
    for index in range(len(values) - 1, -1, -1):
        if values[index] not in result:
            result[values[index]] = index
    return result


def overlap_share(left: set, right: set) -> float:
    """Size of the common part divided by the size of both together."""
    both = left | right
    if len(both) == 0:
        return 1.0
    return len(left & right) / len(both)


def same_letters(left: str, right: str) -> bool:
    """Whether two words use the same letters equally often."""
    counts = {}
    for char in left:
        counts[char] = counts.get(char, 0) + 1
    for char in right:
        if counts.get(char, 0) == 0:
            return False
        counts[char] -= 1
    return len(left) == len(right)


def group_anagrams(words: list) -> list:
    """Lists of words with the same letters, at least two each."""
    groups = {}
    for word in words:
        key = "".join(sorted(word.lower()))
        groups.setdefault(key, []).append(word)
    return [group for group in groups.values() if len(group) > 1]


def shipping_cost(weight: int, express: bool) -> int:
    """Base price of 5, 2 per unit over 3, doubled for express."""
    cost = 5
    if weight > 3:
        cost += (weight - 3) * 2
    if express:
        cost *= 2
    return cost


def apply_coupon(total: int, coupons: dict, code: str) -> int:
    """Total after a coupon in percent, never below zero."""
    percent = coupons.get(code.strip().upper(), 0)
    if percent <= 0:
        return total
    return max(0, total - total * percent // 100)


def best_offer(offers: list, limit: int):
    """Cheapest supplier with at least `limit` units, or None."""
    best = None
    low = 0
    for name, price, units in offers:
        if units < limit:
            continue
        if best is None or price < low:
            best = name
            low = price
    return best


def income_tax(income: int, steps: list) -> float:
    """Tax over steps of (upper limit, rate in percent)."""
    tax = 0
    start = 0
    for end, rate in steps:
        if income <= start:
            break
        tax += (min(income, end) - start) * rate
        start = end
    return tax / 100


def make_change(amount: int, coins: list) -> dict:
    """Count of each coin, the largest coins first."""
    result = {}
    for coin in sorted(coins, reverse=True):
        count = amount // coin
        if count > 0:
            result[coin] = count
            amount -= count * coin
    return result


def late_fee(days: int, rate: int, limit: int) -> int:
    """Fee for days beyond a week, capped at the limit."""
    if days <= 7:
        return 0
    fee = (days - 7) * rate
    return fee if fee < limit else limit


def overdue_invoices(invoices: list, today: int) -> list:
    """Numbers of unpaid invoices past their due day, oldest first."""
    late = []
    for invoice in invoices:
        if not invoice["paid"] and invoice["due"] < today:
            late.append((invoice["due"], invoice["number"]))
    late.sort()
    return [number for due, number in late]


def balance_by_account(transfers: list) -> dict:
    """Balances after transfers of (source, target, amount)."""
    balance = {}
    for source, target, amount in transfers:
        if source == target:
            continue
        balance[source] = balance.get(source, 0) - amount
        balance[target] = balance.get(target, 0) + amount
    return balance


def withdraw_all(accounts: dict, fee: int) -> int:
    """Charge a fee to every account that can pay; return the sum."""
    total = 0
    for name in accounts:
        if accounts[name] >= fee:
            accounts[name] -= fee
            total += fee
    return total


def total_by_month(entries: list) -> list:
    """Twelve totals from pairs of (month, amount)."""
    totals = [0] * 12
    for month, amount in entries:
        if not 1 <= month <= 12:
            raise ValueError("no such month")
        totals[month - 1] += amount
    return totals


def average_by_key(pairs: list) -> dict:
    """Average of the values that share a key."""
    totals = {}
    counts = {}
    for key, value in pairs:
        totals[key] = totals.get(key, 0) + value
        counts[key] = counts.get(key, 0) + 1
    return {key: totals[key] / counts[key] for key in totals}


def range_by_key(pairs: list) -> dict:
    """Lowest and highest value of every key."""
    result = {}
    for key, value in pairs:
        if key in result:
            low, high = result[key]
            result[key] = (min(low, value), max(high, value))
        else:
            result[key] = (value, value)
    return result


def percent_shares(counts: dict) -> dict:
    """Share of each key in whole percent, rounded down."""
    total = sum(counts.values())
    if total == 0:
        return {key: 0 for key in counts}
    result = {}
    for key, count in counts.items():
        result[key] = count * 100 // total
    return result


def running_counts(values: list) -> list:
    """For each value, how often it occurred before."""
    counts = {}
    result = []
    for value in values:
        count = counts.get(value, 0)
        result.append(count)
        counts[value] = count + 1
    return result


def assign_ids(names: list, start: int = 1) -> dict:
    """Give each new name the next number."""
    ids = {}
    current = start
    for name in names:
        if name in ids:
            continue
        ids[name] = current
        current += 1
    return ids


def follow_links(links: dict, start: str, limit: int) -> list:
    """Names reached from start, until a dead end, loop or limit."""
    path = [start]
    while len(path) < limit:
        name = links.get(path[-1])
        if name is None or name in path:
            break
        path.append(name)
    return path


def count_reports(managers: dict, boss: str) -> int:
    """People below a boss, from a dictionary of person to manager."""
    count = 0
    for person in managers:
        current = managers[person]
        while current is not None and current != boss:
            current = managers.get(current)
        if current is not None:
            count += 1
    return count


def friends_of_friends(friends: dict, name: str) -> set:
    """People two steps away, without the direct friends."""
    direct = friends.get(name, set())
    result = set()
    for friend in direct:
        for other in friends.get(friend, set()):
            if other != name and other not in direct:
                result.add(other)
    return result


def add_both_ways(pairs: list) -> dict:
    """Neighbours of each item, from pairs that go both ways."""
    result = {}
    for left, right in pairs:
        result.setdefault(left, set()).add(right)
        result.setdefault(right, set()).add(left)
    return result


def ready_tasks(needs: dict, done: set) -> list:
    """Open tasks whose needs are all done, sorted."""
    ready = []
    for task, before in needs.items():
        if task in done:
            continue
        if all(name in done for name in before):
            ready.append(task)
    return sorted(ready)


def task_order(needs: dict) -> list:
    """Tasks after everything they need; raise on a cycle."""
    order = []
    while len(order) < len(needs):
        size = len(order)
        for task in sorted(needs):
            if task not in order and set(needs[task]) <= set(order):
                order.append(task)
        if len(order) == size:
            raise ValueError("cycle")
    return order


def seat_guests(guests: list, tables: int, size: int) -> dict:
    """Fill tables in order; guests without a seat get table 0."""
    seats = {}
    for index, guest in enumerate(guests):
        table = index // size + 1
        if table > tables:
            table = 0
        seats[guest] = table
    return seats


def deal_round(items: list, names: list) -> dict:
    """Hand out items one by one, round and round."""
    hands = {name: [] for name in names}
    if not names:
        return hands
    for index, item in enumerate(items):
        name = names[index % len(names)]
        hands[name].append(item)
    return hands


def apply_moves(stock: dict, moves: list) -> dict:
    """New stock after moves of ("in" or "out", name, count)."""
    result = dict(stock)
    for kind, name, count in moves:
        if kind == "in":
            result[name] = result.get(name, 0) + count
        elif kind == "out":
            result[name] = max(0, result.get(name, 0) - count)
        else:
            raise ValueError("unknown move")
    return result


def stock_value(stock: dict, prices: dict) -> int:
    """Worth of all items that have a price."""
    total = 0
    for name, count in stock.items():
        if name in prices and count > 0:
            total += count * prices[name]
    return total


def oldest_first(batches: list, needed: int) -> list:
    """Take from batches of (day, count), oldest first."""
    taken = []
    for day, count in sorted(batches):
        if needed == 0:
            break
        part = min(count, needed)
        taken.append((day, part))
        needed -= part
    return taken


def drop_expired(items: dict, today: int) -> list:
    """Delete expired entries in place and return their names."""
    expired = []
    for name in list(items):
        if items[name] < today:
            del items[name]
            expired.append(name)
    return expired


def add_tag(tags: dict, name: str, new: list = None) -> dict:
    """Add tags to a name, in place, without repeats."""
    if new is None:
        new = ["other"]
    current = tags.setdefault(name, [])
    for tag in new:
        if tag not in current:
            current.append(tag)
    return tags


def pass_list(scores: dict, limit: int = 50) -> list:
    """Names that passed, best score first and then by name."""
    passed = []
    for name, score in scores.items():
        if score >= limit:
            passed.append(name)
    passed.sort(key=lambda name: (-scores[name], name))
    return passed


def rank_scores(scores: dict) -> dict:
    """Rank of each name; equal scores share a rank."""
    ranks = {}
    for name, score in scores.items():
        higher = 0
        for other in scores.values():
            if other > score:
                higher += 1
        ranks[name] = higher + 1
    return ranks


def league_table(games: list) -> dict:
    """Points per team: three for a win, one for a draw."""
    points = {}
    for home, away, left, right in games:
        points.setdefault(home, 0)
        points.setdefault(away, 0)
        if left == right:
            points[home] += 1
            points[away] += 1
        else:
            points[home if left > right else away] += 3
    return points


def attendance_gaps(days: dict, last: int) -> dict:
    """Days from 1 to last on which each name was absent."""
    gaps = {}
    for name, present in days.items():
        absent = []
        for day in range(1, last + 1):
            if day not in present:
                absent.append(day)
        gaps[name] = absent
    return gaps


def count_pairs_bought(orders: list) -> dict:
    """How often two items occur in the same order."""
    counts = {}
    for order in orders:
        items = sorted(set(order))
        for index, left in enumerate(items):
            for right in items[index + 1:]:
                pair = (left, right)
                counts[pair] = counts.get(pair, 0) + 1
    return counts


def cross_count(rows: list) -> dict:
    """Nested counts from pairs: first part, then second part."""
    table = {}
    for row, column in rows:
        line = table.setdefault(row, {})
        if column not in line:
            line[column] = 0
        line[column] += 1
    return table


def swap_values(mapping: dict, left: str, right: str) -> None:
    """Swap the values of two keys in place."""
    if left not in mapping or right not in mapping:
        raise ValueError("missing key")
    mapping[left], mapping[right] = mapping[right], mapping[left]


def fill_defaults(record: dict, defaults: dict) -> dict:
    """Record with missing or empty fields filled in."""
    result = {}
    for key in defaults:
        value = record.get(key)
        if value is None or value == "":
            value = defaults[key]
        result[key] = value
    return result


def check_order(order: dict) -> list:
    """Problems of an order with a name, a count and a price."""
    errors = []
    if not order.get("name", "").strip():
        errors.append("name")
    if order.get("count", 0) < 1:
        errors.append("count")
    if order.get("price", -1) < 0:
        errors.append("price")
    return errors


def replace_names(text: str, names: dict) -> str:
    """Replace {name} parts of a text by their values."""
    for key, value in names.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def loyalty_points(orders: list, member: bool) -> int:
    """One point per full 10 spent; members get double above 50."""
    points = 0
    for amount in orders:
        step = amount // 10
        if member and amount > 50:
            step = step * 2
        points += step
    return points


def evict_oldest(cache: dict, key: str, value, limit: int) -> None:
    """Store a value as newest and drop the oldest beyond the limit."""
    if key in cache:
        del cache[key]
    cache[key] = value
    while len(cache) > limit:
        oldest = next(iter(cache))
        del cache[oldest]
