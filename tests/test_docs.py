"""README, CONTRIBUTING and docs: nothing is missing, links lead somewhere, and names exist."""

import importlib
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
import typer

import securedfl
from securedfl import errors
from securedfl.cli import app
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import METHODS
from securedfl.federation.peers import telemetry
from securedfl.federation.peers.config import NOT_SHARED, DeadlineConfig, FederationConfig, PeerConfig, RosterEntry
from securedfl.federation.settings import PrivacySettings
from securedfl.learning.data.datasets import SOURCES
from securedfl.learning.models.registry import MODELS
from securedfl.protocols.protocol import BUILT_IN

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
}
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
every_page = pytest.mark.parametrize("page", PAGES)

_METRIC = r'Metric\(\s*"(\w+)",\s*"\w+",\s*"([^"]*)"'
METRICS = dict(re.findall(_METRIC, Path(telemetry.__file__).read_text(encoding="utf-8")))


def said(text: str) -> str:
    """Return a quoted text on one line."""
    return " ".join(text.replace("\n>", " ").split())


def section(page: str, title: str) -> str:
    """Return what stands under a heading, up to the next one of its level or above."""
    level = len(title) - len(title.lstrip("#"))
    after = PAGES[page].split(f"\n{title}\n", 1)[1]
    return re.split(rf"^#{{1,{level}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str, head: str = "key") -> dict[str, str]:
    """Return the second cell of every row by the names in its first, of the tables whose first column has that head."""
    found, wanted = {}, False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            wanted = False
        elif cells[0] == head:
            wanted = True
        elif wanted and not cells[0].startswith("---"):
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[1])
    return found


class TestConfiguration:
    PAGE = "docs/reference/configuration.md"

    def test_methods_and_protocols(self):
        assert rows(section(self.PAGE, "### Methods"), "method").keys() == METHODS.keys()
        assert rows(section(self.PAGE, "### Protocols"), "protocol").keys() == BUILT_IN.keys()
        assert rows(PAGES["docs/concepts/protocols.md"], "protocol").keys() == BUILT_IN.keys()

    def test_settings_of_differential_privacy_and_their_defaults(self):
        found = rows(section(self.PAGE, "### Differential privacy"), "privacy")
        assert found.keys() == PrivacySettings.model_fields.keys()
        for name, field in PrivacySettings.model_fields.items():
            default = "needed" if field.is_required() else "none" if field.default is None else f'`"{field.default}"`'
            assert found[name] == default, name

    def test_settings_of_training_and_their_defaults(self):
        titles = ("## Run", "## Learning", "## Averaging", "## Privacy", "## Machine")
        documented = rows("\n".join(section(self.PAGE, title) for title in titles))
        assert documented.keys() == TrainConfig.model_fields.keys()
        for name, field in TrainConfig.model_fields.items():
            if field.default is not None:
                assert f"`{json.dumps(field.default)}`" in documented[name], name

    def test_settings_of_real_peers_and_their_defaults(self):
        shared = section(self.PAGE, "### federation.toml")
        tables = (
            (rows(shared), FederationConfig),
            (rows(shared, "key of `[[peers]]`"), RosterEntry),
            (rows(shared, "key of `[deadlines]`"), DeadlineConfig),
            (rows(section(self.PAGE, "### peer.toml")), PeerConfig),
        )
        for documented, settings in tables:
            assert {name.strip("[]") for name in documented} == settings.model_fields.keys()
            for name, field in settings.model_fields.items():
                default = field.get_default()
                if isinstance(default, bool | int | float | str) and default != "":
                    assert f"`{json.dumps(default).removesuffix('.0')}`" in documented[name], name
        left_out = re.search(r"^\| `\[train\]`.*", shared, re.MULTILINE).group()
        assert set(re.findall(r"`(\w+)`", left_out)) == NOT_SHARED

    def test_data_sets_and_models(self):
        assert rows(PAGES["docs/guides/data.md"].split("\n## ")[0], "name").keys() == SOURCES.keys()
        assert rows(section("docs/guides/data.md", "## Models"), "name").keys() == MODELS.keys()


def test_exit_codes():
    documented = dict(re.findall(r"^\| (\d+) \| `(\w+)`", PAGES["docs/reference/errors.md"], re.MULTILINE))
    codes = {
        str(kind.exit_code): name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and "exit_code" in vars(kind)
    }
    assert codes.items() <= documented.items()


def test_the_public_face_stands_in_the_readme():
    named = rows(section("README.md", "## Use it"), "").keys()
    assert {re.split(r"\W", name)[0] for name in named} <= set(securedfl.__all__)
    for name in securedfl.__all__:
        wanted = callable(getattr(securedfl, name)) and not name.endswith("Error") and name != "Schedule"
        assert not wanted or re.search(rf"`{name}\b", section("README.md", "## Use it")), name


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", PAGES[page])):
        if link.startswith("https://"):
            continue
        where, _, anchor = link.partition("#")
        target = (ROOT / page).parent / where if where else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{page} links to {link}"


