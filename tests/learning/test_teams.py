"""Teams: the same numbers whatever the number of processes, and nothing left behind."""

import importlib.util
import os
import signal
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest
import torch

from securedfl.errors import ConfigError, InvalidInputError, MissingDependencyError
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.apps.task import AppTask
from securedfl.federation.config import TrainConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.failures import WorkerLostError
from securedfl.learning.training.known import KnownTask
from securedfl.learning.training.processes import ProcessTeam, deal_work
from securedfl.learning.training.team import InProcessTeam
from securedfl.learning.training.worker_count import check_engine, make_team, quickest


@pytest.fixture(scope="module", autouse=True)
def tracker():
    resource_tracker.ensure_running()  # it lives as long as this process, so it is not a leak of a team


def task(**settings):
    return make_task(TrainConfig.resolve({"peers": 4, "model": "linear", "optimizer": "adam", **settings}))


def numbers(team):
    team.initialise()
    losses = [team.update(1), team.update(2)]
    return losses, team.evaluate_each(), team.parameters.copy(), team.states()


def is_gone(memory):
    with pytest.raises(FileNotFoundError):
        SharedMemory(name=memory.name)
    return True


def test_two_processes_compute_the_same_bits_as_one_also_when_restored_and_leave_nothing_behind():
    # the last layer stays at home
    job = task(model="cnn-small", local=["12.*"])
    with InProcessTeam(job) as one, ProcessTeam(job, 2) as two:
        processes, memory = [worker.process for worker in two._workers], two._memory
        assert (one.workers, two.workers) == (1, 2)
        for a, b in zip(numbers(one), numbers(two), strict=True):
            np.testing.assert_equal(a, b)

        parameters, states = one.parameters.copy(), one.states()
        one.update(3)
        two.initialise()
        two.restore(parameters, states)
        two.update(3)
        assert np.array_equal(one.parameters, two.parameters)
    two.close()  # a second time does no harm
    assert not any(process.is_alive() for process in processes)

    assert is_gone(memory)


def test_progress_counts_peers():
    counts = []
    with InProcessTeam(task()) as team:
        team.initialise()
        team.update(1, counts.append)
    assert counts == [1, 2, 3, 4]


def test_the_callers_number_of_threads_comes_back():
    threads = torch.get_num_threads()
    with InProcessTeam(task()):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads


def test_a_killed_worker_is_an_error_that_names_its_peers_and_leaves_nothing():
    with ProcessTeam(task(), 2) as team:
        team.initialise()
        memory = team._memory
        survivor, victim = (worker.process for worker in team._workers)
        peers = ", ".join(map(str, team._workers[1].peers))
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match=rf"peers {peers} ended \(exit code -9\)"):
            team.update(1)
    assert not survivor.is_alive()
    assert is_gone(memory)


def test_an_error_in_a_worker_is_the_error_of_the_team():
    with ProcessTeam(task(peers=2), 1) as team:
        team.initialise()
        team.parameters[1] = np.nan
        with pytest.raises(InvalidInputError, match="training of peer 1 diverged in round 1"):
            team.update(1)


def test_work_is_dealt_evenly():
    assert deal_work([10, 10, 10, 10], 2) == [(0, 2), (1, 3)]
    assert deal_work([50, 10, 10, 10, 10, 10], 2) == [(0,), (1, 2, 3, 4, 5)]
    assert deal_work([1, 1], 5) == [(0,), (1,)]


def test_processes_are_used_where_they_pay(monkeypatch):
    assert quickest(3, 8) == 1
    assert quickest(1000, 2) == 2
    assert task().seconds() > 0
    monkeypatch.setattr(KnownTask, "seconds", lambda _task: 0.1)
    with make_team(task(), "auto", updates=1) as team:
        assert team.workers == 1


def test_an_engine_that_is_not_installed_is_an_error_that_gives_the_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_engine("local")
    with pytest.raises(
        MissingDependencyError, match=r"ray is missing; install it with: pip install 'securedfl\[ray\]'"
    ):
        check_engine("ray")


def test_an_app_that_nobody_can_import_is_not_for_a_cluster():
    job = AppTask(EntryPoint("__main__:make", Path(), lambda settings: None), TrainConfig.resolve({}))
    with pytest.raises(ConfigError, match="needs an app that its workers can import"):
        make_team(job, 2, updates=1, engine="ray")
