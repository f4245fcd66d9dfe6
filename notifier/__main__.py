"""`python -m notifier`."""

from notifier.cli import main

main()
