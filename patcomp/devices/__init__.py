"""What devices do with constructs of programs, known from public reports: data, and who has which construct."""

from patcomp.devices.fact import UNITS, Construct, Fact, Severity, Unit
from patcomp.devices.registry import Met, facts_met, facts_of_finding, known_facts, units_of, warnings_about

__all__ = [
    "UNITS",
    "Construct",
    "Fact",
    "Met",
    "Severity",
    "Unit",
    "facts_met",
    "facts_of_finding",
    "known_facts",
    "units_of",
    "warnings_about",
]
