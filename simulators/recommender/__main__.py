"""Agreement of simulated users with real ones: `python -m simulators.recommender ratings.csv` prints JSON."""

import json
import sys

from simulators.recommender.ratings import agreement, load


def main(arguments: list[str]) -> None:
    """Prints the agreement on held-out users of a file of ratings, or leaves with one line that says what is wrong."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit("usage: python -m simulators.recommender ratings.csv")
    try:
        print(json.dumps(agreement(load(arguments[0])), indent=1))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
