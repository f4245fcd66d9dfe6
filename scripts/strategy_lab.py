#!/usr/bin/env python3
"""The usual ways to send a mail once, and ours, in the same trouble; `--help` says what it can write and show."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    from notifier.proof.lab.main import main
except ModuleNotFoundError as missing:
    sys.exit(f"this Python lacks {missing.name}: use `make lab`, or .venv/bin/python scripts/strategy_lab.py")

if __name__ == "__main__":
    sys.exit(main())
