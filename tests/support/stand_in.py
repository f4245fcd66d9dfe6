"""A process that behaves as ours do towards the supervisor, and does nothing else: `stand_in.py api --ready-file F`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from notifier.lifecycle import Ready, run_until_stopped

PORTS = {"api": "NOTIFIER_API_PORT", "mock-provider": "NOTIFIER_MOCK_PORT"}


async def serve(stop: asyncio.Event, ready: Ready, name: str) -> None:
    """Answer every connection with this process's settings, as one line of JSON."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = {key: value for key, value in os.environ.items() if key.startswith("NOTIFIER_")}
        writer.write(json.dumps(seen).encode() + b"\n")
        writer.close()

    port = int(os.environ.get(PORTS.get(name, ""), "0") or 0)
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    smtp_port = int(os.environ.get("NOTIFIER_MOCK_SMTP_PORT", "0") if name == "mock-provider" else "0")
    smtp = await asyncio.start_server(answer, "127.0.0.1", smtp_port)
    ready(url, f"{url}/metrics", f"smtp://127.0.0.1:{smtp.sockets[0].getsockname()[1]}")
    async with server, smtp:
        await stop.wait()
        if os.environ.get("STAND_IN_LINGERS") == name:
            await asyncio.sleep(60)


def main() -> None:
    """Read the command line as `notifier` would; STAND_IN_REFUSES and STAND_IN_LINGERS name one that is difficult."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--parent-fd", type=int)
    given = parser.parse_args()
    if os.environ.get("STAND_IN_REFUSES") == given.name:
        sys.stderr.write("notifier: NOTIFIER_NONSENSE is not what it should be\n")
        sys.exit(2)
    asyncio.run(
        run_until_stopped(
            lambda stop, ready: serve(stop, ready, given.name), ready_file=given.ready_file, parent_fd=given.parent_fd
        )
    )


if __name__ == "__main__":
    main()
