"""The league: past versions and other opponents, matchmaking, ratings."""
