"""What every test needs, whoever starts the run."""

import signal
import threading

import pytest
from hypothesis import settings

# a busy machine is no reason to fail
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # a run in the background of a script inherits an ignored Ctrl-C, and would hand it on to the processes under test
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def _hub_data(tmp_path_factory):
    from tests.learning.hub_data import write_all

    return write_all(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def hub_folder(_hub_data, monkeypatch):
    """A data folder with made-up femnist (18 writers, 360 digits), shakespeare (18 roles, 252 sequences) and
    cifar10 (300 and 60 images, 60 clients); decoded arrays are kept beside it, never in the user's own cache.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(_hub_data / "cache"))
    monkeypatch.delenv("SECUREDFL_DATA_DIR", raising=False)
    return _hub_data
