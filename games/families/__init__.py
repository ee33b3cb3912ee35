"""What games of one kind share: how they are played, and what they are made of."""
