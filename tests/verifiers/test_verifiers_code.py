"""Which program a response has."""

from __future__ import annotations

import pytest

from pcl_reasoner.verifiers.code import program_in


@pytest.mark.parametrize(
    ("answered", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\n", "x = 1\n"),
        ("text\n```py\nx = 1\n```\nmore", "x = 1\n"),
        ("```Python 3\nx = 1\n```", "x = 1\n"),
        ("```python title=a.py\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\n```bash\nls\n```", None),
        ("```cpp\nint x;\n```", None),
        ("```python\nx = 1\n", None),
        ("```python\nx = 1\n```\n```python\ny", "x = 1\n"),
        ("~~~python\nx = '```'\n~~~", "x = '```'\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("  ```python\n  x = 1\n  ```", "x = 1\n"),
        ("1. So:\n\n   ```python\n   if x:\n       y = 1\n\n   ```", "if x:\n    y = 1\n\n"),
        ("- ```python\n  if x:\n      y = 1\n  ```", "if x:\n    y = 1\n"),
        ("2) * ```python\n     x = 1\n     ```\nmore", "x = 1\n"),
        ("\t```python\n\tif x:\n\t\ty = 1\n\t```", "if x:\n    y = 1\n"),
        ("\t```python\n    if x:\n        y = 1\n    ```", "if x:\n    y = 1\n"),
        # What is indented less than its fence keeps its text.
        ("   ```python\n  x = 1\ny = 2\n   ```", "x = 1\ny = 2\n"),
        # Without an indented fence nothing is moved, and tabs stay.
        ("```python\nif x:\n\ty = '\t'\n```", "if x:\n\ty = '\t'\n"),
        # A list in the program's text is no fence.
        ("```python\ns = '''\n- ```\n'''\n```", "s = '''\n- ```\n'''\n"),
        ("```python\nx = 1\n````", "x = 1\n"),
        ("```python\nx = 1\n``` end\n```", "x = 1\n``` end\n"),
        ("```python\n \n```", None),
        ("`x = 1`", None),
        ("x = 1", None),
        ("", None),
    ],
)
def test_the_last_closed_block_counts(answered: str, program: str | None) -> None:
    assert program_in(answered, "python") == program


def test_a_block_of_the_tests_language() -> None:
    assert program_in("```c++\nint x;\n```", "cpp") == "int x;\n"
    assert program_in("```\nint x;\n```", "cpp") == "int x;\n"
    assert program_in("```python\nx = 1\n```", "cpp") is None


def test_a_megabyte_of_open_fences_is_read_once() -> None:
    # With a regular expression that tries each fence anew this would take hours.
    assert program_in("~~~python\nx\n" + "```x\n" * 200_000, "python") is None
