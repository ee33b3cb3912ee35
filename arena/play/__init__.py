"""Play of matches: planning, seating, concurrent play with retries, and demonstrations to imitate."""
