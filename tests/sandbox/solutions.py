"""Functions with the verdict of each: 5 right and 5 wrong bodies of 10 functions."""

from __future__ import annotations

from typing import Any

TASKS: dict[str, tuple[str, list[list[Any]], list[str], list[str]]] = {
    "double": (
        "x",
        [[3], [0], [-7]],
        [
            "return 2 * x",
            "return x + x",
            "return x << 1",
            "return sum([x, x])",
            "for _ in range(1):\n    y = x\nreturn y - -x",
        ],
        ["return x", "return x ** 2 - x", "return abs(2 * x)", "print(2 * x)", "return str(2 * x)"],
    ),
    "total": (
        "xs",
        [[[1, 2, 3]], [[]], [[-4, 4, 10]]],
        [
            "return sum(xs)",
            "t = 0\nfor x in xs:\n    t += x\nreturn t",
            "import functools\nreturn functools.reduce(lambda a, b: a + b, xs, 0)",
            "return xs[0] + total(xs[1:]) if xs else 0",
            "t = 0\nwhile xs:\n    t += xs.pop()\nreturn t",
        ],
        [
            "return sum(xs[1:])",
            "return max(xs)",
            "t = 0\nfor x in xs:\n    t = x\nreturn t",
            "return xs[0] + xs[1] + xs[2]",
            "return sum(abs(x) for x in xs)",
        ],
    ),
    "factorial": (
        "n",
        [[0], [5], [20], [30]],
        [
            "import math\nreturn math.factorial(n)",
            "return 1 if n < 2 else n * factorial(n - 1)",
            "p = 1\nfor k in range(2, n + 1):\n    p *= k\nreturn p",
            "import functools, operator\nreturn functools.reduce(operator.mul, range(1, n + 1), 1)",
            "p, k = 1, n\nwhile k > 1:\n    p, k = p * k, k - 1\nreturn p",
        ],
        [
            "p = 1\nfor k in range(2, n):\n    p *= k\nreturn p",
            "return n * factorial(n - 1)",
            "import math\nreturn int(float(math.factorial(n)) * 1.0000001)",
            "return sum(range(n + 1))",
            "import math\nreturn math.gamma(n)",
        ],
    ),
    "is_prime": (
        "n",
        [[1], [2], [91], [97], [7919]],
        [
            "return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))",
            "if n < 2:\n    return False\nd = 2\nwhile d * d <= n:\n    if n % d == 0:\n"
            "        return False\n    d += 1\nreturn True",
            "return len([d for d in range(1, n + 1) if n % d == 0]) == 2",
            "import re\nreturn not re.match(r'^1?$|^(11+?)\\1+$', '1' * n)",
            "return n in (2, 3) or (n > 3 and n % 2 == 1 and all(n % d for d in range(3, n, 2)))",
        ],
        [
            "return all(n % d for d in range(2, n))",
            "return n % 2 == 1",
            "return n > 1 and all(n % d for d in (2, 3, 5))",
            "return False",
            "return n > 1 and all(n % d for d in range(2, int(n ** 0.5)))  and n != 97",
        ],
    ),
    "backwards": (
        "s",
        [["abc"], [""], ["naïve 数学"]],
        [
            "return s[::-1]",
            "return ''.join(reversed(s))",
            "r = ''\nfor c in s:\n    r = c + r\nreturn r",
            "return s[-1] + backwards(s[:-1]) if s else s",
            "x = list(s)\nx.reverse()\nreturn ''.join(x)",
        ],
        [
            "return s",
            "return s[::-1].lower().encode('ascii', 'ignore').decode()",
            "return list(reversed(s))",
            "return s[-2::-1]",
            "return sorted(s, reverse=True)",
        ],
    ),
    "fibonacci": (
        "n",
        [[0], [1], [10], [90]],
        [
            "a, b = 0, 1\nfor _ in range(n):\n    a, b = b, a + b\nreturn a",
            "from functools import lru_cache\n@lru_cache(None)\ndef f(k):\n"
            "    return k if k < 2 else f(k - 1) + f(k - 2)\nreturn f(n)",
            "x = [0, 1]\nwhile len(x) <= n:\n    x.append(x[-1] + x[-2])\nreturn x[n]",
            "def power(k):\n    if k == 0:\n        return 0, 1\n    a, b = power(k // 2)\n"
            "    c, d = a * (2 * b - a), a * a + b * b\n"
            "    return (d, c + d) if k % 2 else (c, d)\n"
            "return power(n)[0]",
            "m = {0: 0, 1: 1}\nfor k in range(2, n + 1):\n    m[k] = m[k-1] + m[k-2]\nreturn m[n]",
        ],
        [
            "a, b = 1, 1\nfor _ in range(n):\n    a, b = b, a + b\nreturn a",
            "r = 5 ** 0.5\nreturn int(((1 + r) / 2) ** n / r + 0.5)",
            "return n if n < 2 else 2 ** (n - 1)",
            "x = [0, 1]\nreturn x[n]",
            "while n:\n    pass\nreturn 0",
        ],
    ),
    "common": (
        "a, b",
        [[12, 18], [7, 13], [0, 5], [100, 75]],
        [
            "import math\nreturn math.gcd(a, b)",
            "while b:\n    a, b = b, a % b\nreturn a",
            "return a if b == 0 else common(b, a % b)",
            "return max(d for d in range(1, max(a, b) + 1) if a % d == b % d == 0)",
            "while a and b:\n    a, b = max(a, b) - min(a, b), min(a, b)\nreturn a + b",
        ],
        [
            "return min(a, b)",
            "return a * b",
            "return max(d for d in range(2, min(a, b) + 1) if a % d == b % d == 0)",
            "import math\nreturn math.lcm(a, b)",
            "return 1",
        ],
    ),
    "vowels": (
        "s",
        [["education"], ["xyz"], ["AEIOU aeiou"]],
        [
            "return sum(c in 'aeiouAEIOU' for c in s)",
            "return len([c for c in s.lower() if c in 'aeiou'])",
            "import re\nreturn len(re.findall('[aeiou]', s, re.I))",
            "return sum(s.lower().count(v) for v in 'aeiou')",
            "from collections import Counter\nc = Counter(s.lower())\n"
            "return sum(c[v] for v in 'aeiou')",
        ],
        [
            "return sum(c in 'aeiou' for c in s)",
            "return len(s) // 2",
            "return len(set(s.lower()) & set('aeiou')) ",
            "return sum(c in 'aeiouyAEIOUY' for c in s)",
            "return [c for c in s if c in 'aeiou']",
        ],
    ),
    "distinct": (
        "xs",
        [[[3, 1, 3, 2]], [[]], [[10, 9, 100, 9]]],
        [
            "return sorted(set(xs))",
            "xs = list(dict.fromkeys(xs))\nxs.sort()\nreturn xs",
            "r = []\nfor x in sorted(xs):\n    r += [x] if not r or r[-1] != x else []\nreturn r",
            "import heapq\nh = list(set(xs))\nheapq.heapify(h)\n"
            "return [heapq.heappop(h) for _ in range(len(h))]",
            "return tuple(sorted({x: 0 for x in xs}))",
        ],
        [
            "return sorted(xs)",
            "return list(dict.fromkeys(xs))",
            "return sorted(set(xs), key=str)",
            "return sorted(set(xs), reverse=True)",
            "return set(xs)",
        ],
    ),
    "mean": (
        "xs",
        [[[1, 2]], [[0.5, 0.25, 0.75, 1.5]], [[5]]],
        [
            "return sum(xs) / len(xs)",
            "import statistics\nreturn float(statistics.mean(xs))",
            "import math\nreturn math.fsum(xs) / len(xs)",
            "m = 0.0\nfor k, x in enumerate(xs, 1):\n    m += (x - m) / k\nreturn m",
            "return sum(x / len(xs) for x in xs)",
        ],
        [
            "return sum(xs) // len(xs)",
            "return sorted(xs)[len(xs) // 2]",
            "return round(sum(xs) / len(xs), 1) + 0.1",
            "return sum(xs) / (len(xs) + 1)",
            "return float('inf')",
        ],
    ),
}
"""Name -> parameters, arguments of each test, right bodies, wrong bodies."""


def solution(name: str, body: str) -> str:
    """The function as code."""
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"def {name}({TASKS[name][0]}):\n{lines}\n"


def expected(name: str) -> list[Any]:
    """The value of each test, by the first right body."""
    _, calls, right, _ = TASKS[name]
    names: dict[str, Any] = {}
    exec(solution(name, right[0]), names)
    import copy

    return [names[name](*copy.deepcopy(args)) for args in calls]
