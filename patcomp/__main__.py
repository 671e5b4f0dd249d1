"""The `patcomp` command, also as `python -m patcomp`."""

import sys


def main() -> None:
    """Import and run the command line; Ctrl-C ends both with one word, and exit code 130."""
    try:
        from patcomp.cli import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
