"""Phone domain: accounts with lines, and a phone that only the customer sees and changes."""
