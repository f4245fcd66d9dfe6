"""The usual ways to send a mail once, and ours, in the same trouble; `--help` says what it can write and show."""

import sys

from notifier.proof.lab.main import main

if __name__ == "__main__":
    sys.exit(main())
