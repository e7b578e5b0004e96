"""Engines decide who runs the clients. They never know methods, and methods never know them."""
