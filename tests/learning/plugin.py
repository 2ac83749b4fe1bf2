"""A distribution that adds data sets and models by entry points, made up in a folder on the path."""

import sys


def install(monkeypatch, folder, code, *, name="plugin", **groups):
    """Put a module with its entry points on the path; ``groups`` maps "datasets" or "models" to {name: attribute}."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in groups.items():
        lines += [f"[securedfl.{group}]", *(f"{key} = {name}:{value}" for key, value in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.py").write_text(code)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(folder))
