"""What tests make: models, samples, matches, labs, run folders, and the commands and servers that they talk to."""