@every_page
def test_files_and_modules_that_are_named_exist(page):
    for name in re.findall(r"\b((?:src|tests|benchmarks|examples)/[\w/.-]+\.\w+)", PAGES[page]):
        assert (ROOT / name).exists(), f"{page} names {name}"
    if page == "CHANGELOG.md":
        # it also tells what things were called before
        return
    source = ROOT / "src" / "securedfl"
    for name in re.findall(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.py)?)`", PAGES[page]):
        if name.split("/")[0] in {path.name for path in source.iterdir()}:
            assert (source / name).exists(), f"{page} names {name}"
    groups = {"securedfl.protocols", "securedfl.datasets", "securedfl.models"}
    for name in set(re.findall(r"\bsecuredfl(?:\.\w+)+", PAGES[page])) - groups:
        assert resolves(name), f"{page} names {name}"


def test_pages_that_the_source_names_exist():
    files = [path for room in ("src", "benchmarks", "examples") for path in (ROOT / room).rglob("*.*")]
    for path in files:
        if path.suffix in (".py", ".toml", ".html"):
            for name in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
                assert name in PAGES, f"{path} names {name}"


def resolves(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or something in one."""
    module, _, name = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        return bool(module) and resolves(module) and hasattr(importlib.import_module(module), name)
    except errors.MissingDependencyError:
        # an adapter of a framework that is not here: its file is
        return importlib.util.find_spec(dotted) is not None
    return True


def commands(text: str) -> list[list[str]]:
    """Return the words of every command line that begins with ``securedfl``."""
    lines = re.findall(r"(?:^|`|\$ |^ +)(securedfl [a-z][^`\n]*)", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


@every_page
def test_commands_and_options_exist(page):
    root = typer.main.get_command(app)
    for words in commands(PAGES[page]):
        command, rest = root, list(words)
        # a group may be named alone, and a placeholder is in capitals
        while hasattr(command, "commands") and rest and not rest[0].isupper():
            assert rest[0] in command.commands, f"{page}: securedfl {' '.join(words)}"
            command = command.commands[rest.pop(0)]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word for word in rest if word.startswith("--")}
        assert given <= known | {"--help"}, f"{page}: securedfl {' '.join(words)}"


class TestSite:
    """What `make docs` takes from the source; the site itself is made in an environment of its own."""

    @pytest.fixture
    def generated(self):
        spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_every_page_has_its_place(self, generated):
        found = {path.relative_to(ROOT / "docs") for end in ("md", "ipynb") for path in ROOT.glob(f"docs/**/*.{end}")}
        pages = {str(path.with_suffix("")) for path in found if path.parts[0] != "results"}
        assert pages - {"index"} == {page for section in generated.SECTIONS.values() for page in section}

    def test_marks_are_known(self, generated):
        for page, text in PAGES.items():
            for name, _, _ in generated.MARK.findall(text):
                assert name in generated.GENERATED, f"{page}: {name}"

    def test_a_page_that_is_filled_later_says_where_to_read_it(self, generated):
        for page, text in PAGES.items():
            for name, _, note in generated.MARK.findall(text):
                if name not in ("contents", "results"):
                    built = Path(page).relative_to("docs").with_suffix(".html")
                    assert "make docs" in said(note), page
                    assert f"`build/site/{built}`" in said(note), page
                    assert note not in generated.fill(text), page

    def test_commands_and_settings_are_all_there(self, generated):
        text = generated.commands()
        for name in typer.main.get_command(app).commands:
            assert f"### securedfl {name}\n" in text, name
        assert "`--collusion`" in text
        text = generated.settings()
        for model in (TrainConfig, PrivacySettings, FederationConfig, RosterEntry, DeadlineConfig, PeerConfig):
            for name in model.model_fields:
                assert f"| `{name}` |" in text, name

    def test_pages_of_the_repository_keep_their_links(self, generated):
        for name, page in generated.OUTSIDE.items():
            if page != "index":
                text = generated.repository(name)
                for link in re.findall(r"\]\(((?!https:|#)[^)#\s]+)", FENCE.sub("", text)):
                    assert (ROOT / "docs" / page).parent.joinpath(link).exists(), f"{name}: {link}"


def test_metrics_are_named_as_they_are():
    """All of them stand in the guides, with advice on what to alert on; none is there that no peer has."""
    assert len(METRICS) > 10
    for page, text in PAGES.items():
        if page != "CHANGELOG.md":
            assert set(re.findall(r"\bsecuredfl_(\w+)", text)) <= METRICS.keys(), page
    for page in ("docs/guides/network.md", "docs/guides/operations.md"):
        missing = {name for name in METRICS if f"securedfl_{name}" not in PAGES[page]}
        assert not missing, f"{page} lacks {missing}"


@pytest.mark.parametrize("name", METRICS)
def test_what_is_said_of_a_metric_is_a_plain_sentence(name):
    text = METRICS[name]
    assert text[0].isupper() or text[0].isdigit()
    assert text.endswith(".")
    assert len(text) > 25
    assert "_" not in text
