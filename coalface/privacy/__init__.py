"""What a federation tells all the same: attacks on what is sent."""
