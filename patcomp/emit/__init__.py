"""Getting programs out: `.aimodel` assets."""

from patcomp.emit.asset import Asset, AssetError, load, parse_with_toolchain, save_asset

__all__ = ["Asset", "AssetError", "load", "parse_with_toolchain", "save_asset"]
