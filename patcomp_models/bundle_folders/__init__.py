"""The folders of bundles: written whole or not at all, and read as Apple's Swift package reads them."""
