"""How each kind of fault begins and ends."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from securedfl.network.core import events as ev
from securedfl.network.core.entries import Add, Ask, End, Move, Remove, Renew
from tests.network.world.schedule import HEALED, Fault
from tests.network.world.site import Site
from tests.network.world.world import World

IDLE = 3.0
"""Seconds after which the ends of a cut link notice, if they do."""


def begin(world: World, fault: Fault) -> None:
    """Let a fault begin."""
    world.counts[fault.kind] += 1
    world.tell(f"FAULT {str(fault).strip()}")
    site, end = world.sites[fault.peer], world.now + fault.lasts
    others = [other.number for other in world.sites if other.number != fault.peer]
    match fault.kind:
        case "crash" | "crash, write lost" | "crash, write torn":
            # the countdown of actions until it stops
            site.doom = (int(fault.choice * 25), fault.kind)
            world.at(end, _stop_and_start, site)
        case "other sums" | "withheld":
            assert site.liar is not None
            site.liar.spoils = fault.kind
            world.at(end, setattr, site.liar, "spoils", "")
        case "killed after a commit":
            world.ambushes.append(fault)
        case "leave":
            site.happen(ev.Leaving())
            site.stop("leaves")
            world.at(end, site.start)
        case "cut":
            _cut(world, [(fault.peer, fault.other), (fault.other, fault.peer)], fault)
        case "cut one way":
            _cut(world, [(fault.peer, fault.other)], fault)
        case "isolation":
            _cut(world, [pair for k in others for pair in ((fault.peer, k), (k, fault.peer))], fault)
        case "split":
            half = [k for k in others if (k * 7919 + int(fault.choice * 1000)) % 2] + [fault.peer]
            rest = [k for k in others if k not in half]
            _cut(world, [pair for a in half for b in rest for pair in ((a, b), (b, a))], fault)
        case "slow links":
            world.slow += 1
            world.at(end, _less, world, "slow")
        case "bad links":
            world.bad += 1
            world.at(end, _less, world, "bad")
        case "disk full":
            site.full = True
            world.at(end, setattr, site, "full", False)
        case "disk lost":
            begun = site.core is not None and site.core.state.length > 0 and _begun(world, site)
            if not begun or _last_copy(world, site) or not _spare(world, site):
                # more than the log promises to survive
                world.counts[fault.kind] -= 1
                return
            site.stop("loses its disk")
            site.disk = site.new_disk()
            world.at(end, site.start)
        case "update damaged":
            if site.disk.update is not None:
                round = site.disk.update[0][2]
                site.disk.update = None
                site.happen(ev.Update(round, whole=False))
        case "slow training":
            site.slow_training = True
            world.at(end + 5, setattr, site, "slow_training", False)
        case "restart of all":
            for one in world.sites:
                one.stop("stops, as all do")
                world.at(end * (1 - fault.choice) + fault.choice * world.now, one.start)
        case "gone for good":
            if not world.rules.can_lose or not _dispensable(world, site):
                world.counts[fault.kind] -= 1
                return
            site.stop("stops for good")
            site.gone = True
        case _:
            _change(world, fault)


def kill(world: World, fault: Fault) -> None:
    """Kill who is meant to be killed after a commit; they come back later."""
    for number in (fault.peer, fault.other)[: 1 + fault.both]:
        world.sites[number].stop("is killed")
        world.at(world.now + fault.lasts, world.sites[number].start)


def _last_copy(world: World, site: Site) -> bool:
    """Say whether a result that may count is on no other disk; the log promises two disks, not that both are lost."""
    elsewhere = {r.digest for other in world.sites if other is not site and not other.lies for r in other.disk.results}
    return any(result.digest not in elsewhere for result in site.disk.results)


def _spare(world: World, site: Site) -> bool:
    """Say whether a quorum of state folders is left; without one, only operators can help.

    Those of liars do not count: they may have another one admitted, and never vote again. Also once a peer is removed
    that an operator wants to be: that may be decided before anybody misses the disk.
    """
    state = world.state_before(len(world.checks.log))
    admitted = [peer for peer in state.roster if peer.incarnation]
    sites = [world.sites[peer.number] for peer in admitted]
    whole = [one for peer, one in zip(admitted, sites, strict=True) if peer.incarnation == one.disk.incarnation]
    left = [one for one in whole if one is not site and not one.gone and not one.lies]
    wanted = {f.peer for f in world.schedule.faults if f.kind == "remove" and f.at <= world.now}
    going = wanted.intersection(peer.number for peer in admitted)
    stay = [one for one in left if one.number not in going]
    quorum = world.schedule.quorum
    return len(left) >= quorum(len(admitted)) and len(stay) >= quorum(len(admitted) - len(going))


def _begun(world: World, site: Site) -> bool:
    """Say whether another has the first entry: it needs every peer, and whoever decides it is one of them."""
    return any(one.disk.at[0] > 0 for one in world.sites if one is not site and not one.lies)


def _dispensable(world: World, site: Site) -> bool:
    """Say whether the others can finish without a peer, whatever changes and whatever liars do."""
    if world.schedule.absence != "go on":
        # others may have to wait for it
        return False
    changes = any(fault.kind in ("add", "remove", "disk lost") for fault in world.schedule.faults)
    n = world.schedule.peers
    enough = n >= 4 and n - 1 - world.schedule.lying >= world.schedule.quorum(n)
    if changes or not enough or not _begun(world, site) or site.lies or any(one.gone for one in world.sites):
        return False
    return not _last_copy(world, site)


def _stop_and_start(site: Site) -> None:
    if site.world.now < HEALED:
        site.stop()
        site.start()


def _less(world: World, what: str) -> None:
    setattr(world, what, max(0, getattr(world, what) - 1))


def _cut(world: World, pairs: Iterable[tuple[int, int]], fault: Fault) -> None:
    """Cut links in these directions; in half of the cases both ends notice after a while."""
    pairs = list(pairs)
    for pair in pairs:
        world.cuts[pair] += 1
    if fault.choice < 0.5 and fault.lasts > IDLE:
        for one, other in pairs:
            world.at(world.now + IDLE, world.sites[one].happen, ev.Link(other, up=False))
            world.at(world.now + IDLE, world.sites[other].happen, ev.Link(one, up=False))
    world.at(world.now + fault.lasts, _mend, world, pairs)


def _mend(world: World, pairs: list[tuple[int, int]]) -> None:
    for one, other in pairs:
        if world.cuts[one, other] > 0:
            world.cuts[one, other] -= 1
        if world.connected(one, other) and world.connected(other, one):
            world.sites[one].happen(ev.Link(other))
            world.sites[other].happen(ev.Link(one))


def _change(world: World, fault: Fault) -> None:
    """Let operators ask for a change: one more of them than may lie."""
    state = world.state_before(len(world.checks.log))
    honest = [world.sites[peer.number] for peer in state.roster if not world.sites[peer.number].lies]
    askers = [site for site in honest if site.number >= fault.peer] + [s for s in honest if s.number < fault.peer]
    ask = _ask(world, fault)
    if ask is None:
        return
    for site in askers[: world.schedule.lying + 1]:
        site.command = ask
        site.happen(ev.Command(ask))


def _ask(world: World, fault: Fault) -> Ask | None:
    state = world.state_before(len(world.checks.log))
    match fault.kind:
        case "extend":
            return replace(state.settings, rounds=state.settings.rounds + 1)
        case "deadlines":
            beat = (0.3, 1.0, 1.0, 4.0)[int(fault.choice * 40) % 4]
            train, absent = 10.0 + 10 * fault.choice, 20.0 + 10 * fault.choice
            return replace(state.settings, train=train, absent=absent, heartbeat=beat)
        case "add":
            number = len(world.sites)
            if number > 9:
                return None
            site = Site(world, number)
            world.sites.append(site)
            site.start()
            for other in world.sites[:-1]:
                other.happen(ev.Link(number))
            return Add(world.peer(number))
        case "remove":
            return Remove(fault.peer)
        case "end":
            return End("the trial is over")
        case "move":
            return Move(fault.peer, f"elsewhere{fault.peer}:2")
        case _:
            return Renew(fault.peer, world.peer(fault.peer, key=1).key)
