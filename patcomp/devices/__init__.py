"""What devices do with constructs of programs, known from public reports: data, and who has which construct."""

from patcomp.devices.fact import UNITS, Construct, Fact, Severity, Unit
from patcomp.devices.registry import Occurrence, facts_of_finding, known_facts, occurrences, units_of, warnings_about

__all__ = [
    "UNITS",
    "Construct",
    "Fact",
    "Occurrence",
    "Severity",
    "Unit",
    "facts_of_finding",
    "known_facts",
    "occurrences",
    "units_of",
    "warnings_about",
]
