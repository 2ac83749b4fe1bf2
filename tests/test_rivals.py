"""The comparison's own arithmetic: ratios within a turn, failures told, tables put where the page has its marks."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "rivals"


@pytest.fixture(scope="module")
def run():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield _module()


def _module():
    spec = importlib.util.spec_from_file_location("rivals_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rivals_run"] = module
    spec.loader.exec_module(module)
    return module


def test_every_rival_has_a_script_and_an_environment(run):
    for rival in (*run.RIVALS, run.SITES):
        assert (FOLDER / rival.script.split()[0]).is_file()
        assert not rival.environment or (FOLDER / "environments" / f"{rival.environment}.txt").is_file()
    assert run.RIVALS[0].script == "gloo_all_reduce.py"


def test_times_are_compared_within_a_turn_and_failures_are_told(run):
    one = {"seconds": 1.0, "processor_seconds_per_peer": 0.0, "largest_error": 1e-9, "bytes_per_peer": 800.0}
    turns = [
        [one, {**one, "seconds": 3.0}, {"failed": "it | did not"}],
        [{**one, "seconds": 10.0}, {**one, "seconds": 50.0}, {"failed": "again"}],
    ]
    assert run.ratios(turns, 1, "seconds") == "4 (3 to 5)"
    assert run.ratios(turns, 1, "processor_seconds_per_peer") == "–"  # less than the clock can tell
    lines = run.table(turns, list(run.RIVALS[:3]), 100)
    assert "| 4 (3 to 5) | – | 2 | – | 1.0e-09 |" in lines[3]
    assert "failed: it / did not" in lines[4]


def test_tables_go_between_the_marks_of_the_page(run, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- rivals -->\nold\n<!-- end of rivals -->\nafter\n")
    for _ in range(2):
        run.put(page, "rivals", ["new"])
    assert page.read_text() == "before\n<!-- rivals -->\nnew\n<!-- end of rivals -->\nafter\n"
    assert "<!-- end of rivals -->" in run.PAGE.read_text()
