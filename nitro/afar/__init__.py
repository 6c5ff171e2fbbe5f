"""Jobs on a remote API: signing in, and fetching their files."""
