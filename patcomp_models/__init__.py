"""Other people's models on top of the compiler: checkpoint folders, language models, tasks and bundles.

The compiler `patcomp` knows nothing of this package. `patcomp.language`, `patcomp.tasks` and `patcomp.bundles` are its
public names; an entry point of the group `patcomp.commands` adds its subcommands.
"""
