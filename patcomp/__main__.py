"""`python -m patcomp` is the `patcomp` command."""

from patcomp.cli import main

main()
