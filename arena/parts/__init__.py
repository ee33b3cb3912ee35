"""What settings are made of: strict models, parts chosen by name, schedules, and paths that hold from anywhere."""
