"""What a deployment on AWS may be, for whoever makes it and whoever prices it."""
