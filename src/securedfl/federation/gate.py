"""The gate before training: what must hold about privacy before any parameter is sent, and what is kept of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from securedfl.designs import Design
from securedfl.errors import PrivacyError, SecuredFLError
from securedfl.federation.budget.account import at_the_end, epsilon_by_round
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import SECURED, averaging_of, choose_design, drawing, private
from securedfl.federation.methods import method as find_method
from securedfl.federation.run_folder.files import CERTIFICATE, EXPOSURE, LEDGER, one_or_all
from securedfl.federation.run_folder.metrics import Row, finite
from securedfl.privacy.absence import Absence, Drawn, smallest_block
from securedfl.privacy.account import Account
from securedfl.privacy.audit import Audit
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.budget.words import PrivacyPromise, useless
from securedfl.privacy.certificate import Certificate, readable_json
from securedfl.privacy.drawing import exposure_svg
from securedfl.privacy.gate import refusal
from securedfl.privacy.ledger import Attempt, Ledger, Tried
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.protocols.protocol import SHARES
from securedfl.storage import write_text

_log = logging.getLogger("securedfl")


EVERYBODY = Absence(policy="wait")
"""A simulation averages over all peers in every round."""


Plans = Mapping[str, Plan]
"""What methods spend of their budgets of differential privacy, by name; those that have none are not in it."""


def settle(config: TrainConfig) -> tuple[TrainConfig, Design]:
    """Return the settings with a protocol that protects the peers, and the design that they meet in.

    Where nobody chose a protocol, and the default one does not withstand the colluders among so many peers, shares take
    its place if they do; that is told. What was chosen stays, and `pass_gate` judges it.
    """
    design = choose_design(config)
    chosen = config.model_fields_set & {"protocol", "iterations", "allow_exposure"}
    if chosen or not config.collusion or SECURED not in config.methods or _withstands(config, design):
        return config, design
    other = config.model_copy(update={"protocol": SHARES.name})
    try:
        other_design = choose_design(other)
        if not _withstands(other, other_design):
            return config, design
    except SecuredFLError:
        return config, design
    _log.warning(
        "%s, the default protocol, cannot protect %d peers against %d of them; this run averages with protocol = %s",
        config.protocol,
        config.members,
        config.collusion,
        SHARES.name,
    )
    return other, other_design


def _withstands(config: TrainConfig, design: Design) -> bool:
    return _certified(config, design, SECURED).meets(config.collusion)


def pass_gate(
    config: TrainConfig, design: Design, absence: Absence | None = None, plans: Plans | None = None
) -> tuple[RunCertificate, ...]:
    """Return what is certified about this federation; called once, before training starts.

    Parameters
    ----------
    config
        The resolved settings; ``collusion`` and ``allow_exposure`` say what must be withstood.
    design
        Who meets whom.
    absence
        What happens when peers are missing.
    plans
        Of differential privacy, if there is any.

    Returns
    -------
    tuple
        One certificate for each method that is to be private.

    Raises
    ------
    PrivacyError
        The settings do not withstand what the federation must, and ``allow_exposure`` is off.
    """
    promises = {}
    if private(config):
        _check_drawing(config)
    for method in private(config):
        certificate = _certified(config, design, method)
        demand = config.collusion > 0
        if demand and not certificate.meets(config.collusion):
            if not (config.allow_exposure or find_method(method).as_published):
                raise refusal(certificate, averaging_of(config, method, design))
            _log.warning("exposure is allowed: %s", certificate.sentence)
        elif demand and certificate.verdict == "partial sums":
            _log.warning("%s", certificate.sentence)
        if plan := (plans or {}).get(method):
            _check_noise(plan, certificate)
            promises[method] = PrivacyPromise.of(plan, examined=certificate.exhaustive)
    return _certificates(config, design, absence, promises)


def _check_noise(plan: Plan, certificate: Certificate) -> None:
    """Refuse noise that is shared by more peers than are in a sum that a coalition sees."""
    if plan.noise == "distributed" and certificate.verdict != "only the total":
        raise PrivacyError(
            "distributed noise protects the total only, but these settings let coalitions compute sums of fewer peers, "
            'with less noise in them; choose settings that tell only the total, or noise = "local"'
        )
    if drowned := useless(plan):
        _log.warning("%s", drowned.strip().removeprefix("But "))


def save_certificate(folder: Path, certificates: tuple[RunCertificate, ...]) -> None:
    """Write certificate.json; before a run begins for whoever watches it, later with what was spent."""
    if certificates:
        write_text(
            folder / CERTIFICATE, readable_json(one_or_all({one.method: one.to_dict() for one in certificates})) + "\n"
        )


def save_account(
    folder: Path,
    config: TrainConfig,
    design: Design,
    rows: Iterable[Row],
    absence: Absence | None = None,
    plans: Plans | None = None,
    roster: int | None = None,
) -> tuple[RunCertificate, ...]:
    """Write certificate.json, exposure.svg and ledger.json of what a run has done so far; return what is certified.

    Parameters
    ----------
    folder
        The run folder.
    config, design
        Of the run.
    rows
        Its metrics: one per method and round. What real peers ``tried`` for a round is added up.
    absence, plans
        As for `pass_gate`.
    roster
        How many peers there are by now; by default as many as ``config`` says.
    """
    done, accounts, promises = list(rows), dict[str, Account](), dict[str, PrivacyPromise]()
    for method in private(config):
        certificate = _certified(config, design, method)
        own = [row for row in done if row.method == method]
        attempts = [attempt for row in own for attempt in _attempts(row, config.peers)]
        if plan := (plans or {}).get(method):
            here = config.peers if roster is None else roster
            promises[method] = _promised(plan, attempts, config, here, examined=certificate.exhaustive)
        some = None if config.members == config.peers else config.peers
        ledger = Ledger(Audit(averaging_of(config, method, design)), peers=some).add(*attempts)
        accounts[method] = replace(
            ledger.account(certificate.worst_coalition),
            allow_exposure=config.allow_exposure,
            rounds_with_messages=_passed(own),
            differential_privacy=promises.get(method),
        )
        if len(accounts) == 1:  # the first method's picture
            title = f"{certificate.protocol}, {design.n} peers: who can learn about whom"
            picture = exposure_svg(certificate.levels, title, collusion=certificate.collusion)
            write_text(folder / EXPOSURE, picture)
    certificates = _certificates(config, design, absence, promises)
    save_certificate(folder, certificates)
    if certificates:
        ledgers = {method: account.to_dict() for method, account in accounts.items()}
        write_text(folder / LEDGER, readable_json(one_or_all(ledgers)) + "\n")
    return certificates


def _promised(
    plan: Plan, attempts: Iterable[Attempt], config: TrainConfig, roster: int, *, examined: bool
) -> PrivacyPromise:
    """Return what differential privacy promises after the attempts that were opened."""
    opened: dict[int, list[tuple[int, ...]]] = {}
    for attempt in attempts:
        if attempt.opened:
            opened.setdefault(attempt.round, []).append(attempt.members or tuple(range(config.peers)))
    by_round = epsilon_by_round(plan, opened)
    now, end = max(by_round.values(), default=0.0), at_the_end(plan, opened, config.rounds, roster)
    promise = PrivacyPromise.of(plan, now, end, examined=examined)
    return replace(promise, epsilon_by_round={str(round): finite(epsilon) for round, epsilon in by_round.items()})


def _attempts(row: Row, n: int) -> list[Attempt]:
    """Return what a row of metrics tells about attempts; a simulation needs one, by everybody, in each round."""
    return [
        Attempt(
            round=row.round,
            steps=None if tried.opened else 1,
            members=None if len(tried.members) == n else tried.members,
        )
        for tried in row.tried or [Tried(0, 0, tuple(range(n)), True)]
    ]


def _passed(rows: Iterable[Row]) -> tuple[int, ...] | None:
    """Return in which rounds a simulation passed messages, where it did not in all."""
    told = {row.round: row.messages for row in rows}
    if all(messages is None for messages in told.values()):
        return None
    return tuple(round for round, messages in told.items() if messages is not False)


def _check_drawing(config: TrainConfig) -> None:
    """Refuse to draw peers one by one: totals of rounds with different members tell single updates."""
    drawn = drawing(config)
    if drawn is None or drawn.block > 1 or not config.collusion:
        return
    if config.allow_exposure:
        _log.warning("exposure is allowed: %s", drawn.sentence)
        return
    fitting = drawn.fitting(config.collusion)[:3]
    fit = f"peers_per_round = {' or '.join(map(str, fitting))} would do" if fitting else "no other number would do"
    raise PrivacyError(
        f"{drawn.sentence} Blocks of at least {smallest_block(config.collusion)} peers that are drawn together prevent "
        f"that, but no such number divides both {drawn.peers} and {drawn.count}: {fit} with {drawn.peers} peers. "
        "The setting allow_exposure starts all the same, and says so in log, summary and report."
    )


def _certificates(
    config: TrainConfig, design: Design, given: Absence | None, promises: Mapping[str, PrivacyPromise]
) -> tuple[RunCertificate, ...]:
    """Return what is certified for each private method, with what holds over rounds, and what is promised."""
    absence, found = given or drawing(config) or EVERYBODY, []
    for method in private(config):
        certificate, promise = _certified(config, design, method), promises.get(method)
        over_rounds = _over_rounds(config, certificate, absence)
        told = ["" if promise is None else promise.sentence, certificate.sentence, over_rounds]
        found.append(
            RunCertificate(
                method=method,
                certificate=certificate,
                required_collusion=config.collusion,
                allow_exposure=config.allow_exposure,
                masks=config.masks,
                remark=_remark(config, adds_codes=averaging_of(config, method, design).adds_codes),
                over_rounds=over_rounds,
                promise=promise,
                sentence=" ".join(filter(None, told)),
            )
        )
    return tuple(found)


def _over_rounds(config: TrainConfig, certificate: Certificate, absence: Absence | Drawn) -> str:
    """Return what holds over rounds, in words."""
    partial = (
        "The sums over fewer peers that an average tells can be subtracted from those of other rounds, too; if updates "
        "stood still, that may tell a single peer's update."
    )
    weights = (
        "Everybody also learns the total of the members' weights. Weights stand still, so what totals with different "
        "members tell about them is exact."
    )
    added = [partial] * (certificate.verdict == "partial sums") + [weights] * config.weighted
    return " ".join([absence.sentence, *added])


@lru_cache(maxsize=8)
def _certified(config: TrainConfig, design: Design, method: str) -> Certificate:
    """Examine one method; kept, because the run folder gets what the gate has computed."""
    # round 0 is the initial average
    return Audit(averaging_of(config, method, design)).certificate(
        collusion=max(config.collusion, 1), rounds=config.rounds + 1
    )


def _remark(config: TrainConfig, *, adds_codes: bool) -> str:
    """Return what the certificate's reader must know about a simulation that can be repeated."""
    every, told = config.messages_between, ""
    if every > 1 and adds_codes:
        told = (
            f"This simulation of {config.members} members passes the messages of rounds 0 and 1, and from there on "
            f"of one round in {every}, one by one, and stops if they give other bits than the sum of the members' "
            "codes; in all other rounds it takes that sum and passes no messages. The certificate is about the "
            "messages that peers would send."
        )
    if config.masks != "seeded":
        return told
    noise = " The noise of differential privacy is drawn from the seed too, and protects nobody here."
    return f"{told} ".lstrip() + (
        "This run is a simulation that draws masks from its seed, so that it can be repeated; the certificate "
        "describes peers that draw them in secret (masks = secret)." + noise * (config.privacy is not None)
    )
