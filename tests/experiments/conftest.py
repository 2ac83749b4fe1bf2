"""Experiments run at a tiny scale on made-up data."""

import pytest

from tests.experiments.made_up_runs import invoke


@pytest.fixture
def reproduce(hub_folder, monkeypatch):
    """Return a function that runs a command on made-up data; the report of each single run is left out."""
    monkeypatch.setattr("securedfl.reporting.report.write_report", lambda path: path)

    def run(*arguments, code=0):
        trains = arguments[0] not in ("groups", "report")
        result = invoke(*arguments, *(("--data-dir", hub_folder) if trains else ()))
        assert result.exit_code == code, result.output
        return result

    return run
