"""The real `notifier` command line, with stand-ins for the processes that `run` starts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from notifier import cli
from notifier.supervisor import conductor

conductor.PROGRAM = (sys.executable, str(Path(__file__).with_name("stand_in.py")))

if __name__ == "__main__":
    cli.main()
