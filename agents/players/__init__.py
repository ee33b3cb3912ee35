"""Players backed by models, endpoints, people or scripts."""
