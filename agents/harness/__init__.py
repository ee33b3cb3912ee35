"""Agent programs of users in a seat: an OpenAI-compatible API for each match, and the program's process."""
