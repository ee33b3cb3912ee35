"""Conformance tests of games: the kit, and the random acts that it plays with."""
