"""Jobs of an API elsewhere: signing in, and fetching what they left."""
