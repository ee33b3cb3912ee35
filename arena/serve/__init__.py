"""Server of policies through an OpenAI-compatible API."""
