"""What the site takes from the source, so that it cannot drift: commands, settings, errors, the API, the contents.

A page says ``<!-- generated: commands -->`` where it wants it. `python docs/generated.py commands` prints it. Lines
below the mark that begin with ``>`` are for whoever reads the page in a clone; they give way, too.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import securedfl
from securedfl.cli import app as command_line
from securedfl.errors import MissingDependencyError, SecuredFLError
from securedfl.federation.config import TrainConfig
from securedfl.federation.peers.config import DeadlineConfig, FederationConfig, PeerConfig, RosterEntry
from securedfl.federation.settings import PrivacySettings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MARK = re.compile(r"<!-- generated: ([a-z]+) ?(\S*) -->((?:\n>.*)*)")

SECTIONS = {
    "Start": ["start"],
    "Concepts": ["concepts/one-round", "concepts/designs", "concepts/protocols", "concepts/shares", "concepts/words"],
    "Guides": [
        "guides/own-models",
        "guides/data",
        "guides/cluster",
        "guides/frameworks",
        "guides/network",
        "guides/watching",
        "guides/containers",
        "guides/operations",
        "guides/privacy",
        "guides/differential-privacy",
    ],
    "Notebooks": [
        "notebooks/first-federation",
        "notebooks/own-model",
        "notebooks/attack-and-audit",
    ],
    "Mathematics": ["mathematics/designs", "mathematics/protocols", "mathematics/shares", "mathematics/privacy"],
    "Reference": [
        "reference/api",
        "reference/commands",
        "reference/configuration",
        "reference/settings",
        "reference/files",
        "reference/errors",
    ],
    "Evidence": ["evidence/evaluation", "evidence/comparison", "evidence/scale", "evidence/reliability"],
    "Project": ["project/contributing", "project/changelog", "project/security"],
}
"""The pages of the site, in their order. A page that is missing here is an error of the build."""

OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changelog",
    "SECURITY.md": "project/security",
    "README.md": "index",
}
"""Pages of the repository that stand outside of this folder, and their place in the site."""


def contents() -> str:
    """Return the tables of contents, one for each section."""
    trees = (
        f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```"
        for title, pages in SECTIONS.items()
    )
    return "\n\n".join(trees)


def results() -> str:
    """Return the table of contents of the results behind a page."""
    return "```{toctree}\n:hidden:\n:glob:\n\n../results/*\n../results/*/*\n```"


def repository(name: str) -> str:
    """Return a page that stands outside of this folder, with links that fit its place in the site."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](../\1)", text)
    return re.sub(r"\]\(((?!https:|\.\./|#)[^)]+)\)", r"](../../\1)", text)


def commands() -> str:
    """Return all commands with their arguments and options, from typer."""
    root = typer.main.get_command(command_line)
    return "\n\n".join(_command("securedfl", root, 2))


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield re.sub(r"docs/([\w/-]+\.md)", r"[\1](../\1)", inspect.cleandoc(command.help or ""))
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    if name != "securedfl train":
        # commands that train have the options of training, which stand there
        rest = [one for one in shown if one.name not in TrainConfig.model_fields]
        if len(shown) - len(rest) > 20:
            shown = rest
            yield "And the options of training: those of [securedfl train](#securedfl-train)."
    for kind in ("argument", "option"):
        of_kind = [one for one in shown if one.param_type_name == kind]
        if of_kind:
            yield f"| {kind} | default | |\n|---|---|---|\n" + "\n".join(_parameter(one) for one in of_kind)
    for child, sub in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {child}", sub, min(level + 1, 4))


