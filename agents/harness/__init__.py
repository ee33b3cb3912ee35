"""Agent programs of users as players: an OpenAI-compatible API for each match, and the program's process."""
