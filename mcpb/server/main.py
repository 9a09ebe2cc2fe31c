"""Entry point of the bundle: the command line of the package that comes with it."""

from primus_mcp.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
