#!/usr/bin/env python3
"""Take each guard out of a scratch copy and see a test fail; notifier/proof/guards has the list."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    from notifier.proof.guards.command import main
except ModuleNotFoundError as missing:
    sys.exit(f"this Python lacks {missing.name}: use `make guards`, or .venv/bin/python scripts/take_guards_out.py")

if __name__ == "__main__":
    main()
