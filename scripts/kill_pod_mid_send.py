#!/usr/bin/env python3
"""Prove it: load under kill -9 and worse, then a count of every mail. `make chaos` sets up what this needs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from notifier.proof.chaos.command import main
except ImportError as error:
    print(f"{error}: this Python lacks what the project needs; use `make chaos`, or .venv/bin/python", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    main()
