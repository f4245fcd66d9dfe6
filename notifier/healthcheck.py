"""What a container asks itself: `python -m notifier.healthcheck` exits 0 when the process in it answers /healthz.

There is one process to a container, on the port that is its own: api, mock provider, or worker and scheduler. So all
three are asked, and one has to answer. Without the settings' own reader, which takes ten times as long to load.
"""

from __future__ import annotations

import http.client
import os
import sys

TIMEOUT_S = 2.0
PORTS = {"NOTIFIER_API_PORT": 8080, "NOTIFIER_MOCK_PORT": 8025, "NOTIFIER_METRICS_PORT": 0}  # as in Settings


def main() -> int:
    """Ask every port; 0 when one answers, 1 when none does."""
    ports = [int(os.environ.get(name) or default) for name, default in PORTS.items()]
    if any(_answers(port) for port in ports if port):
        return 0
    print(f"nothing answers /healthz on any of the ports {', '.join(map(str, ports))}", file=sys.stderr)  # noqa: T201 - the verdict
    return 1


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
