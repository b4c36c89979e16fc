"""``python -m pcl_reasoner.worker finetune.yaml``, as msrun starts it."""

import os
import sys
import traceback

from pcl_reasoner.worker.entry import main

try:
    main()
except BaseException as error:
    # At a normal exit MindSpore waits for its loader, and that of on-policy training may wait for a
    # round that nobody will make.
    if not isinstance(error, SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
