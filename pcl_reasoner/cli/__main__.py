"""``python -m pcl_reasoner.cli`` is ``pclr-ms``."""

from pcl_reasoner.cli.main import main

raise SystemExit(main())
