"""What a deployment needs and costs."""
