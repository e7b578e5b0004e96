"""Pure functions of scores and features: error rates, intervals, collapse monitors."""
