"""The package as users get it: a wheel that works without the repository, and a light import."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import securedfl

ROOT = Path(__file__).parents[1]


def python(*arguments, cwd, **environment):
    result = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of a package that was built from a copy of the repository and unpacked far from it."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(copy)], check=True, timeout=60)
    python("-m", "build", "--no-isolation", "--wheel", "--outdir", "dist", cwd=copy)
    (wheel,) = (copy / "dist").glob("*.whl")
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    python(*pip, "--target", str(folder / "site"), str(wheel), cwd=folder)
    subprocess.run(["rm", "-r", str(copy)], check=True, timeout=60)
    return folder / "site"


def test_the_wheel_works_without_the_repository(installed, tmp_path):
    run = ("-c", "from securedfl.cli import main; main()")
    where = python("-c", "import securedfl; print(securedfl.__file__)", cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(where.strip()).is_relative_to(installed)
    design = python(*run, "design", "32", "--group-size", "4", "--json", cwd=tmp_path, PYTHONPATH=str(installed))
    assert json.loads(design)["gap"] == 10
    options = ("--model", "linear", "--rounds", "1", "--methods", "secured", "--out", "run")
    python(*run, "train", *options, cwd=tmp_path, PYTHONPATH=str(installed))
    assert "SecureD-FL" in (tmp_path / "run" / "report.html").read_text()


def test_what_users_import_is_there_and_documented():
    for name in set(securedfl.__all__) - {"__version__"}:
        found, text = getattr(securedfl, name), getattr(securedfl, name).__doc__ or ""
        assert text.strip(), name
        if name == "SecuredFLError" or not name.endswith("Error"):
            assert "Examples\n" in text, name
            assert ">>> " in text, name
        if not isinstance(found, type):
            assert all(f"{section}\n" in text for section in ("Parameters", "Returns", "Raises")), name
        if not name.endswith("Error") and name != "TrainConfig":
            # its fields have descriptions, which are checked against docs/reference/configuration.md
            parameters = set(inspect.signature(found).parameters)
            documented = set(re.findall(r"\w+", " ".join(re.findall(r"^ {4,8}(\w+(?:, \*{0,2}\w+)*)$", text, re.M))))
            documented |= set(re.findall(r"^ {4}\*\*(\w+)$", text, re.M))
            assert parameters <= documented, (name, parameters - documented)
    with pytest.raises(AttributeError, match="no attribute 'avrage'"):
        _ = securedfl.avrage


def test_importing_the_package_is_light(tmp_path):
    heavy = {"torch", "matplotlib", "sklearn", "pyarrow", "jinja2"}
    code = f"import sys, securedfl; print(sorted({heavy} & set(sys.modules)))"
    assert python("-c", code, cwd=tmp_path).strip() == "[]"
