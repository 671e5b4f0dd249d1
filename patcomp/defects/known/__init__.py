"""The known defects, a file each, which ends in a `DEFECT`."""
