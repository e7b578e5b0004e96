"""Where faces come from, and how identities become clients."""
