"""The files of an asset beside its program, and how a folder takes another one's place."""
