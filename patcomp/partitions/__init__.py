"""Part of a model: the largest parts of an exported program that convert, and the rest, which stays in PyTorch."""

from patcomp.partitions.cutting import partition
from patcomp.partitions.partitioned import Partitioned
from patcomp.partitions.report import Crossing, PartitionReport

__all__ = ["Crossing", "PartitionReport", "Partitioned", "partition"]
