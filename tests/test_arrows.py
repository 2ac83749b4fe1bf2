"""The rooms and their arrows, computed from the source: who imports whom, late imports included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import securedfl

SOURCE = Path(securedfl.__file__).parent
BELOW = {"containers", "arrays", "errors", "parameters", "weights", "plugins", "states", "storage", "sureness", "svg"}
ARROWS = {
    "__main__": {"cli"},
    "designs": set(),
    "protocols": {"designs"},
    "privacy": {"designs", "protocols"},
    "simulation": {"designs", "protocols", "privacy"},
    "network": {"designs", "protocols", "privacy"},
    "attacks": {"designs", "protocols", "privacy", "simulation"},
    "learning": set(),
    "federation": {"designs", "protocols", "privacy", "simulation", "network", "learning"},
    "adapters": {"network", "federation"},
    "reporting": {"designs", "protocols", "privacy", "federation"},
    "experiments": {"designs", "protocols", "privacy", "simulation", "learning", "federation", "reporting"},
    "cli": {
        *("designs", "protocols", "privacy", "simulation", "network", "attacks"),
        *("learning", "federation", "reporting", "experiments"),
    },
}
"""What each room may import besides itself and the modules below all rooms (CONTRIBUTING.md)."""


def modules() -> dict[str, Path]:
    """Return all modules by their dotted names."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("securedfl", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: set[str]) -> set[str]:
    """Return the modules of this package that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & known) or {str(node.module)}
            found |= {str(node.module)} if inner - known else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            # an import by name, as the façade's
            found.add(node.value)
    return found & known


KNOWN = modules()
GRAPH = {name: imports(path, set(KNOWN)) - {name} for name, path in KNOWN.items()}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_every_room_is_named_here():
    assert {room(name) for name in KNOWN} == {"", *BELOW, *ARROWS}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_arrows_point_one_way(name):
    here = room(name)
    if not here:
        return
    allowed = {here} | BELOW | ARROWS.get(here, set())
    if here in BELOW:
        allowed = BELOW
    wrong = sorted(other for other in GRAPH[name] if room(other) not in allowed)
    assert not wrong, f"{name} must not import {', '.join(wrong)}"


def test_no_module_imports_itself_in_a_circle():
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' -> '.join((*path[path.index(name) :], name))}"
        if name in done:
            return
        for other in sorted(GRAPH[name]):
            # a package's own door is not a circle: it is opened before its rooms are entered
            if not name.startswith(other + "."):
                visit(other, (*path, name))
        done.add(name)

    for name in sorted(GRAPH):
        visit(name, ())
