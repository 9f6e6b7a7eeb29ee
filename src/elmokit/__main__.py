"""``python -m elmokit`` is the command ``elmokit``."""

import sys

from elmokit.cli import main

if __name__ == "__main__":
    sys.exit(main())
