"""What `reproduce privacy` concludes from accuracies that differ more from seed to seed than by their test samples."""

import math

import pytest

from securedfl.experiments.found_runs import Accuracies
from securedfl.experiments.privacy import PrivacyCell, _near


def cell(**finals):
    variants = {
        name: Accuracies(list(values), [[0.1, last] for last in values.values()]) for name, values in finals.items()
    }
    seeds = sorted(next(iter(finals.values())))
    return PrivacyCell("digits", 9, "", 1, 1.0, 1.0, seeds, 180, variants, {})


def test_a_gap_is_taken_seed_by_seed_and_its_error_counts_the_seeds():
    # +10 and -10 points: the mean is 0, and two seeds tell next to nothing
    found = cell(distributed={0: 0.9, 1: 0.7}, central={1: 0.8, 0: 0.8}).gap("distributed", "central")
    assert found.points == pytest.approx(0)
    assert found.error == pytest.approx(10.0)


def test_the_test_samples_bound_the_error_from_below():
    same = cell(distributed={0: 0.8, 1: 0.8}, central={0: 0.8, 1: 0.8})
    assert same.gap("distributed", "central").error == pytest.approx(100 * math.sqrt(2 * 0.16 / (180 * 2)))
    assert math.isnan(same.gap("distributed", "local").points)


def test_a_few_unlucky_seeds_are_no_verdict():
    """Three seeds of digits: 5.7 points apart, which is within two standard errors as soon as seeds count."""
    (check,) = _near([cell(distributed={0: 0.75, 1: 0.85, 2: 0.92}, central={0: 0.9, 1: 0.91, 2: 0.88})])
    assert (check.holds, check.noise) == (False, True)
    (check,) = _near([cell(distributed={0: 0.7, 1: 0.7, 2: 0.7}, central={0: 0.9, 1: 0.9, 2: 0.9})])
    assert (check.holds, check.noise) == (False, False)
