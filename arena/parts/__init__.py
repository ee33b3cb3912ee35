"""Building blocks of settings: strict models, parts chosen by name, schedules, and paths."""
