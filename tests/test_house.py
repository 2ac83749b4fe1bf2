"""The house stays in order: short files, short functions, few files in a room (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import securedfl

SOURCE = Path(securedfl.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted({path.parent for path in FILES})

MOST_LINES, MOST_IN_A_FUNCTION, MOST_FILES = 350, 60, 12
ONE_FILE_PER_COMMAND = "cli"
SAME_IN_EVERY_FRAMEWORK = {"FederatedCallback"}


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield functions with how many lines they have besides their docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            words = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) is not None else 0
            yield node.name, node.end_lineno - node.lineno + 1 - words


def test_lines_of_a_function_are_counted_without_its_docstring():
    text = 'def one():\n    """Two\n    lines."""\n    return 1\n\n\nasync def two(\n    a,\n):\n    return a\n'
    assert list(functions(text)) == [("one", 2), ("two", 4)]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    count = len(text.splitlines())
    assert count <= MOST_LINES, f"{count} lines: look for two things in it"
    long = {function: lines for function, lines in functions(text) if lines > MOST_IN_A_FUNCTION}
    assert not long, f"split {long}"


@pytest.mark.parametrize("room", ROOMS, ids=name)
def test_rooms_have_few_files(room):
    if name(room) == ONE_FILE_PER_COMMAND:
        return
    files = sorted(path.name for path in room.glob("*.py"))
    assert len(files) <= MOST_FILES, f"{len(files)} files at one level; make a chapter of some of them: {files}"


def test_one_word_has_one_meaning():
    """Two classes of one name are two meanings of one word, or one meaning in two places."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name(path))
    assert {word for word, found in places.items() if len(found) > 1} == SAME_IN_EVERY_FRAMEWORK


def test_no_console_turns_the_name_of_an_app_into_a_picture():
    """Rich takes the end of ``app:train:`` for one, unless it is told not to."""
    lines = [line for path in (SOURCE / "cli").glob("*.py") for line in path.read_text().splitlines()]
    made = [line for line in lines if re.search(r"\bConsole\(", line)]
    assert made
    assert all("emoji=False" in line for line in made)
