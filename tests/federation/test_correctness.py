"""What methods got right is kept for the best and the last round, whatever stops a run."""

import numpy as np
import pytest

import securedfl
from securedfl.errors import RunFolderError
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.correctness import CorrectKeeper, correct_file, read_correct
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.learning.training.task import ScoredOn

SETTINGS = {"model": "linear", "rounds": 3, "methods": "local,fedavg", "workers": 1}
TESTED = ScoredOn(np.array([4, 7]), np.array([0, 1]))


def kept(folder, method):
    """Return the bytes of what a run kept, after a check against its metrics."""
    curve = [row.accuracy for row in read_rows(folder, Row) if row.method == method]
    best = read_correct(folder, method, "best", curve.index(max(curve)))
    final = read_correct(folder, method, "final", 3)
    assert (best.right.mean(), final.right.mean()) == (max(curve), curve[-1])
    assert len(best.tested.samples) == len(best.tested.users) == len(best.right) == 180
    return correct_file(folder, method).read_bytes()


def test_a_run_that_was_stopped_keeps_the_same(tmp_path):
    class Stop(Observer):
        def round_finished(self, row):
            if (row.method, row.round) == ("fedavg", 1):
                raise KeyboardInterrupt

    securedfl.train(**SETTINGS, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        securedfl.train(**SETTINGS, out=tmp_path / "cut", observer=Stop())
    securedfl.resume(tmp_path / "cut")
    for method in ("local", "fedavg"):
        assert kept(tmp_path / "cut", method) == kept(tmp_path / "whole", method)
    both = [read_correct(tmp_path / "whole", method, "final", 3).tested.samples for method in ("local", "fedavg")]
    assert np.array_equal(*both)


def test_the_best_model_before_a_stop_is_not_lost(tmp_path):
    rows = [Row(method="m", round=r, accuracy=a) for r, a in enumerate((0.5, 1.0, 0.0))]
    rights = [np.array(right) for right in ([True, False], [True, True], [False, False])]
    first = CorrectKeeper(tmp_path, "m", TESTED)
    for row, right in zip(rows[:2], rights, strict=False):
        first.see(row, [right])
    first.before(lambda _: None)(None)
    second = CorrectKeeper(tmp_path, "m", TESTED, rows[:2])
    second.see(rows[2], [rights[2]])
    second.before(lambda _: None)(None)
    assert read_correct(tmp_path, "m", "best", 1).right.tolist() == [True, True]
    assert read_correct(tmp_path, "m", "final", 2).right.tolist() == [False, False]
    assert read_correct(tmp_path, "m", "final", 1) is None  # of another round
    assert read_correct(tmp_path, "other", "best", 1) is None


def test_a_damaged_file_is_named(tmp_path):
    path = correct_file(tmp_path, "m")
    path.parent.mkdir()
    path.write_bytes(b"what")
    with pytest.raises(RunFolderError, match=r"m\.npz"):
        read_correct(tmp_path, "m", "best", 1)
