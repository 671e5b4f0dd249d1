"""Catalogs for who asks for them: they are no part of the default rules."""
