"""Games that are not ours, found by name and wrapped as text games."""
