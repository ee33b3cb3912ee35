"""What every game promises, put to the test: the kit, and the acts that it plays with."""
