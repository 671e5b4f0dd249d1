"""The subcommands of `patcomp`, one file a subject; `patcomp.cli` puts them together."""
