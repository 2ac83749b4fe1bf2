"""Peers that have another run than this one: what is told, and whom it ends."""

from securedfl.network.strangers import PATIENCE, Strangers

MINE = {"run": "a", "model": "6 values", "model.w": "float32[6]", "seed": "0"}
OTHER = {**MINE, "run": "b", "model": "8 values", "model.w": "float32[8]"}


def test_another_model_ends_a_peer_that_has_not_begun_after_all_could_hear_of_it():
    met = Strangers(MINE)
    told = met.hear("p1", OTHER, 100.0)
    assert "p1 has other settings: model is 8 values there and 6 values here; model.w is float32[8] there" in told
    assert "run is" not in told
    # a later one does not put it off
    met.hear("p2", OTHER, 100.0 + PATIENCE / 2)
    assert met.trouble(100.0 + PATIENCE - 0.1, begun=False) == ""
    why = met.trouble(100.0 + PATIENCE, begun=False)
    assert why.startswith("p1 has other settings")
    assert "; p2 has other settings" in why
    assert why.endswith("mend that, then start all sites again")
    assert met.trouble(1000.0, begun=True) == ""


def test_a_peer_that_was_mended_in_time_ends_nobody():
    met = Strangers(MINE)
    met.hear("p1", OTHER, 100.0)
    assert met.hear("p1", MINE, 105.0) == ""
    assert met.trouble(1000.0, begun=False) == ""
    # settings that the log decides on may differ
    assert "seed is 1 there" in met.hear("p1", {**MINE, "seed": "1"}, 1001.0)
    # and so may what an older version does not tell
    assert met.hear("p1", {"model": "6 values"}, 1001.0)
    assert met.trouble(2000.0, begun=False) == ""


def test_a_check_of_a_site_is_no_other_run():
    met = Strangers({**MINE, "p0.fingerprint": "0"}, name="p0")
    assert met.hear("p1", {"seed": "0"}, 100.0) == ""
    assert "seed is 1 there" in met.hear("p1", {"seed": "1"}, 100.0)
    assert met.trouble(1000.0, begun=False) == ""


def test_as_many_as_may_lie_end_nobody():
    met = Strangers(MINE, lying=1)
    told = met.hear("p1", {**OTHER, "\x1b[31m" + "k" * 99: "\n"}, 100.0)
    assert "\x1b" not in told
    assert "\n" not in told
    assert "k" * 50 not in told
    assert met.trouble(1000.0, begun=False) == ""
    met.hear("p2", OTHER, 100.0)
    assert met.trouble(1000.0, begun=False)


def test_a_site_that_was_added_and_does_not_say_so_is_told():
    mine = {**MINE, "run": "b", "p0.fingerprint": "0", "p3.fingerprint": "3"}
    theirs = {**MINE, "p0.fingerprint": "0"}
    hint = "if p3 was added later, mark its entry with added = true"
    assert hint in Strangers(mine, name="p3").hear("p0", theirs, 0.0)
    # others differ in more than that, or in something else
    assert hint not in Strangers(theirs, name="p0").hear("p3", mine, 0.0)
    assert hint not in Strangers(mine, name="p3").hear("p0", {**theirs, "p3.fingerprint": "4"}, 0.0)


def test_a_log_that_begins_otherwise_ends_a_peer_unless_only_liars_have_it():
    """Its disk is new, and somebody has changed federation.toml meanwhile."""
    for lying, senders, ends in ((0, 1, True), (1, 1, False), (1, 2, True)):
        strangers = Strangers({"run": "a"}, lying=lying, name="p0")
        for k in range(senders):
            strangers.refuse(f"p{k + 1}", 5.0)
        # a certificate may still be on its way
        assert not strangers.trouble(5.0 + PATIENCE, begun=False)
        assert ("as it was when the run began" in strangers.trouble(6.0 + PATIENCE, begun=False)) == ends
        assert not strangers.trouble(6.0 + PATIENCE, begun=True)


def test_a_log_that_begins_with_other_rounds_ends_a_peer_that_has_not_begun():
    """All are of one run, whose rounds an operator may change later; but the logs of the two never fit."""
    mine, other = {**MINE, "genesis": "g", "rounds": "9"}, {**MINE, "genesis": "h", "rounds": "3"}
    met = Strangers(mine, name="p0")
    assert "p1 has other settings: rounds is 3 there and 9 here;" in met.hear("p1", other, 100.0)
    assert met.has_another_log("p1")
    assert met.trouble(100.0 + PATIENCE - 0.1, begun=False) == ""
    assert met.trouble(100.0 + PATIENCE, begun=False).startswith("p1 has other settings: rounds is 3 there")
    assert met.trouble(100.0 + PATIENCE, begun=True) == ""
    # where the other has begun, and both files were changed since, that is what is told
    both = Strangers(mine, name="p0")
    assert "the log begins with other rounds" in both.hear("p1", {**mine, "genesis": "h"}, 100.0)
    both.refuse("p1", 101.0)
    assert "use the file as it was when the run began" in both.trouble(100.0 + PATIENCE, begun=False)
    # the file of one that has begun may have been changed since
    begun = Strangers(mine, name="p0")
    assert begun.hear("p1", {**mine, "rounds": "3"}, 100.0)
    assert not begun.has_another_log("p1")
    assert begun.trouble(1000.0, begun=False) == ""
