"""What all tests share: the process as `import arena` prepares it, and none fails where a machine is slow or busy."""

from hypothesis import HealthCheck, settings

import arena  # noqa: F401  before torch loads

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
