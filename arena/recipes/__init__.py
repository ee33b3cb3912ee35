"""Ready experiments, one YAML each."""
