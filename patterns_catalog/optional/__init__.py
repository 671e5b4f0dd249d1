"""Catalogs that users may add; the default rules do not include them."""
