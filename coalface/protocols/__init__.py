"""How a number is measured: which pairs, which threshold, from which part of the data."""
