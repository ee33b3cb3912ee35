"""Phone domain: accounts with lines, and a phone that only its customer sees and changes."""
