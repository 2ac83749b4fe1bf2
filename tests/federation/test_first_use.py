"""Types that several threads may be the first to use: msgspec looks at them when their module is imported."""

import subprocess
import sys

RACE = """
import sys, threading
from securedfl.federation.peers.events import from_json
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(6)
def first():
    barrier.wait()
    from_json('{"event": "round", "method": "secured", "round": 1}')
    from_json('{"event": "status", "phase": "training", "round": 0}')
threads = [threading.Thread(target=first) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_several_threads_may_read_the_first_events_of_peers_at_once():
    """`securedfl up` hears each peer in a thread of its own; one time in five this crashed."""
    for _ in range(10):
        assert subprocess.run([sys.executable, "-c", RACE], timeout=100, check=False).returncode == 0
