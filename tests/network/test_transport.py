"""The transport: who gets in, what is dropped, and what the drivers agree on."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from functools import partial

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs import best
from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.driver import Attempt, Plan
from securedfl.network.links import keys as certificates
from securedfl.network.routes import dry_run, find_routes
from securedfl.network.wire import tls
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import Place, decode, encode
from securedfl.network.wire.mailbox import Mailbox
from securedfl.network.wire.server import SERVICE
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.protocols.masks import Mask
from securedfl.simulation import run
from tests.network.peer_processes import RUN, free_ports


def average_over(endpoints, protocol, vectors, draws, commit_step, chunk):
    n, results = len(vectors), {}

    def work(me):
        plan = Plan.make(protocol, me, n, len(vectors[0]), "float32", commit_step=commit_step, chunk=chunk)
        place = Place(RUN, 3, 1, 0, 0)
        mailbox = Mailbox(place, plan.routes)
        endpoints[me].attach(mailbox, range(n))
        outlets = {k: endpoints[me].outlet(k, place, mailbox) for k in range(n) if k != me}
        attempt = Attempt(plan, vectors[me], draws=partial(draws, me), patience=20)
        attempt.connect(mailbox, outlets)
        attempt.share()
        results[me] = attempt.finish()
        assert plan.bytes_to_send == endpoints[me].bytes_out
        assert not mailbox.dropped

    threads = [threading.Thread(target=work, args=(me,)) for me in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.parametrize(
    ("protocol", "n", "chunk"),
    [("grouped", 9, 1000), ("classic", 4, 999), ("plain", 4, 5000), ("shares", 9, 700), ("shares", 9, 2600)],
)
def test_same_bits_as_the_memory_driver(endpoints, protocol, n, chunk):
    generator = by_name(protocol).on(best(n, 3 if n == 9 else 2, 0)).at(3)
    vectors = [np.random.default_rng(k).normal(size=2600).astype(np.float32) for k in range(n)]

    def draws(peer, offset):
        return InsecureSeededDraw(1, peer=peer, round=3, offset=offset)

    expected = run(generator, vectors, draws=draws)
    found = average_over(endpoints(n), generator, vectors, draws, int(protocol == "shares"), chunk)
    assert len(found) == n
    for result in found.values():
        np.testing.assert_array_equal(result, expected.average)


class Record:
    """An outlet that only writes down the steps of what it is given, and what was let go of."""

    def __init__(self):
        self.put_steps, self.sent = [], 0

    def put(self, place, _message):
        self.put_steps.append(place.step)

    def flush(self):
        self.sent = len(self.put_steps)


def test_no_sum_leaves_before_the_commit():
    """With all shares received, the sums are ready, but the only messages so far are those of the first step."""
    n, size = 9, 3000
    generator = by_name("shares").on(best(n, 3, 0), strength=2)
    plan = Plan.make(generator, 0, n, size, "float32", commit_step=1, chunk=700)
    mailbox = Mailbox(Place(RUN, 0, 0, 0, 0), plan.routes)
    for chunk, routes in enumerate(plan.routes):
        for sender, spec in routes.incoming[0].items():
            message = Mask(bytes(32), (spec.count,), "u4") if spec.seeded else np.zeros(spec.count, np.uint32)
            assert mailbox.deliver(sender, decode(encode(Place(RUN, 0, 0, 0, chunk), message)))
    outlets = {k: Record() for k in range(1, n)}
    attempt = Attempt(plan, np.ones(size, dtype=np.float32), patience=1)
    attempt.connect(mailbox, outlets)
    attempt.share()
    steps = [step for outlet in outlets.values() for step in outlet.put_steps]
    assert steps
    assert set(steps) == {0}
    assert all(outlet.sent == len(outlet.put_steps) for outlet in outlets.values())
    with pytest.raises(PeerLostError, match="nothing arrived"):
        attempt.finish()
    assert {step for outlet in outlets.values() for step in outlet.put_steps} == {0, 1}


def test_routes_count_the_bytes_that_the_memory_driver_counts():
    generator = by_name("shares").on(best(9, 3, 0)).at(1)
    routes = find_routes(generator, 9, 1000, "float32")
    outcome = run(generator, [np.zeros(1000, dtype=np.float32)] * 9)
    assert tuple(sum(route.sent) for route in routes) == outcome.sent


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([("grouped", 3), ("shares", 2), ("shares", 3)]),
    st.integers(6, 11),
    st.integers(1, 40_000),
)
def test_short_dry_runs_tell_about_long_vectors(protocol, n, length):
    name, size = protocol
    options = {"strength": 1} if name == "shares" else {}
    generator = by_name(name).on(best(n, size, 0), **options).at(2)
    assert find_routes(generator, n, length, "float32") == dry_run(generator, n, length, "float32")


# -- who gets in --------------------------------------------------------------------------------------------------


def call(roster, files, root, method="Control", name="p0"):
    """Call p0 with any credentials; return the status code, or OK."""
    credentials = (
        grpc.ssl_channel_credentials(root)
        if files is None
        else grpc.ssl_channel_credentials(root, files.key.read_bytes(), files.certificate.read_bytes())
    )
    options = [("grpc.ssl_target_name_override", name)]
    with grpc.secure_channel(roster[0].address, credentials, options=options) as channel:
        try:
            channel.unary_unary(SERVICE + method)(b"\x80", timeout=5)
        except grpc.RpcError as error:
            return error.code().name
    return "OK"


def test_only_members_with_the_pinned_certificate_get_in(endpoints, keys, tmp_path):
    folder, files = keys
    first, _second = endpoints(2)
    root, roster = files[0].certificate.read_bytes(), first.roster
    assert call(roster, files[1], root) == "OK"
    assert call(roster, None, root) == "UNAVAILABLE"  # no certificate, no connection
    assert call(roster, files[2], root) == "UNAUTHENTICATED"  # of the federation's authority, not in the roster
    certificates.create_authority(tmp_path)
    assert call(roster, certificates.issue(tmp_path, "p1"), root) == "UNAVAILABLE"  # another authority
    again = tmp_path / "again"
    again.mkdir()
    for name in ("ca.key", "ca.crt"):
        (again / name).write_bytes((folder / name).read_bytes())
        (again / name).chmod(0o600)
    twin = certificates.issue(again, "p1")
    assert call(roster, twin, root) == "UNAUTHENTICATED"  # the right name and authority, another key
    assert first.counters["refused: stranger"] == 2
    assert call(roster, files[1], root, method="Nothing") == "UNIMPLEMENTED"
    with grpc.insecure_channel(roster[0].address) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary(SERVICE + "Control")(b"\x80", timeout=2)  # plain text


def test_a_server_that_is_not_the_pinned_one_is_refused(endpoints, keys):
    second = endpoints(2)[1]
    member = second.roster[1]
    assert tls.fetch_certificate(member, keys[1][0])
    for wrong, message in [
        (tls.Member("p1", member.host, member.port, "0" * 64), "fingerprint"),
        (tls.Member("p2", member.host, member.port, member.fingerprint), "mismatch"),
    ]:
        with pytest.raises(tls.IdentityError, match=message):
            tls.fetch_certificate(wrong, keys[1][0])
    with pytest.raises(PeerLostError, match="does not answer"):
        tls.fetch_certificate(tls.Member("p1", "127.0.0.1", free_ports(1)[0], "0" * 64), keys[1][0])


def test_tls_1_2_is_refused(endpoints, keys):
    """gRPC cannot forbid TLS 1.2 from Python, so every call checks the version that was negotiated."""
    first, _ = endpoints(2)
    files = keys[1][1]
    assert tls.TLS_VERSION == b"TLSv1.3"
    auth = {"ssl_tls_version": [b"TLSv1.2"], "x509_pem_cert": [files.certificate.read_bytes()]}
    with pytest.raises(tls.IdentityError, match=r"not TLS 1\.3"):
        tls.caller(auth, {}, first.roster, insecure=False)
    auth["ssl_tls_version"] = [b"TLSv1.3"]
    assert tls.caller(auth, {}, first.roster, insecure=False) == 1
    context = ssl.create_default_context(cafile=str(files.authority))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", first.roster[0].port)) as raw,
        context.wrap_socket(raw, server_hostname="p0") as connection,
    ):
        assert connection.version() == "TLSv1.2"  # the handshake is gRPC's; no method answers over it


def test_expired_certificates_are_refused(keys, tmp_path):
    folder, _files = keys
    for name in ("ca.key", "ca.crt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    pair = [certificates.issue(tmp_path, name, days=1, start=old) for name in ("p0", "p1")]
    roster = [
        tls.Member(f"p{k}", "127.0.0.1", port, certificates.describe(pair[k].certificate).fingerprint)
        for k, port in enumerate(free_ports(2))
    ]
    endpoint = Endpoint(roster, 0, pair[0])
    try:
        with pytest.raises(tls.IdentityError, match="expired"):
            tls.fetch_certificate(roster[0], pair[1])
    finally:
        endpoint.close()


def test_no_plain_text_beyond_loopback():
    with pytest.raises(ConfigError, match="loopback"):
        Endpoint([tls.Member("p0", "192.0.2.1", 1)], 0, None, insecure=True)
    with pytest.raises(ConfigError, match="no key files"):
        Endpoint([tls.Member("p0", "127.0.0.1", 1)], 0, None)


def test_a_flood_of_calls_is_limited(endpoints):
    first, second = endpoints(2)
    second.answer = lambda _peer, _message: {}
    refused = 0
    for _ in range(1200):
        try:
            first.call(1, {"kind": "x"})
        except PeerLostError:
            refused += 1
    assert refused
    assert second.counters["refused: too many calls"] == refused


# -- the mailbox --------------------------------------------------------------------------------------------------


def frame_of(place, array):
    return decode(encode(place, array))


@settings(max_examples=50)
@given(st.data())
def test_the_mailbox_takes_any_order_and_drops_everything_else(data):
    routes = find_routes(by_name("plain").on(best(4, 2, 0)), 4, 10, "float32")[0]
    mailbox = Mailbox(Place(RUN, 1, 2, 0, 0), [routes, routes])
    good = [(chunk, sender) for chunk in range(2) for sender in range(1, 4)]
    noise = ["duplicate", "another run", "another attempt", "not announced", "wrong length or dtype"]
    expected = dict.fromkeys(noise, 0)
    for chunk, sender in data.draw(st.permutations(good)):
        array = np.full(10, sender, dtype=np.float32)
        why = data.draw(st.sampled_from(noise))
        place = Place(RUN, 1, 2, 0, chunk)
        bad = {
            "another run": (Place(b"x" * 16, 1, 2, 0, chunk), array),
            "another attempt": (Place(RUN, 1, data.draw(st.sampled_from([0, 1, 3])), 0, chunk), array),
            "not announced": (Place(RUN, 1, 2, 7, chunk), array),
            "wrong length or dtype": (place, array[1:]),
        }
        if why in bad:
            assert not mailbox.deliver(sender, frame_of(*bad[why]))
            expected[why] += 1
        assert mailbox.deliver(sender, frame_of(place, array))
        if why == "duplicate":
            assert not mailbox.deliver(sender, frame_of(place, array))
            expected[why] += 1
    for _ in range(2):
        chunk, inbox = mailbox.take({0: 0, 1: 0} if not mailbox._taken else {1 - chunk: 0}, 1)
        assert {sender: float(array[0]) for sender, array in inbox.items()} == {1: 1.0, 2: 2.0, 3: 3.0}
    assert not mailbox.deliver(1, frame_of(Place(RUN, 1, 2, 0, 0), np.zeros(10, dtype=np.float32)))
    expected["duplicate"] += 1
    assert mailbox.dropped == {why: count for why, count in expected.items() if count}


def test_the_mailbox_names_who_is_missing():
    routes = find_routes(by_name("plain").on(best(4, 2, 0)), 4, 10, "float32")[0]
    mailbox = Mailbox(Place(RUN, 0, 0, 0, 0), [routes])
    mailbox.deliver(2, frame_of(Place(RUN, 0, 0, 0, 0), np.zeros(10, dtype=np.float32)))
    with pytest.raises(PeerLostError, match="peers 1, 3"):
        mailbox.take({0: 0}, 0.05)
    mailbox.fail(PeerLostError("over"))
    with pytest.raises(PeerLostError, match="over"):
        mailbox.take({0: 0}, 1)
