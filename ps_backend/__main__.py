"""``python -m ps_backend serve ...``: the same as the ``distvec`` command."""

import sys

from ps_backend.processes.cli import main

if __name__ == "__main__":
    sys.exit(main())
