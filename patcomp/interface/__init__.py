"""What a program takes and gives: names, types, dynamic sizes, conditions and memory layouts, as data.

The frontend fills it, and whatever runs a program checks it.
"""
