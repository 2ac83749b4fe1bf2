"""Every Python, sh and console block of README and docs is run, page by page, in the order in which it stands there.

A page has a folder of its own, in which its blocks follow each other, as a reader would type them. Marks above a block:

``<!-- skip: REASON -->``   it is not run here, and why: it needs what a test has not
``<!-- slow: REASON -->``   it is run by ``make test-docs`` only, and why

`make test` runs commands within this process, and trainings with one round. `make test-docs` runs everything as it
stands there, by a shell.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securedfl.cli import app

ROOT = Path(__file__).parents[1]
EVERYTHING = os.environ.get("SECUREDFL_DOCS") == "all"
RUN = ("python", "sh", "console")
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (skip|slow):((?:(?!-->).)*)-->\s*\Z", re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(securedfl|pip|make|docker|kubectl|python3?) ", re.MULTILINE)
# a plain wait forgets how what it waits for ended
WAIT, WAITED = re.compile(r"\bwait$", re.MULTILINE), "for job in $(jobs -p); do wait $job; done"
# result files are written by a command, and name the one that wrote them
PAGES = [
    str(path.relative_to(ROOT))
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if "results" not in path.parts
]


@dataclass(frozen=True)
class Block:
    """Something to run, where it stands, and what the mark above it says."""

    line: int
    language: str
    code: str
    mark: str
    reason: str
    section: int


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page, in their order."""
    found = []
    for match in BLOCK.finditer(text):
        mark = MARK.search(text[: match.start()])
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        word, reason = (mark[1], mark[2].strip()) if mark else ("", "")
        line = text.count("\n", 0, match.start()) + 1
        section = len(re.findall(r"^#+ ", BLOCK.sub("", text[: match.start()]), re.MULTILINE))
        found.append(Block(line, match["language"], code, word, reason, section))
    return found


