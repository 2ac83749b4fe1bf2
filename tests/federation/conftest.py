"""A run that several files of tests look at."""

import pytest

from tests.federation.tiny_runs import run


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(folder)
    return folder
