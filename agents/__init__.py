"""Players and their components: roles, policies and inference engines."""
