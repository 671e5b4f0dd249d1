"""Programs as `.aimodel` assets, and how to run and check them."""

from patcomp.emit.asset import Asset, AssetError, load, parse_with_toolchain, save_asset

__all__ = ["Asset", "AssetError", "load", "parse_with_toolchain", "save_asset"]
