"""A worker as fix 5 is printed, for a process of its own: claim for a day, then a send with a key.

`--stall` lets it stop in the middle of writing its request, as on a slow network, until somebody ends it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

from redis import Redis

DAY_S = 86_400


def main() -> None:
    """Do the job once and say on stdout, line by line, how far it got."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--redis", required=True)
    parser.add_argument("--provider", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--stall", action="store_true")
    given = parser.parse_args()
    with Redis.from_url(given.redis) as redis:
        if not redis.set(f"onboarding:lock:{given.user}", 1, nx=True, ex=DAY_S):
            _say("somebody has the lock: returns")
            return
    _say("has the lock")
    status = _send(given.provider, given.user, stall=given.stall)
    _say(f"sent: {status}")


def _send(provider: str, user: str, *, stall: bool) -> int:
    body = json.dumps(
        {"from": "lab@example.com", "to": [f"{user}@example.com"], "subject": "Welcome", "text": "Welcome"}
    ).encode()
    connection = HTTPConnection(urlsplit(provider).netloc, timeout=10)
    connection.putrequest("POST", "/emails")
    headers = {
        "Authorization": "Bearer re_lab",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Idempotency-Key": f"onboarding:{user}",
        "X-Notifier-User": user,
        "X-Notifier-Kind": "onboarding",
    }
    for name, value in headers.items():
        connection.putheader(name, value)
    half = len(body) // 2
    connection.endheaders(body[:half])
    _say("is in the middle of the send")
    if stall:
        signal.pause()
    connection.send(body[half:])
    return connection.getresponse().status


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
