"""Before training: whether everything is in place at this site, and whether it reaches all others."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from securedfl.errors import ConfigError, PeerLostError, RunFolderError, SecuredFLError
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.checking.opening import WITHIN, Examined, opening
from securedfl.federation.checking.others import PATIENCE, Meeting, forgiven, relays_of, unneeded
from securedfl.federation.checking.own import look, look_at_home
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.site import check_keys, pass_federation
from securedfl.network.journal import in_use, look_into
from securedfl.network.operator import Wish, want
from securedfl.network.words import UNADMITTED
from securedfl.privacy.run_certificate import told


def check(path: Path, *, wait: float = 0.0, within: float = WITHIN) -> list[Examined]:
    """Look at everything that a peer needs before it starts; no parameter is sent.

    Where the run has begun, what this site's own log says of the roster counts, and not federation.toml.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    wait
        Seconds to wait for the others, who may run the same check: meanwhile this site answers them.
    within
        Seconds that the app may take to be made and to open this site's data (see `opening`); 0 leaves that out.
    """
    config = PeerConfig.load(path)
    try:
        federation = FederationConfig.load(config.federation)
        config.position(federation)
    except SecuredFLError as error:
        return [
            Examined("federation.toml", False, str(error)),
            look("own keys", lambda: f"fingerprint {check_keys(config.files(), config.name, path).fingerprint}"),
            look("state folder", lambda: look_into(config.state)),
        ]
    # an app may choose what concerns the common model, which is known when it runs
    shared = {key: value for key, value in federation.told.items() if not (federation.entry and ".common_" in key)}
    about = [Examined("federation.toml", True, f"{len(federation.peers)} peers, hash {federation.hash}")]
    try:
        design = federation.design
    except SecuredFLError as error:
        about.append(Examined("design", False, str(error)))
    else:
        shared["design"] = design.hash
        about.append(Examined("design", True, f"gap {design.gap}, hash {design.hash}"))
        about.append(look("privacy", lambda: _promise(federation)))
    running = in_use(config.state)
    home, own = look_at_home(path, config, federation, running=running)
    findings = [*about, *own]
    with ExitStack() as stack:
        # while the others are waited for; a peer that runs has opened it itself
        answer = stack.enter_context(opening(path, federation, within)) if within and not running else None
        relays = stack.enter_context(ThreadPoolExecutor(1)).submit(relays_of, config, federation)
        others: list[Examined] = []
        if running:
            others = [look("running peer", lambda: _reached(config.state))]
        elif all(finding.ok for finding in own):
            compared = frozenset(filter(home.still, shared))
            others = Meeting(config, federation, home.roster, shared, compared).findings(wait)
        if answer is not None:
            findings.append(answer())
        others = unneeded(others, home.over)
        return [*findings, *others, *forgiven(relays.result(), others)]


def failure(findings: Sequence[Examined]) -> SecuredFLError | None:
    """Return the error that tells what is not fine, None if all is.

    That sites are merely missing is another one, and so is what `securedfl peer` would say of this site's own folder.
    """
    bad = [finding for finding in findings if not finding.ok]
    if not bad:
        return None
    named = "; ".join(f"{finding.subject}: {finding.text}" for finding in bad)
    kind: type[SecuredFLError] = ConfigError
    if all(finding.lost for finding in bad):
        kind = PeerLostError
    elif all(finding.lost or finding.folder for finding in bad):
        kind = RunFolderError
    return kind(f"{len(bad)} of {len(findings)} checks failed: {named}")


def _reached(state: Path) -> str:
    """Say whom the running peer reaches; one that reaches all but waits to be admitted takes no part yet."""
    told = want(state, Wish("look"), PATIENCE)
    if f"this site {UNADMITTED}" in told:
        raise PeerLostError(told)
    return told


def _promise(federation: FederationConfig) -> str:
    check_privacy(federation.training, real=True)
    return told(pass_federation(federation)) or "certified"
