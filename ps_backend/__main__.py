"""``python -m ps_backend serve ...``: the same as the ``distvec`` command."""

import sys

from ps_backend.cli import main

if __name__ == "__main__":
    sys.exit(main())