def _parameter(one: Any) -> str:
    names = [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else [one.metavar or one.name.upper()]
    default = "needed" if one.required else getattr(one, "show_default", None)
    if not isinstance(default, str):
        default = "" if one.default in (None, False, ()) or callable(one.default) else _value(one.default)
    return f"| {_code(names)} | {_cell(default)} | {_cell(getattr(one, 'help', '') or '')} |"


def settings() -> str:
    """Return all settings with type and default, from pydantic."""
    parts = {
        "Training: `securedfl train`, and `[train]` in federation.toml": TrainConfig,
        "Differential privacy: `[privacy]`": PrivacySettings,
        "The federation: `federation.toml`": FederationConfig,
        "One site in the roster: `[[peers]]` in federation.toml": RosterEntry,
        "Deadlines: `[deadlines]` in federation.toml": DeadlineConfig,
        "A site's own file: `peer.toml`": PeerConfig,
    }
    return "\n\n".join(f"## {title}\n\n{_fields(model)}" for title, model in parts.items())


def _fields(model: type[BaseModel]) -> str:
    kinds = model.model_json_schema().get("properties", {})
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        default = "needed" if field.is_required() else _default(field.get_default(call_default_factory=True))
        text = _cell(field.description or "")
        rows.append(f"| `{name}` | {_kind(kinds.get(name, {}))} | {default} | {text} |")
    return "\n".join(rows)


def _kind(schema: dict[str, Any]) -> str:
    """Return a JSON schema's type in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    names = {"integer": "whole number", "array": "list", "object": "table", "boolean": "true or false"}
    kind = names.get(schema.get("type", ""), schema.get("type", "table" if "$ref" in schema else ""))
    limits = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    return ", ".join([kind, *(f"{words} {schema[key]:g}" for key, words in limits.items() if key in schema)])


def _default(value: Any) -> str:
    if value is None or value is PydanticUndefined or isinstance(value, BaseModel):
        return "none"
    return _value(value)


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        value = ",".join(map(str, value))
    return _code([str(getattr(value, "value", value))]) if str(value) else "none"


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`".replace("|", "\\|") for name in names)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def errors() -> str:
    """Return all errors that the package raises on purpose, with their exit codes."""
    for module in pkgutil.walk_packages(securedfl.__path__, "securedfl."):
        if "adapters" not in module.name and not module.name.endswith("__main__"):
            with suppress(MissingDependencyError, ModuleNotFoundError):
                importlib.import_module(module.name)
    found: dict[str, type[SecuredFLError]] = {}
    waiting: list[type[SecuredFLError]] = [SecuredFLError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__.startswith("securedfl.") and not kind.__name__.startswith("_"):
            found[kind.__name__] = kind
        waiting.extend(kind.__subclasses__())
    rows = sorted(found.values(), key=lambda kind: (kind.exit_code, kind.__name__))
    head = "| exit code | error | is a | |\n|---|---|---|---|\n"
    return head + "\n".join(
        f"| {kind.exit_code} | `{kind.__module__}.{kind.__name__}` | `{kind.__bases__[0].__name__}` | "
        f"{_cell(inspect.cleandoc(kind.__doc__ or '').splitlines()[0])} |"
        for kind in rows
    )


def files() -> str:
    """Return the table of a run folder's files, from the docstring of the room that reads and writes them."""
    from securedfl.federation import run_folder

    return f"```{{eval-rst}}\n{inspect.cleandoc(run_folder.__doc__ or '')}\n```"


def api() -> str:
    """Return the public face, from its docstrings."""
    blocks = []
    for name in securedfl.__all__:
        thing = getattr(securedfl, name)
        if (isinstance(thing, type) and issubclass(thing, Exception)) or name == "__version__":
            continue
        members = "\n   :members:" if isinstance(thing, type) and not issubclass(thing, BaseModel) else ""
        kind = "class" if isinstance(thing, type) else "function"
        blocks.append(f"## {name}\n\n```{{eval-rst}}\n.. auto{kind}:: securedfl.{name}{members}\n```")
    return "\n\n".join(blocks)


GENERATED: dict[str, Callable[..., str]] = {
    one.__name__: one for one in (api, commands, contents, errors, files, repository, results, settings)
}


def fill(text: str) -> str:
    """Return a page with its marks replaced by what is generated."""
    return MARK.sub(lambda mark: GENERATED[mark[1]](*([mark[2]] if mark[2] else [])), text)


def inside(text: str, page: str) -> str:
    """Return a page whose links to pages outside of this folder lead to their place in the site."""
    up = "../" * page.count("/")

    def link(found: re.Match[str]) -> str:
        where, _, anchor = found[2].partition("#")
        target = (DOCS / page).parent.joinpath(where).resolve()
        if target.parent == ROOT and target.name in OUTSIDE:
            return f"[{found[1]}]({up}{OUTSIDE[target.name]}.md{'#' + anchor if anchor else ''})"
        # a site shows no folders
        return found[1] if target.is_dir() else found[0]

    return re.sub(r"\[([^\]]*)\]\(((?!https:|#)[^)\s]+)\)", link, text)


def setup(sphinx: Any) -> dict[str, bool]:
    """Fill pages as Sphinx reads them."""

    def read(_app: Any, page: str, source: list[str]) -> None:
        if not (DOCS / f"{page}.ipynb").exists():
            source[0] = inside(fill(source[0]), page)

    sphinx.connect("source-read", read)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    print(GENERATED[sys.argv[1]](*sys.argv[2:]))  # noqa: T201
