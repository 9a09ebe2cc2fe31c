"""`python -m primus_mcp` is `primus-mcp`."""

import sys

from primus_mcp.cli.main import main

sys.exit(main())
