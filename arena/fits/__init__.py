"""Memory that playing and learning need, from a model's sizes and the settings alone, beside what a machine has."""
