"""The entry of the command line: what a command lets through ends in a line and an exit code."""

import errno

import pytest

from securedfl import cli
from securedfl.cli import commands


def test_a_place_that_may_not_be_used_is_named_and_no_traceback(monkeypatch, capsys):
    def refused():
        raise PermissionError(errno.EACCES, "Permission denied", "/shut/ca.key")

    monkeypatch.setattr(commands, "app", refused)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 8
    told = capsys.readouterr().err
    assert told == "error: /shut/ca.key: Permission denied; choose another place, or mend its rights\n"


def test_other_refusals_of_the_system_are_mistakes_of_ours(monkeypatch):
    def refused():
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(commands, "app", refused)
    with pytest.raises(PermissionError):
        cli.main()
