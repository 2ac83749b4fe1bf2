"""A peer's own checkpoint: nested states without pickle, the optimiser of an entry point, damage."""

from __future__ import annotations

import importlib.util
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.errors import ConfigError, RunFolderError
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.peers.update import FILE, StoredUpdate, forget_update, load_update, save_update
from securedfl.states import pack, unpack
from tests.federation.learners import learner_of

EXAMPLES = Path(__file__).parents[2] / "examples"

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(trees)
def test_nested_states_survive(tree):
    assert unpack(*pack(tree)) == tree


def test_arrays_and_tensors_survive(tmp_path):
    state = {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        3: [torch.arange(3), torch.ones(2, dtype=torch.bfloat16), torch.tensor(2.5)],
        "number": np.float64(1.5),
    }
    save_update(tmp_path, StoredUpdate(4, np.arange(5.0), state, 0.25))
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    found = load_update(tmp_path)
    assert (found.round, found.loss) == (4, 0.25)
    np.testing.assert_array_equal(found.vector, np.arange(5.0))
    np.testing.assert_array_equal(found.state["array"], state["array"])
    for old, new in zip(state[3], found.state[3], strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        assert torch.equal(old, new)
    assert float(found.state["number"]) == 1.5


@pytest.mark.parametrize("state", [object(), {"f": print}, {1.5: 0}, [np.array([None])], {"a": {"b": {1, 2}}}])
def test_what_cannot_be_kept_is_named(state):
    with pytest.raises(ConfigError, match="the state"):
        pack(state)


def test_damage_is_told(tmp_path):
    assert load_update(tmp_path) is None
    save_update(tmp_path, StoredUpdate(1, np.zeros(100), {}))
    whole = (tmp_path / FILE).read_bytes()
    for damaged in (b"", b"noise", whole[:200], whole[: len(whole) // 2]):
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(RunFolderError, match="damaged"):
            load_update(tmp_path)
    np.savez(tmp_path / FILE, round=1, vector=np.array([object()], dtype=object), loss=0, state="{}")
    with pytest.raises(RunFolderError, match="damaged"):
        load_update(tmp_path)  # a pickle is not even opened
    np.savez(tmp_path / FILE, round=1, vector=np.zeros(1), loss=0.0, state=np.array('["odd", 1]'))
    with pytest.raises(RunFolderError, match="damaged"):
        load_update(tmp_path)


def learner():
    """The example's entry point, afresh, as after a restart."""
    torch.set_num_threads(1)  # two threads that wait for each other on a busy machine take for ever
    return learner_of(EntryPoint.of("entry_point:make", EXAMPLES).make({"name": "site", "samples": 60}, 0))


def test_a_resumed_entry_point_goes_on_with_its_optimiser(tmp_path):
    """Rounds 1 and 2 without a break, and with a restart in between, give the same bits; afresh does not."""
    whole = learner()
    first, _ = whole.update(whole.initial(), 1)
    save_update(tmp_path, StoredUpdate(1, first, whole.state()))
    second, _ = whole.update(first, 2)

    resumed = learner()
    saved = load_update(tmp_path)
    resumed.restore(saved.state)
    np.testing.assert_array_equal(resumed.update(saved.vector, 2)[0], second)
    assert not np.array_equal(learner().update(first, 2)[0], second)


def test_what_was_averaged_is_forgotten_after_the_last_round_and_the_optimiser_is_not(tmp_path):
    one = learner()
    vector, _ = one.update(one.initial(), 1)
    save_update(tmp_path, StoredUpdate(1, vector, one.state(), residual=vector))
    assert stat.S_IMODE((tmp_path / "update.npz").stat().st_mode) == 0o600
    # of a round that was cut off, and may come again
    forget_update(tmp_path, 1)
    assert load_update(tmp_path).vector.size
    forget_update(tmp_path, 2)
    kept = load_update(tmp_path)
    assert (kept.round, kept.vector.size, kept.residual) == (1, 0, None)
    resumed = learner()
    resumed.restore(kept.state)
    np.testing.assert_array_equal(resumed.update(vector, 2)[0], one.update(vector, 2)[0])
    assert stat.S_IMODE((tmp_path / "update.npz").stat().st_mode) == 0o600
    for state in ({}, {"update": {}, "home": {}}):
        save_update(tmp_path, StoredUpdate(1, vector, state))
        forget_update(tmp_path, 9)
        assert not (tmp_path / "update.npz").exists()
    forget_update(tmp_path, 9)


def test_half_a_state_is_an_error(tmp_path):
    (tmp_path / "half_entry.py").write_text(
        "import numpy as np\n"
        "def make(settings):\n"
        "    def update(model, data, round): pass\n"
        "    update.state_dict = dict\n"
        "    return {'w': np.zeros(2)}, [1], update\n"
    )
    assert importlib.util.find_spec("half_entry") is None
    with pytest.raises(ConfigError, match="both state_dict and load_state_dict"):
        EntryPoint.of("half_entry:make", tmp_path).make({"name": "x"}, 0)