def steps(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block, each with the output that is promised after it."""
    if block.language == "sh":
        return [(line, "") for line in block.code.replace("\\\n", " ").splitlines() if line.strip()]
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    assert not parts[0].strip(), "a console block begins with a command: $ ..."
    return [(command, promised) for command, _, promised in (part.partition("\n") for part in parts[1:])]


def said(text: str) -> str:
    """Return a text with all white space alike: lines are broken otherwise on another terminal."""
    return " ".join(text.split())


class Reader:
    """Somebody who follows a page in a folder of their own."""

    def __init__(self, page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page, self.folder, self.monkeypatch, self.section = page, folder, monkeypatch, 0
        monkeypatch.chdir(folder)
        (folder / "examples").symlink_to(ROOT / "examples")
        fill(folder)

    def follow(self, block: Block, capsys: pytest.CaptureFixture[str]) -> None:
        if block.section != self.section:
            # a section begins in the folder of the page again
            self.monkeypatch.chdir(self.folder)
        self.section = block.section
        if block.language == "python":
            self.python(block, capsys)
            return
        if EVERYTHING:
            self.shell(block)
            return
        for command, promised in steps(block):
            for part in shlex.join(shlex.split(command, comments=True)).split(" '&&' "):
                self.command(shlex.split(part), promised)

    def python(self, block: Block, capsys: pytest.CaptureFixture[str]) -> None:
        """Run it; what a print promises in a comment is compared. ``# NAME.py`` on top is a file of that name."""
        named = re.match(r"# (\w+\.py)\n", block.code)
        if named:
            Path(named[1]).write_text(block.code, encoding="utf-8")
        capsys.readouterr()
        exec(compile(block.code, f"{self.page}:{block.line}", "exec"), {"__name__": "page"})  # noqa: S102
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"^print\(.*  # (.+)$", block.code, re.MULTILINE)
        assert len(printed) == len(promised)
        for line, comment in zip(printed, promised, strict=True):
            assert line == comment or (comment.endswith(" ...") and line.startswith(comment[:-4]))

    def command(self, words: list[str], promised: str) -> None:
        """Run a command of ours in this process; others need a mark."""
        if words[0] == "cd":
            self.monkeypatch.chdir(words[1])
            return
        assert words[0] == "securedfl", f"{words[0]} is not run by tests: mark the block, with a reason"
        self.monkeypatch.syspath_prepend(str(Path.cwd()))
        forget(Path.cwd())
        result = CliRunner().invoke(app, small(words[1:]))
        forget(Path.cwd())
        self.judge(" ".join(words), result.exit_code, result.output, promised)

    def shell(self, block: Block) -> None:
        """Run a block as it stands there; the next one goes on in the folder in which it ended."""
        scripts = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        for command, promised in steps(block) if block.language == "console" else [(block.code, "")]:
            done = subprocess.run(
                ["bash", "-c", f"set -e\n{WAIT.sub(WAITED, command)}\npwd > '{self.folder}/.here'"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=900,
            )
            self.judge(command, done.returncode, done.stdout + done.stderr, promised)
            if done.returncode == 0:
                self.monkeypatch.chdir((self.folder / ".here").read_text().strip())

    def judge(self, command: str, exit_code: int, output: str, promised: str) -> None:
        wanted = said(promised)
        assert (exit_code != 0) == wanted.startswith("error:"), f"{command}\nended with {exit_code}:\n{output}"
        assert wanted in said(output), f"{command}\npromises:\n{promised}\nand says:\n{output}"


def small(words: list[str]) -> list[str]:
    """Return a command with one round and a small model, if it trains; a run that is resumed with more has two."""
    if words[0] != "train":
        return words
    if not {"--dataset", "--entry", "--resume", "--model"} & set(words) and not words[-1].endswith(".toml"):
        words = [*words, "--model", "linear"]
    rounds = "2" if "--resume" in words and "--rounds" in words else "1"
    if "--rounds" in words:
        at = words.index("--rounds") + 1
        return [*words[:at], rounds, *words[at + 1 :]]
    return words if "--resume" in words else [*words, "--rounds", rounds]


def forget(folder: Path) -> None:
    """Let modules of a reader's own be read anew: two pages may call theirs app."""
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
            del sys.modules[name]


def fill(folder: Path) -> None:
    """Put what pages suppose that a reader has into a folder: tables, images, a data set's package."""
    from PIL import Image
    from sklearn.datasets import load_wine

    wine = load_wine(as_frame=False)
    head = ",".join(["cultivar", "hospital", *(f"m{k}" for k in range(13))])
    rows = [
        ",".join([str(y), f"h{k % 12}", *map(str, x)])
        for k, (x, y) in enumerate(zip(wine.data, wine.target, strict=True))
    ]
    (folder / "wine").mkdir()
    (folder / "wine" / "all.csv").write_text(
        "\n".join([head.replace(",hospital", ""), *(re.sub(",h[0-9]+", "", row) for row in rows)])
    )
    (folder / "patients.csv").write_text("\n".join([head.replace("cultivar", "outcome"), *rows]))
    for name, colour in (("rose", (200, 30, 60)), ("tulip", (230, 200, 40))):
        (folder / "flowers" / name).mkdir(parents=True)
        for k in range(60):
            Image.new("RGB", (16, 16), (colour[0], colour[1], (colour[2] + k) % 256)).save(
                folder / "flowers" / name / f"{k}.jpg"
            )


@pytest.mark.parametrize("page", PAGES)
def test_marks_give_a_reason_and_commands_have_a_language(page):
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        where = f"{page}:{block.line}"
        assert not block.mark or len(block.reason.split()) >= 3, f"{where}: a mark says why, in some words"
        assert not block.mark or block.language in RUN, f"{where}: nothing runs this block, so it needs no mark"
        assert block.language or not COMMAND.search(block.code), f"{where}: commands are sh or console"


RUNNING = [
    page
    for page in PAGES
    if any(
        block.language in RUN and block.mark != "skip" for block in blocks((ROOT / page).read_text(encoding="utf-8"))
    )
]


@pytest.mark.parametrize("page", RUNNING)
def test_the_page_runs(page, tmp_path, monkeypatch, capsys):
    reader = Reader(page, tmp_path, monkeypatch)
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.language in RUN and block.mark != "skip" and (block.mark != "slow" or EVERYTHING):
            reader.follow(block, capsys)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_are_stored_with_their_pictures(path, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    names = {"__name__": "notebook"}
    for number, cell in enumerate(code):
        exec(compile("".join(cell["source"]), f"{path.name}: cell {number}", "exec"), names)  # noqa: S102
        matplotlib.pyplot.close("all")
        drawn = "plt.show()" in "".join(cell["source"])
        assert drawn == any("image/png" in output.get("data", {}) for output in cell["outputs"]), (
            f"cell {number}: make notebooks"
        )
    assert path.stat().st_size < 100_000


def test_a_mark_is_that_of_the_next_block_only():
    marks = ("<!-- skip: needs a cluster -->\n", "", "<!-- slow: real peers run -->\n", "<!-- something else -->\n")
    text = "".join(f"{mark}```sh\nsecuredfl design 9\n```\n" for mark in marks)
    assert [(block.mark, block.reason) for block in blocks(text)] == [
        ("skip", "needs a cluster"),
        ("", ""),
        ("slow", "real peers run"),
        ("", ""),
    ]
