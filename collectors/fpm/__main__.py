"""``python -m collectors.fpm plan|run|check|publish``."""

import sys

from collectors.main import main

sys.exit(main(["fpm", *sys.argv[1:]]))
