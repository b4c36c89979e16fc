"""``python -m pcl_reasoner.cli`` runs ``pclr-ms``."""

from pcl_reasoner.cli.main import main

raise SystemExit(main())
