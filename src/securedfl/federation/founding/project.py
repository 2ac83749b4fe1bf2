"""A new project: an app that runs, a test of it, a federation of three sites on this machine, and a README."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Literal

from securedfl.errors import ConfigError
from securedfl.federation.founding.files import FEDERATION, NewSite, free_ports, write_federation
from securedfl.storage import make_folder, write_text

Framework = Literal["pytorch", "huggingface", "lightning"]
NEEDS = {
    "pytorch": "pip install 'securedfl[learn]' pytest",
    "huggingface": "pip install 'securedfl[learn]' transformers pytest",
    "lightning": "pip install 'securedfl[learn]' lightning pytest",
}
"""What installs the packages that a project's app imports."""

SITES = ("site-a", "site-b", "site-c")
ROUNDS = 5
ADVICE = "choose another name"


def new_project(folder: Path, framework: Framework) -> list[Path]:
    """Write a project into a new folder; return its files."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", folder.name):
        raise ConfigError(f"the name {folder.name!r} must have letters, digits, dashes and underscores only")
    if folder.exists():
        raise ConfigError(f"{folder} is there already; {ADVICE}")
    make_folder(folder, ADVICE)
    written = {
        "app.py": _template(f"{framework}.py"),
        "test_app.py": _template("test_app.py"),
        "README.md": _template("README.md"),
        ".gitignore": "keys/\nruns/\n__pycache__/\n",
    }
    for name, text in written.items():
        write_text(folder / name, text.replace("PROJECT", folder.name).replace("NEEDS", NEEDS[framework]), ADVICE)
    begun = [
        NewSite(name=name, address=f"127.0.0.1:{port}", own={"data": {}})
        for name, port in zip(SITES, free_ports(len(SITES)), strict=True)
    ]
    shared = {"name": folder.name.lower(), "entry": "app:make", "train": {"rounds": ROUNDS}}
    sites = write_federation(folder, begun, shared, issue=True).files
    return [*(folder / name for name in written), folder / FEDERATION, *sites]


def _template(name: str) -> str:
    return files(__package__).joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")
