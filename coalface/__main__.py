"""``python -m coalface``: the same command where nothing can be installed."""

from coalface.cli import main

raise SystemExit(main())
