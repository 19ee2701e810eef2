"""A model's work for one token or one prompt chunk, as a list of ops, and the passes over that list."""
