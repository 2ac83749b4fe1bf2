"""The tables of docs/results follow from the runs that are kept beside them, and anybody can make them again."""

import json
import shutil
from pathlib import Path

import pytest
from docs import keep_runs

from securedfl.experiments.presets import read_preset
from securedfl.experiments.result_files import EXPERIMENTS, csv_text, make_record, markdown, read
from securedfl.experiments.runs.found import cells as cells_of
from securedfl.experiments.runs.training import examine, needed_runs
from securedfl.federation.run_folder.files import read_config

KEPT = Path(__file__).parents[2] / "docs" / "results"
RUNS = sorted(path.parent for path in KEPT.glob("runs/*/config.toml"))


@pytest.mark.parametrize("name", keep_runs.EXPERIMENTS)
def test_what_the_docs_show_follows_from_what_is_kept(name):
    data = EXPERIMENTS[name].collect(read_preset(name), KEPT, print)
    record, result = make_record(name, data, command="", chosen={})
    assert result.cells
    assert markdown(record, result) == (KEPT / f"{name}.md").read_text(encoding="utf-8")
    assert csv_text(result.records) == (KEPT / f"{name}.csv").read_text(encoding="utf-8")
    told = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    assert told["commands"] == record.commands


@pytest.mark.parametrize("name", keep_runs.WITHOUT_RUNS)
def test_what_has_no_runs_any_more_is_presented_from_its_numbers(name):
    record, result = read((KEPT / name).parent, Path(name).name)
    assert markdown(record, result) == (KEPT / f"{name}.md").read_text(encoding="utf-8")
    assert csv_text(result.records) == (KEPT / f"{name}.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_kept_run_has_numbers_and_no_places(run):
    config = read_config(run)
    assert config.data_dir is None
    # simulations, whose folders hold what would be secret between sites
    assert {path.name for path in run.iterdir()} <= {*keep_runs.FILES, keep_runs.SUMMARY}
    assert json.loads((run / keep_runs.SUMMARY).read_text(encoding="utf-8")).keys() <= set(keep_runs.TOLD)
    assert {path.stem for path in (run / "correct").iterdir()} == set(config.methods)


def test_only_what_finished_is_kept(tmp_path):
    run, kept = tmp_path / "run", tmp_path / "kept"
    shutil.copytree(RUNS[0], run)
    (run / "summary.json").unlink()
    assert not keep_runs.keep(run, kept)
    (run / "summary.json").write_text('{"finished": false}')
    assert not keep_runs.keep(run, kept)
    assert not kept.exists()
    (run / "summary.json").write_text('{"finished": true, "run_dir": "/home/somebody"}')
    (run / "model.safetensors").write_bytes(b"a model")
    assert keep_runs.keep(run, kept)
    assert {path.name for path in kept.iterdir()} == {path.name for path in RUNS[0].iterdir()}
    assert json.loads((kept / "summary.json").read_text(encoding="utf-8")) == {"finished": True}


def test_seeds_can_be_added_to_what_is_kept():
    """Those that are there are finished, whoever looks at them, and are not trained again."""
    cells = {(cell.dataset, cell.peers): cell for cell, _ in cells_of(read_preset("table"), KEPT)}
    for (dataset, peers), cell in cells.items():
        needed = needed_runs(read_preset("table"), KEPT, datasets=[dataset], peers=[peers], seeds=cell.seeds)
        assert {examine(run) for run in needed if not cell.scaled} <= {"finished"}
    assert len(cells) >= 4
