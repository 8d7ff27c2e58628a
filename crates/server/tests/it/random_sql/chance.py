"""What is to be done, and the chance that all of it is made of."""

import random
import sys

PORT, SEED, COUNT = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
# More constructs, which not all have been seen to be without differences.
WIDE = "wide" in sys.argv
R = random.Random(SEED)


def choice(usual, wide):
    """One of the usual, or with more constructs of all."""
    return R.choice(usual + wide if WIDE else usual)
