"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: no example fails for the time it took.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
