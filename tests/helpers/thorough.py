"""How many examples a property test draws: few by default, ten times as many with `--hypothesis-profile=thorough`."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("thorough", max_examples=10 * settings.default.max_examples)
_USUAL = settings.default.max_examples


def examples(count: int) -> int:
    """The number of examples for a test that draws `count` of them by default."""
    return count * settings.default.max_examples // _USUAL


def drawn(count: int) -> settings:
    """For tests of whole conversions: that many examples, the same in every run, none of them made smaller."""
    return settings(
        max_examples=examples(count),
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
