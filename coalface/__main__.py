"""``python -m coalface``: the same command where nothing can be installed."""

import sys


def command() -> int:
    """All of it takes a second or two to load, in which somebody may change their mind."""
    try:
        from coalface.cli import main  # noqa: PLC0415

        return main()
    except KeyboardInterrupt:
        print("coalface: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(command())
