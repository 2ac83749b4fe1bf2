#!/usr/bin/env python3
"""Ask the peer of this container how it is: exit code 0 if /healthz answers 200, else 1 and what it said."""

import os
import sys
import urllib.error
import urllib.request

ADDRESS = os.environ.get("SECUREDFL_HEALTH", "http://127.0.0.1:9100/healthz")


def main() -> int:
    """Print what the peer answers, and return the exit code for it."""
    try:
        # no proxy: the peer is in this container
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(ADDRESS, timeout=4) as answer:
            print(answer.read().decode(errors="replace").strip())
            return 0
    except urllib.error.HTTPError as error:
        print(f"{error.code} {error.read().decode(errors='replace').strip()}")
    except OSError as error:
        print(f"{ADDRESS}: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
