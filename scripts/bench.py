#!/usr/bin/env python3
"""Measure this service beside other Postgres queues and the floor, in one run; `--help` says what is measured."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    from notifier.proof.bench.main import main
except ModuleNotFoundError as missing:
    sys.exit(f"this Python lacks {missing.name}: use `make bench`, or .venv/bin/python scripts/bench.py")

if __name__ == "__main__":
    sys.exit(main())
