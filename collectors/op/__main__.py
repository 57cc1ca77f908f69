"""``python -m collectors.op plan|run|check|publish``."""

import sys

from collectors.main import main

sys.exit(main(["op", *sys.argv[1:]]))
