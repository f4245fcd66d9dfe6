"""`python -m notifier`."""

import sys

try:
    from notifier.cli import main

    main()
except KeyboardInterrupt:
    sys.exit(130)  # stopped before there was anything to stop
