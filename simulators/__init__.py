"""Games with hidden state, tools and a verifiable outcome; one folder per domain."""
