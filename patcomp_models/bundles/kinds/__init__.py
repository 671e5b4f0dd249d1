"""The kinds of bundles, a file each; nothing else lists them."""
